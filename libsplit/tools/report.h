/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a volume say of it and of the processes that use it; asks nobody and waits for nobody. */
#ifndef SFS_REPORT_H
#define SFS_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control/blocked.h"
#include "control/unserved.h"
#include "control/memory.h"
#include "control/store.h"
#include "control/versions.h"
#include "json.h"

struct report_process {
	struct sfs_lease lease;
	struct sfs_counters counters;
	struct sfs_latencies latency;
	uint8_t protection; /* enum sfs_protection */
	bool alive;
};

struct report {
	struct sfs_root root; /* its descriptors are closed: a report keeps no file system mounted */
	enum sfs_memory memory;
	char provider[16];
	int agent_pid;
	uint64_t pool_bytes, free_bytes, pool_files;
	struct report_process *processes;
	size_t nprocesses;
	struct sfs_totals totals; /* with the counters of the processes */
	struct sfs_blocked_list blocked;
	struct sfs_refused refused;
	struct sfs_unserved_list unserved; /* what is done with programs without the library */
};

/*
 * Look at the volume. Start with zeros; a provider that is there already is kept while no agent says another one, so that a second
 * look does not try the file system again. report_free() also after an error.
 */
int report_look(struct report *rp, const char *path, struct sfs_why *why);
void report_free(struct report *rp);

/* The memory's word and what it means, in one line. */
const char *report_memory(enum sfs_memory memory);
/* "posix", "sync", "strict", or "unknown". */
const char *report_mode(const struct report_process *p);
/* "off", "on", "cannot": it was asked for and there is no protection key. */
const char *report_protection(const struct report_process *p);
void report_json_counters(struct json *j, const char *key, const struct sfs_counters *c);
/*
 * What the timed calls of a kind say: how many there are, and the time in ns that `percent` of them did not exceed, by the bounds of
 * the buckets; 0 without any.
 */
uint64_t report_timed(const struct sfs_latencies *l, enum sfs_latency_kind kind);
uint64_t report_percentile(const struct sfs_latencies *l, enum sfs_latency_kind kind, unsigned percent);
/* {"append":{"timed":n,"p50_ns":n,"p99_ns":n},...}, of kinds that were timed. */
void report_json_percentiles(struct json *j, const char *key, const struct sfs_latencies *l);
/* {"strict":{"append":{"timed":n,"sum_ns":n,"buckets":[[bound_ns,n],...]},...},...}, of what was timed. */
void report_json_latency(struct json *j, const char *key, const struct sfs_latencies latency[SFS_MODES]);
/* "    append_p50_p99     320 ns / 1.5 us", a line for each kind that was timed. */
void report_print_percentiles(FILE *out, const struct sfs_latencies *l);
/* "append 320 ns / 1.5 us, ...": p50 and p99 of each kind. "" when nothing was timed. */
#define REPORT_LATENCY_TEXT 160
void report_latency_text(char out[REPORT_LATENCY_TEXT], const struct sfs_latencies *l);
void report_json_pool(struct json *j, const struct report *rp);

#endif
