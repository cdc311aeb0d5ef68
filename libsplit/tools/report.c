/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "relink/relink.h"

/* One log; it may vanish while we look. */
static int add_process(struct report *rp, uint32_t id, struct sfs_why *why)
{
	struct report_process *bigger, *p;
	struct sfs_leasefile l;
	struct sfs_usage usage;
	int fd;

	if (sfs_lease_load(&rp->root, id, &l, NULL))
		return 0;
	if (l.head.held == SFS_HELD_SPARE) {
		sfs_lease_close(&l);
		return 0;
	}
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
	if (!sfs_log_usage(fd, p->lease.mode, &usage) && sfs_log_mark(id, fd) != rp->totals.settled_log) {
		sfs_counters_add(&rp->totals.counters, &usage.counters);
		if (p->lease.mode < SFS_MODES)
			sfs_latencies_add(&rp->totals.latency[p->lease.mode], &usage.latency[p->lease.mode]);
	}
	p->counters = usage.counters;
	p->protection = usage.protection;
	if (p->lease.mode < SFS_MODES)
		p->latency = usage.latency[p->lease.mode];
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

static int count_pool(struct report *rp, struct sfs_why *why)
{
	struct sfs_numbers chunks;
	const int err = sfs_chunk_list(&rp->root, &chunks, false, why);

	if (err)
		return err;
	for (uint32_t i = 0; i < chunks.n; i++) {
		char name[32];
		struct stat st;

		sfs_number_name(name, chunks.v[i], "");
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

static int look(struct report *rp, struct sfs_why *why)
{
	struct sfs_holder holder;
	int err;

	if (sfs_root_holder(&rp->root, &holder) && strcmp(holder.what, "agent") == 0) {
		rp->agent_pid = holder.pid;
		if (strcmp(holder.provider, "-"))
			snprintf(rp->provider, sizeof(rp->provider), "%s", holder.provider);
		sfs_blocked_read(&rp->root, &rp->blocked);
		sfs_refused_read(&rp->root, &rp->refused);
		sfs_unserved_read(&rp->root, &rp->unserved);
	}
	if (!rp->provider[0]) {
		const int p = relink_probe(rp->root.ctl);

		snprintf(rp->provider, sizeof(rp->provider), "%s",
			 relink_provider_name(p < 0 ? RELINK_NONE : (enum relink_provider)p));
	}
	err = add_up(rp, why);
	return err ? err : count_pool(rp, why);
}

int report_look(struct report *rp, const char *path, struct sfs_why *why)
{
	struct sfs_machine machine;
	int err = sfs_machine_here(&machine, why);

	if (!err)
		err = sfs_root_open(&rp->root, path, false, why);
	if (err)
		return err;
	rp->memory = sfs_memory_of_root(&machine, &rp->root);
	err = look(rp, why);
	sfs_root_close(&rp->root);
	return err;
}

void report_free(struct report *rp)
{
	free(rp->processes);
	rp->processes = NULL;
	rp->nprocesses = 0;
}

const char *report_memory(enum sfs_memory memory)
{
	static const char *const lines[SFS_MEMORIES] = {
		[SFS_MEMORY_EMULATED] = "emulated: no persistent memory, durable is what was fsynced",
		[SFS_MEMORY_VOLATILE] = "volatile: shows itself as persistent memory and loses everything with the power",
		[SFS_MEMORY_VIRTIO] = "virtio: virtio-pmem, durable is what was fsynced",
		[SFS_MEMORY_UNSTATED] = "unstated: persistent, and nobody says that stores survive the power's failure",
		[SFS_MEMORY_GPF] = "gpf: CXL memory with a global persistent flush",
		[SFS_MEMORY_ADR] = "adr: durable from the memory controller on",
		[SFS_MEMORY_EADR] = "eadr: durable from the caches on, nothing is flushed",
	};

	return lines[memory];
}

const char *report_protection(const struct report_process *p)
{
	switch (p->protection) {
	case SFS_PROTECTION_ON:
		return "on";
	case SFS_PROTECTION_CANNOT:
		return "cannot";
	}
	return "off";
}

const char *report_mode(const struct report_process *p)
{
	static const char *const modes[] = {"posix", "sync", "strict"};

	return p->lease.mode <= SFS_STRICT ? modes[p->lease.mode] : "unknown";
}

void report_json_counters(struct json *j, const char *key, const struct sfs_counters *c)
{
	json_object(j, key);
#define PUT(name) json_number(j, #name, c->name);
	SFS_COUNTERS(PUT)
#undef PUT
	json_object_end(j);
}

void report_json_pool(struct json *j, const struct report *rp)
{
	json_object(j, "pool");
	json_number(j, "bytes", rp->pool_bytes);
	json_number(j, "free_bytes", rp->free_bytes);
	json_number(j, "files", rp->pool_files);
	json_object_end(j);
}
