/* SPDX-License-Identifier: Apache-2.0 */
/* The crash states of a recorded run: made, recovered, checked. */
#ifndef CRASH_EXPLORE_H
#define CRASH_EXPLORE_H

#include "crash/sim.h"
#include "crash/workload.h"

/* Counters and the set of states seen, shared by the processes that explore. */
struct tally {
	uint64_t states;      /* distinct ones, recovered and checked */
	uint64_t in_recovery; /* of these: crashes inside recovery */
	uint64_t seen_again;
	uint64_t workloads; /* that make sense and were run, in all modes */
	uint64_t runs;	    /* of them: modes and providers */
	uint64_t tried;	    /* workloads of the list */
	uint64_t violations;
	uint32_t next; /* workload to take */
	uint32_t room; /* a power of two */
	uint64_t seen[];
};

/* room: of the set; a full set ends the exploration with an error. */
struct tally *tally_make(uint32_t room);

struct explore_how {
	uint32_t exhaustive; /* up to so many combinations at one point all are tried */
	uint32_t most;	     /* otherwise at most so many */
	uint32_t deep;	     /* one of so many states is crashed in recovery again; 0: none */
	uint32_t points;     /* one of so many points is looked at; 0: each */
	uint64_t seed;
	uint64_t replay;  /* only the state with this hash, in detail; 0: all */
	uint32_t stop_at; /* violations of one run */
	bool quiet;
};

void explore_init(struct tally *t);
/* States seen are new again. */
void explore_forget(void);
/* Returns the violations found in it. */
uint64_t explore_run(struct run *r, const struct explore_how *how);

/* recover.c: mount what lies in kern, recover, check. NULL, or a sentence. */
const char *recover_and_check(const struct run *r, enum crash_kind kind, uint32_t done, bool in_flight);
/* Recovery has returned before: what was written since is not touched by another one. NULL or a sentence. */
const char *recover_settled(void);
/* Recovery alone; NULL or a sentence. */
const char *recover_now(void);

#endif
