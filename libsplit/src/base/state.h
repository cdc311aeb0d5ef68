/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A life is an enum with a table of the states that may follow each: next[from] has a bit for each `to`. Builds with SFS_CHECK_STATES (those
 * with sanitizers) end at a step that the table does not have; others compile to nothing.
 */
#ifndef SFS_STATE_H
#define SFS_STATE_H

#include <stdint.h>

#define SFS_TO(state) (1u << (state))

static inline void sfs_check_next(const uint8_t *next, unsigned from, unsigned to)
{
#ifdef SFS_CHECK_STATES
	if (!(next[from] & SFS_TO(to)))
		__builtin_trap();
#else
	(void)next;
	(void)from;
	(void)to;
#endif
}

#endif
