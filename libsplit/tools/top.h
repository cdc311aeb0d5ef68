/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `splitfs top`: two reports compared (top.c), and the table of it (screen.c). */
#ifndef SFS_TOP_H
#define SFS_TOP_H

#include "report.h"

struct top_row {
	const struct report_process *process;
	struct sfs_counters delta;
};

struct top {
	const struct report *before, *after;
	uint64_t ms;	      /* from one to the other */
	struct top_row *rows; /* living processes, the busiest first */
	size_t nrows;
	struct sfs_counters total;    /* of the volume */
	struct sfs_latencies latency; /* of the volume, in all modes */
	struct sfs_counters ended;    /* of it, by processes that do not live any more */
};

int top_compare(struct top *t, const struct report *before, const struct report *after, uint64_t ms, struct sfs_why *why);
void top_free(struct top *t);

/* Reads and writes that the library was asked for, and those of them that it served. */
uint64_t top_calls(const struct sfs_counters *c);
uint64_t top_served(const struct sfs_counters *c);
uint64_t top_written(const struct sfs_counters *c);
/* Snapshots, patches and swaps. */
uint64_t top_without_copy(const struct sfs_counters *c);

/* Where tables are drawn: on a terminal each over the one before. */
struct screen {
	bool tty;
	unsigned drawn; /* lines of the table before, from the cursor up */
	unsigned rows, columns;
};
void screen_init(struct screen *s);
int screen_draw(struct screen *s, const struct top *t, struct sfs_why *why);

#endif
