/* SPDX-License-Identifier: GPL-2.0 */
/* Pairs of files in pieces, for relinks that are made to fail. */
#ifndef FAULTS_H
#define FAULTS_H

#include "space.h"

struct shape {
	const char *what;
	unsigned int extents, length; /* of the donor: extents of `length` blocks with a hole of one behind each */
	unsigned int old;	      /* extents of the target */
	unsigned int flags;
	unsigned int owner; /* of the target: a user and group of that number */
	unsigned int each;  /* of so many calls every one fails, of those behind them one in `stride` */
	unsigned int stride;
};

struct fault_pair {
	struct file donor, target;
	struct ext4_relink r;
	uint64_t donor_blocks, target_blocks;
};

struct fault_pair fault_pair_new(const struct shape *s, const char *donor, const char *target);
/* A block of each is dirty, one that is allocated and not unwritten. */
void fault_pair_touch(const struct shape *s, struct fault_pair *p, unsigned int tag);

/* Breaks a relink so that it cannot be undone; a case that is skipped where it does not make so many calls. */
void break_relink(unsigned int number, unsigned int kinds, unsigned int call, unsigned int again);
/* What is left of it: all of what was, or, where that could not be, nothing of anybody else's. */
void look_at_broken(bool undone);

#endif
