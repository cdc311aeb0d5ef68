/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread of its own that looks what processes without the library have open: /proc of one that hangs in exec answers as late as the file
 * system for which it waits. Until the answer is there the process has the file.
 */
#ifndef SFS_AGENT_LOOKER_H
#define SFS_AGENT_LOOKER_H

#include "control/store.h"

#define LOOKER_OPENS 8u
#define LOOKER_FILES 64u
#define NOWHERE	     1 /* an address that is in no code: the program that left a file has gone already */

/*
 * An open that was let go and has perhaps not ended: between the agent's answer and the descriptor in the table the thread may be held up as
 * long as you like (its turn does not come, another fanotify group, a long O_TRUNC).
 */
struct under_way {
	uint32_t number;
	int tid;
	struct sfs_call call; /* in which it stood */
	uint64_t ran;	      /* sfs_thread_ran() at that time */
};

/* About which opener of which file. */
struct looked_for {
	uint64_t ino;
	uint32_t gen;
	int pid;	 /* 0: all processes that have the file */
	uint32_t number; /* of the opener's last open: an answer from before another one says nothing */
	/* Not 0: has another program with the library taken the place of the one with this address in it? */
	unsigned long left_from;
};

#define LOOKER_FOUND 64u

struct look_file {
	uint64_t ino;
	uint32_t gen;
};

struct look_for {
	struct looked_for who;
	uint64_t dev; /* of the volume */
	/* If there are any: which processes have one of these, as far as their descriptors say; who does not matter. */
	uint32_t nfiles;
	struct look_file file[LOOKER_FILES];
	struct sfs_tables tables;
	uint32_t n;
	struct under_way open[LOOKER_OPENS];
};

struct look_answer {
	struct looked_for who;
	uint32_t n; /* opens that have ended, by number; if they are not all it was not looked at what is open */
	uint32_t ended[LOOKER_OPENS];
	bool left_to_library; /* it has: that one asks about the file before it uses it */
	enum sfs_opened has;  /* UNKNOWN of all processes: there are more */
	uint32_t nfound;
	struct look_found {
		int pid;
		uint32_t file; /* by its place in the question */
		bool writes;
	} found[LOOKER_FOUND];
	uint32_t nfiles;
	struct look_file file[LOOKER_FILES];
	uint64_t us; /* how long it took, of those */
};

struct looker {
	int in, out; /* of the loop: where it asks, -1: there is none, and where the answers come from */
};

/* 0, or a negative errno value. */
int looker_start(struct looker *l);
/* False: it has too much to do. */
bool looker_ask(const struct looker *l, const struct look_for *f);
/* False: there is no answer. */
bool looker_hears(const struct looker *l, struct look_answer *r);
/* The thread ends when it comes back from where it looks. */
void looker_stop(struct looker *l);

#endif
