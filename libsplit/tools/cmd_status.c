/* SPDX-License-Identifier: Apache-2.0 */
/* splitfs status: what a volume is and who uses it, from its files; asks nobody and waits for nobody. */
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "cli.h"
#include "json.h"
#include "report.h"

#define MARGIN 10 /* what a line is about stands there */

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

static uint64_t seconds_since(uint64_t when)
{
	const uint64_t now = (uint64_t)time(NULL);

	return now > when ? now - when : 0;
}

static void json_protocol(struct json *j, const struct sfs_refused *r)
{
	json_object(j, "protocol");
	json_number(j, "oldest", r->agent.oldest);
	json_number(j, "newest", r->agent.newest);
	json_number(j, "refused", r->total);
	if (r->total) {
		json_object(j, "last");
		json_number(j, "pid", (uint64_t)r->pid);
		json_number(j, "oldest", r->client.oldest);
		json_number(j, "newest", r->client.newest);
		json_number(j, "seconds", seconds_since(r->when));
		json_object_end(j);
	}
	json_object_end(j);
}

static void print_protocol(const struct sfs_refused *r)
{
	if (r->agent.newest)
		printf("protocol  versions %u to %u\n", r->agent.oldest, r->agent.newest);
	if (r->total)
		cli_paragraph(
			stdout, MARGIN,
			"refused   %llu times, last process %d %llu s ago: it speaks versions %u to %u of the protocol; %s",
			(unsigned long long)r->total, r->pid, (unsigned long long)seconds_since(r->when), r->client.oldest,
			r->client.newest,
			r->client.newest < r->agent.oldest ? "start its pod anew" : "update SplitFS on this node");
}

static void print_json_unserved(struct json *j, const struct sfs_unserved_list *l)
{
	json_object(j, "unserved");
	json_string(j, "enforcement", sfs_enforcement_name(l->state));
	json_number(j, "refused", l->refused);
	json_number(j, "durable", l->durable);
	json_array(j, "processes");
	for (uint32_t i = 0; i < l->n; i++) {
		const struct sfs_unserved_one *o = &l->v[i];

		json_object(j, NULL);
		json_number(j, "pid", (uint64_t)o->pid);
		json_string(j, "did", sfs_unserved_name(o->did));
		json_number(j, "opens", o->opens);
		json_number(j, "seconds", seconds_since(o->when));
		json_string(j, "pod", o->pod);
		json_string(j, "program", o->program);
		json_string(j, "path", o->path);
		json_object_end(j);
	}
	json_array_end(j);
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
	json_string(&j, "memory", sfs_memory_word(rp->memory));
	json_bool(&j, "durable", sfs_memory_durable(rp->memory));
	json_string(&j, "provider", rp->provider);
	json_number(&j, "agent_pid", (uint64_t)rp->agent_pid);
	json_protocol(&j, &rp->refused);
	report_json_pool(&j, rp);
	json_array(&j, "processes");
	for (size_t i = 0; i < rp->nprocesses; i++) {
		const struct report_process *p = &rp->processes[i];

		json_object(&j, NULL);
		json_number(&j, "pid", p->lease.pid > 0 ? (uint64_t)p->lease.pid : 0);
		json_string(&j, "comm", p->lease.comm);
		json_string(&j, "mode", report_mode(p));
		json_bool(&j, "alive", p->alive);
		json_string(&j, "protection", report_protection(p));
		report_json_counters(&j, "counters", &p->counters);
		report_json_percentiles(&j, "latency", &p->latency);
		json_object_end(&j);
	}
	json_array_end(&j);
	report_json_counters(&j, "totals", &rp->totals.counters);
	report_json_latency(&j, "latency", rp->totals.latency);
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
	print_json_unserved(&j, &rp->unserved);
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

static void print_unserved(const struct sfs_unserved_list *l)
{
	if (l->state == ENFORCEMENT_CANNOT)
		cli_paragraph(stdout, MARGIN,
			      "unserved  programs without the library can't be refused; the agent's log says why");
	for (uint32_t i = 0; i < l->n; i++) {
		const struct sfs_unserved_one *o = &l->v[i];

		cli_paragraph(stdout, MARGIN, "unserved  process %d (%s) was %s, %llu times, last %llu s ago with %s", o->pid,
			      o->program, o->did == UNSERVED_REFUSE ? "refused" : "made synchronous",
			      (unsigned long long)o->opens, (unsigned long long)seconds_since(o->when), o->path);
	}
}

static void print_volume(const struct report *rp)
{
	char uuid[37];

	sfs_uuid_text(rp->root.uuid, uuid);
	printf("volume    %s\n", rp->root.path);
	printf("uuid      %s, format %u\n", uuid, SFS_FORMAT);
	cli_paragraph(stdout, MARGIN, "device    %u:%u, %s", major(rp->root.dev), minor(rp->root.dev),
		      rp->root.dax ? "persistent memory (DAX)"
		      : rp->root.dax_unsynced
			      ? "emulated (DAX, but the device refuses MAP_SYNC; no durability of persistent memory)"
			      : "emulated (page cache; no durability of persistent memory)");
	cli_paragraph(stdout, MARGIN, "memory    %s", report_memory(rp->memory));
	cli_paragraph(stdout, MARGIN, "provider  %s%s", rp->provider,
		      strcmp(rp->provider, "copy") == 0 ? " (moving blocks takes ext4 with the module ext4_splitfs, or XFS "
							  "with the kernel's own reflink, and an "
							  "agent without --provider copy)"
							: "");
	if (rp->agent_pid)
		printf("agent     process %d\n", rp->agent_pid);
	else
		printf("agent     none\n");
	print_protocol(&rp->refused);
	printf("pool      %llu files, %llu MiB, %llu MiB free\n", (unsigned long long)rp->pool_files,
	       (unsigned long long)(rp->pool_bytes >> 20), (unsigned long long)(rp->free_bytes >> 20));
}

static void print_process(const struct report_process *p)
{
	char comm[16];

	sfs_printable(comm, sizeof(comm), p->lease.comm);
	printf("process   %d (%s), %s, %s\n", p->lease.pid, comm, report_mode(p),
	       p->alive ? "alive" : "ended, to be recovered");
	if (p->protection == SFS_PROTECTION_ON)
		printf("    protection         on\n");
	else if (p->protection == SFS_PROTECTION_CANNOT)
		printf("    protection         cannot: there is no protection key, or the program has taken all\n");
	print_counters(&p->counters);
	report_print_percentiles(stdout, &p->latency);
}

static void print_text(const struct report *rp)
{
	print_volume(rp);
	for (size_t i = 0; i < rp->nprocesses; i++)
		print_process(&rp->processes[i]);
	for (uint32_t i = 0; i < rp->blocked.n; i++)
		cli_paragraph(stdout, MARGIN,
			      "blocked   process %d has waited %llu s for inode %llu, which process %d does not give up",
			      rp->blocked.v[i].pid, (unsigned long long)seconds_since(rp->blocked.v[i].since),
			      (unsigned long long)rp->blocked.v[i].ino, rp->blocked.v[i].held_by);
	print_unserved(&rp->unserved);
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
	err = report_look(&rp, argv[optind], &why);
	if (!err) {
		if (as_json)
			print_json(&rp);
		else
			print_text(&rp);
	}
	report_free(&rp);
	if (err)
		return cli_fail("%s", why.text);
	return fflush(stdout) ? cli_fail("standard output can't be written") : 0;
}

const struct command cmd_status = {"status", "show a volume, its processes and their counters", help, run};
