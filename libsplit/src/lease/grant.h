/* SPDX-License-Identifier: Apache-2.0 */
/* Who owns a file now, as this process knows it; part of an inode, under its lock. */
#ifndef SFS_GRANT_H
#define SFS_GRANT_H

#include <stdbool.h>
#include <stdint.h>

#include "format/proto.h"

#define SFS_REVOKES_MAX 8

/* What the kernel has done for us without a grant (files/unheld.c); about right where several threads do it. */
struct sfs_unheld {
	uint32_t writes, reads, forced;
	uint32_t waits; /* calls until the next try at a grant may pay */
	uint32_t refused;
	uint64_t written, read;
	int64_t tried; /* seconds */
};

struct sfs_grant {
	enum sfs_delegation deleg;
	/*
	 * The agent could not be asked: it may give the file to another process. SHARED, and asked again before each call, so that whoever
	 * has staged something of it relinks first.
	 */
	bool untold;
	bool at_once; /* EXCLUSIVE for one write, which is in the file before it returns (SFS_ACQ_AT_ONCE) */
	bool acquiring; /* the lock's holder waits for its turn to ask the agent, with nothing staged, and will take what it gets */
	uint8_t revoke;	  /* 1 + the delegation the agent wants us to go down to, when that could not be done yet */
	uint32_t revokes; /* how often it has asked; each wants its answer. The service thread's, like their numbers */
	uint64_t revoke_numbers[SFS_REVOKES_MAX];
	bool watched; /* EXCLUSIVE, and who comes without the library is let in when we have stepped down: snapshots may be taken */
	bool held;	 /* the agent has a hold of ours: RELEASE is due */
	bool asking;	 /* a thread asks for the grant: no claim is made meanwhile; atomic */
	uint64_t looked; /* the answer to the last question: lease/ask.h */
};

#endif
