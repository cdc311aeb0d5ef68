/* SPDX-License-Identifier: Apache-2.0 */
/* Who owns a file now, as this process knows it; part of an inode, under its lock. */
#ifndef SFS_GRANT_H
#define SFS_GRANT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/state.h"
#include "format/proto.h"

#define SFS_REVOKES_MAX 8

/* What the kernel has done for us without a grant (files/unheld.c); about right where several threads do it. */
struct sfs_unheld {
	uint32_t writes, reads, forced;
	uint32_t waits; /* calls until the next try at a grant may pay */
	uint32_t refused;
	uint32_t expected; /* granted because it is expected to be forced twice: 1 and how often it has been, or 0 */
	uint64_t written, read;
	int64_t tried; /* seconds */
};

/*
 *   state            who serves the file                                the agent has a hold of ours
 *   GRANT_NONE       the kernel, after a look at the table if there     no
 *                    is one
 *   GRANT_QUEUED     as NONE; it is asked for, our turn is to come      yes
 *   GRANT_KEPT       as NONE; it is given up                            yes, until the file is closed
 *   GRANT_UNTOLD     the kernel. The agent could not be asked, and is   no
 *                    asked again before each call: it may give the
 *                    file to another process, which relinks then
 *   GRANT_SHARED     the kernel, for all who have it open               yes
 *   GRANT_ONCE       this process, for one write, which is in the       yes
 *                    file before it returns (SFS_ACQ_AT_ONCE)
 *   GRANT_EXCLUSIVE  this process                                       yes
 *   GRANT_WATCHED    this process, and who comes without the library    yes
 *                    is let in when it has stepped down: snapshots
 *                    may be taken
 *
 * The answer to a question leads to any of NONE, QUEUED, UNTOLD, SHARED, ONCE and EXCLUSIVE; sfs_grant_next has what else may follow.
 */
enum sfs_grant_state {
	GRANT_NONE,
	GRANT_QUEUED,
	GRANT_KEPT,
	GRANT_UNTOLD,
	GRANT_SHARED,
	GRANT_ONCE,
	GRANT_EXCLUSIVE,
	GRANT_WATCHED
};

#define SFS_GRANT_ANSWERS                                                                                                      \
	(SFS_TO(GRANT_NONE) | SFS_TO(GRANT_QUEUED) | SFS_TO(GRANT_UNTOLD) | SFS_TO(GRANT_SHARED) | SFS_TO(GRANT_ONCE) |        \
	 SFS_TO(GRANT_EXCLUSIVE))
static const uint8_t sfs_grant_next[] = {
	[GRANT_NONE] = SFS_GRANT_ANSWERS,
	[GRANT_QUEUED] = SFS_GRANT_ANSWERS,
	[GRANT_KEPT] = SFS_GRANT_ANSWERS,
	[GRANT_UNTOLD] = SFS_GRANT_ANSWERS | SFS_TO(GRANT_KEPT),
	[GRANT_SHARED] = SFS_GRANT_ANSWERS | SFS_TO(GRANT_KEPT),
	[GRANT_ONCE] = SFS_GRANT_ANSWERS | SFS_TO(GRANT_KEPT),
	[GRANT_EXCLUSIVE] = SFS_GRANT_ANSWERS | SFS_TO(GRANT_KEPT) | SFS_TO(GRANT_WATCHED),
	[GRANT_WATCHED] = SFS_GRANT_ANSWERS | SFS_TO(GRANT_KEPT),
};

struct sfs_grant {
	enum sfs_grant_state state;
	unsigned asked; /* GRANT_QUEUED: SFS_ACQ_*; when its turn has come the same is asked again, or the turn would be lost */
	bool acquiring; /* the lock's holder waits for its turn to ask the agent, with nothing staged, and will take what it gets */
	uint8_t revoke;	  /* 1 + the delegation the agent wants us to go down to, when that could not be done yet */
	uint32_t revokes; /* how often it has asked; each wants its answer. The service thread's, like their numbers */
	uint64_t revoke_numbers[SFS_REVOKES_MAX];
	bool asking;	 /* a thread asks for the grant: no claim is made meanwhile; atomic */
	uint64_t looked; /* the answer to the last question: lease/ask.h */
};

static inline void sfs_grant_set(struct sfs_grant *g, enum sfs_grant_state state)
{
	sfs_check_next(sfs_grant_next, g->state, state);
	__atomic_store_n(&g->state, state, __ATOMIC_RELAXED);
}

/* In words of the protocol. Also without the lock, for a guess. */
static inline enum sfs_delegation sfs_grant_deleg(const struct sfs_grant *g)
{
	const enum sfs_grant_state state = __atomic_load_n(&g->state, __ATOMIC_RELAXED);

	return state >= GRANT_ONCE ? SFS_DELEG_EXCLUSIVE : state >= GRANT_UNTOLD ? SFS_DELEG_SHARED : SFS_DELEG_NONE;
}

#endif
