/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `splitfs advise`: what was counted (../advise/advise.h), what calls cost here, and what follows from the two. */
#ifndef SFS_TOOLS_ADVISE_H
#define SFS_TOOLS_ADVISE_H

#include <limits.h>

#include "../advise/advise.h"
#include "cli.h"
#include "json.h"

enum world { KERNEL, POSIX, SYNC, STRICT, WORLDS };
extern const char *const world_names[WORLDS];

/* Nanoseconds of CPU time. */
#define COST_SIZES 3
extern const uint32_t cost_bytes[COST_SIZES];
struct costs {
	double op[ADV_OPS][COST_SIZES];
	double fsync, fsync_byte; /* of one, and for each byte written since the one before */
	/* As the mode itself asks for grants: */
	double name;	  /* a file made, and removed again: each of the two */
	double attribute; /* the times of a file that has just been written */
	double file;	  /* a file opened, written once and closed */
	double lock;	  /* a POSIX lock taken or given back */
	double pass;	  /* a write of 64 bytes to a file with a lock, which the kernel keeps in posix */
	double start;	  /* a program that does so */
	double grant;	  /* a file opened, written once and closed, with a grant for it */
};
struct cost_table {
	bool measured;
	struct costs world[WORLDS];
};

/* Where the files lie. */
struct advise_place {
	char dir[PATH_MAX];
	bool dax;
	char provider[16];
};

/* Finds out about DIR, in a directory of our own in it that is gone afterwards; with a table also what calls cost there (seconds). */
int advise_measure(struct advise_place *place, struct cost_table *table, struct sfs_why *why);
/*
 * `splitfs advise --probe DIR`, `--probe-files DIR`, `--probe-once FILE`: what advise_measure() runs, without and with the library; the first one
 * with a grant for each file.
 */
int advise_probe(const char *dir);
int advise_probe_files(const char *dir);
int advise_probe_once(const char *file);

/* What follows. */
struct estimate {
	bool known;
	double calls; /* seconds that the calls on the fast path took in the kernel */
	double saved; /* of those; less than 0: the library takes longer */
};
struct advice {
	const struct adv_report *counts;
	const struct advise_place *place;
	const struct cost_table *table;
	const char *command;
	double seconds;		       /* the run's, with the counting */
	double cpu;		       /* seconds of all its processes */
	enum adv_program command_kind; /* the command itself */
	enum world mode;	       /* what it needs for what it does */
	char why[256];
	struct estimate estimates[WORLDS];
};
/* Fills mode, why and estimates. */
void advise_conclude(struct advice *a);
/* How the library behaves in a mode, here or on persistent memory. */
enum adv_view advise_view(const struct advice *a, enum world mode, bool pmem);
struct adv_cell advise_served(const struct adv_seen *s, enum adv_op op);
/* All of it: what the two do together. */
struct advise_sum {
	struct adv_cell served, all;
};
struct advise_sum advise_sum(const struct adv_seen *s);

void advise_text(FILE *out, const struct advice *a);
void advise_text_costs(FILE *out, const struct advise_place *place, const struct cost_table *t);
void advise_json(struct json *j, const struct advice *a);
void advise_json_costs(struct json *j, const struct cost_table *t);

#endif
