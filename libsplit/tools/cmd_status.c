/* SPDX-License-Identifier: Apache-2.0 */
/* splitfs status: what a volume is and who uses it, from its files; asks nobody and waits for nobody. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "json.h"
#include "relink/relink.h"
#include "control/blocked.h"

static const char help[] =
	"Usage: splitfs status ROOT [--json]\n"
	"\n"
	"Show a volume: how data moves into its files, its pool of staging files, the processes that use it with their\n"
	"counters, totals over all processes including those that are gone, and what recoveries did, and who waits\n"
	"too long for whom. Works while the agent runs.\n"
	"\n"
	"  --json   print one JSON object\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 wrong usage.\n";

static const char *const modes[] = {"posix", "sync", "strict"};

struct process {
	struct sfs_lease lease;
	struct sfs_counters counters;
	bool alive;
};

struct report {
	struct sfs_root root;
	char provider[16];
	int agent_pid;
	uint64_t pool_bytes, free_bytes, pool_files;
	struct process *processes;
	size_t nprocesses;
	struct sfs_totals totals;
	struct sfs_blocked_list blocked;
};

/* One log; it may vanish while we look. */
static int add_process(struct report *rp, uint32_t id, struct sfs_why *why)
{
	struct process *bigger, *p;
	struct sfs_leasefile l;
	int fd;

	if (sfs_lease_load(&rp->root, id, &l, NULL))
		return 0;
	bigger = reallocarray(rp->processes, rp->nprocesses + 1, sizeof(*bigger));
	if (!bigger) {
		sfs_lease_close(&l);
		return sfs_fail(why, -ENOMEM, "out of memory");
	}
	rp->processes = bigger;
	p = &bigger[rp->nprocesses++];
	memset(p, 0, sizeof(*p));
	p->lease = l.head;
	sfs_lease_close(&l);
	fd = sfs_log_open(&rp->root, id, O_RDONLY);
	if (fd < 0) {
		rp->nprocesses--;
		return 0;
	}
	if (!sfs_log_counters(fd, &p->counters) && id != rp->totals.settled_log)
		sfs_counters_add(&rp->totals.counters, &p->counters);
	p->alive = sfs_lease_alive(&p->lease, fd);
	close(fd);
	return 0;
}

static bool leased(const struct report *rp, uint32_t chunk)
{
	for (size_t i = 0; i < rp->nprocesses; i++)
		for (uint32_t k = 0; k < rp->processes[i].lease.nchunks && k < SFS_LEASE_CHUNKS; k++)
			if (rp->processes[i].lease.chunks[k] == chunk)
				return true;
	return false;
}

/* Logs, and what is left of those that are gone: all of it from one moment, in which the agent moved nothing from one to the other. */
static int add_up(struct report *rp, struct sfs_why *why)
{
	struct sfs_numbers logs, leases;
	struct sfs_totals before, after;
	int err = sfs_totals_read(&rp->root, &after), tries = 0;

	while (!err) {
		before = rp->totals = after;
		rp->nprocesses = 0;
		err = sfs_log_list(&rp->root, &logs, &leases, why);
		if (err)
			return err;
		for (uint32_t i = 0; !err && i < leases.n; i++)
			err = add_process(rp, leases.v[i], why);
		sfs_numbers_free(&logs);
		sfs_numbers_free(&leases);
		if (err)
			return err;
		err = sfs_totals_read(&rp->root, &after);
		if (!err && (memcmp(&before, &after, sizeof(before)) == 0 || ++tries == 100))
			return 0;
	}
	return sfs_fail(why, err, "read %s/.splitfs/totals: %s", rp->root.path, strerror(-err));
}

static int look(struct report *rp, const char *path, struct sfs_why *why)
{
	struct sfs_numbers chunks;
	struct sfs_holder holder;
	int err = sfs_root_open(&rp->root, path, false, why);

	if (err)
		return err;
	if (sfs_root_holder(&rp->root, &holder) && strcmp(holder.what, "agent") == 0) {
		rp->agent_pid = holder.pid;
		snprintf(rp->provider, sizeof(rp->provider), "%s", holder.provider);
	}
	if (!rp->provider[0] || strcmp(rp->provider, "-") == 0) {
		const int p = relink_probe(rp->root.ctl);

		snprintf(rp->provider, sizeof(rp->provider), "%s",
			 relink_provider_name(p < 0 ? RELINK_NONE : (enum relink_provider)p));
	}
	if (rp->agent_pid)
		sfs_blocked_read(&rp->root, &rp->blocked);
	err = add_up(rp, why);
	if (!err)
		err = sfs_chunk_list(&rp->root, &chunks, false, why);
	if (err)
		return err;
	for (uint32_t i = 0; i < chunks.n; i++) {
		char name[32];
		struct stat st;

		snprintf(name, sizeof(name), "%06u", chunks.v[i]);
		if (fstatat(rp->root.pool, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		rp->pool_files++;
		rp->pool_bytes += (uint64_t)st.st_size;
		if (!leased(rp, chunks.v[i]))
			rp->free_bytes += (uint64_t)st.st_size;
	}
	sfs_numbers_free(&chunks);
	return 0;
}

static uint64_t seconds_since(uint64_t when)
{
	const uint64_t now = (uint64_t)time(NULL);

	return now > when ? now - when : 0;
}

static void json_counters(struct json *j, const char *key, const struct sfs_counters *c)
{
	json_object(j, key);
#define PUT(name) json_number(j, #name, c->name);
	SFS_COUNTERS(PUT)
#undef PUT
	json_object_end(j);
}

static void print_json(const struct report *rp)
{
	struct json j = {.out = stdout};
	char uuid[37], device[32];

	sfs_uuid_text(rp->root.uuid, uuid);
	snprintf(device, sizeof(device), "%u:%u", major(rp->root.dev), minor(rp->root.dev));
	json_object(&j, NULL);
	json_string(&j, "root", rp->root.path);
	json_string(&j, "uuid", uuid);
	json_number(&j, "format", SFS_FORMAT);
	json_string(&j, "device", device);
	json_bool(&j, "dax", rp->root.dax);
	json_bool(&j, "emulated", !rp->root.dax);
	json_string(&j, "provider", rp->provider);
	json_number(&j, "agent_pid", (uint64_t)rp->agent_pid);
	json_object(&j, "pool");
	json_number(&j, "bytes", rp->pool_bytes);
	json_number(&j, "free_bytes", rp->free_bytes);
	json_number(&j, "files", rp->pool_files);
	json_object_end(&j);
	json_array(&j, "processes");
	for (size_t i = 0; i < rp->nprocesses; i++) {
		const struct process *p = &rp->processes[i];

		json_object(&j, NULL);
		json_number(&j, "pid", p->lease.pid > 0 ? (uint64_t)p->lease.pid : 0);
		json_string(&j, "comm", p->lease.comm);
		json_string(&j, "mode", p->lease.mode <= SFS_STRICT ? modes[p->lease.mode] : "unknown");
		json_bool(&j, "alive", p->alive);
		json_counters(&j, "counters", &p->counters);
		json_object_end(&j);
	}
	json_array_end(&j);
	json_counters(&j, "totals", &rp->totals.counters);
	json_object(&j, "recovery");
	json_number(&j, "runs", rp->totals.recovery_runs);
	json_number(&j, "records", rp->totals.recovery_records);
	json_number(&j, "replayed", rp->totals.recovery_replayed);
	json_number(&j, "quarantined", rp->totals.recovery_quarantined);
	json_object_end(&j);
	json_object(&j, "blocked");
	json_number(&j, "total", rp->blocked.total);
	json_array(&j, "now");
	for (uint32_t i = 0; i < rp->blocked.n; i++) {
		const struct sfs_blocked *b = &rp->blocked.v[i];

		json_object(&j, NULL);
		json_number(&j, "pid", (uint64_t)b->pid);
		json_number(&j, "held_by", (uint64_t)b->held_by);
		json_number(&j, "inode", b->ino);
		json_number(&j, "seconds", seconds_since(b->since));
		json_object_end(&j);
	}
	json_array_end(&j);
	json_object_end(&j);
	json_object_end(&j);
	putchar('\n');
}

static void print_counters(const struct sfs_counters *c)
{
#define PUT(name)                                                                                                              \
	if (c->name)                                                                                                           \
		printf("    %-18s %llu\n", #name, (unsigned long long)c->name);
	SFS_COUNTERS(PUT)
#undef PUT
}

/* A process may call itself anything; a terminal must not obey it. */
static void print_comm(const char *s)
{
	for (; *s; s++)
		putchar(*s >= 0x20 && *s < 0x7f ? *s : '?');
}

static void print_text(const struct report *rp)
{
	char uuid[37];

	sfs_uuid_text(rp->root.uuid, uuid);
	printf("volume    %s\n", rp->root.path);
	printf("uuid      %s, format %u\n", uuid, SFS_FORMAT);
	printf("device    %u:%u, %s\n", major(rp->root.dev), minor(rp->root.dev),
	       rp->root.dax	       ? "persistent memory (DAX)"
	       : rp->root.dax_unsynced ? "emulated (DAX, but the device refuses MAP_SYNC; no durability of persistent memory)"
				       : "emulated (page cache; no durability of persistent memory)");
	printf("provider  %s\n", rp->provider);
	if (rp->agent_pid)
		printf("agent     process %d\n", rp->agent_pid);
	else
		printf("agent     none\n");
	printf("pool      %llu files, %llu MiB, %llu MiB free\n", (unsigned long long)rp->pool_files,
	       (unsigned long long)(rp->pool_bytes >> 20), (unsigned long long)(rp->free_bytes >> 20));
	for (size_t i = 0; i < rp->nprocesses; i++) {
		const struct process *p = &rp->processes[i];

		printf("process   %d (", p->lease.pid);
		print_comm(p->lease.comm);
		printf("), %s, %s\n", p->lease.mode <= SFS_STRICT ? modes[p->lease.mode] : "unknown mode",
		       p->alive ? "alive" : "ended, to be recovered");
		print_counters(&p->counters);
	}
	for (uint32_t i = 0; i < rp->blocked.n; i++)
		printf("blocked   process %d has waited %llu s for inode %llu, which process %d does not give up\n",
		       rp->blocked.v[i].pid, (unsigned long long)seconds_since(rp->blocked.v[i].since),
		       (unsigned long long)rp->blocked.v[i].ino, rp->blocked.v[i].held_by);
	printf("totals\n");
	print_counters(&rp->totals.counters);
	printf("recovery  %llu runs, %llu records, %llu replayed, %llu quarantined\n",
	       (unsigned long long)rp->totals.recovery_runs, (unsigned long long)rp->totals.recovery_records,
	       (unsigned long long)rp->totals.recovery_replayed, (unsigned long long)rp->totals.recovery_quarantined);
}

static int run(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'}, {"json", no_argument, NULL, OPT_JSON}, {0}};
	struct report rp = {0};
	struct sfs_why why = {0};
	bool as_json = false;
	int o, err;

	opterr = 0;
	while ((o = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (o) {
		case 'h':
			return cli_help(&cmd_status);
		case OPT_JSON:
			as_json = true;
			break;
		default:
			return cli_usage(&cmd_status, "unknown option: %s", argv[optind - 1]);
		}
	}
	if (argc - optind != 1)
		return cli_usage(&cmd_status, "status takes one directory");
	rp.root.fd = rp.root.ctl = rp.root.log = rp.root.pool = rp.root.lock = -1;
	err = look(&rp, argv[optind], &why);
	if (!err) {
		if (as_json)
			print_json(&rp);
		else
			print_text(&rp);
	}
	free(rp.processes);
	sfs_root_close(&rp.root);
	if (err)
		return cli_fail("%s", why.text);
	return fflush(stdout) ? cli_fail("standard output can't be written") : 0;
}

const struct command cmd_status = {"status", "show a volume, its processes and their counters", help, run};
