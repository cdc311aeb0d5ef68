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
void report_json_counters(struct json *j, const char *key, const struct sfs_counters *c);
void report_json_pool(struct json *j, const struct report *rp);

#endif
