/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading without a lock: look, copy, look again. What is copied between sfs_look() and sfs_looked() is from one moment when the second one is
 * true; otherwise the copy is made again. A reader stores nothing, so any number of them read at the same time, and a writer
 * waits for none. What a reader looks at may be changed, unmapped or another file's at any moment: it copies inside sfs_try().
 */
#ifndef SFS_LOOK_H
#define SFS_LOOK_H

#include "files/inode.h"

static inline uint64_t sfs_look(const struct sfs_inode *in)
{
	return load_acquire(&in->flights.changes);
}

/* Out of line: has a change begun since that meets [from, to)? */
bool sfs_look_met(const struct sfs_inode *in, uint64_t seen, uint64_t from, uint64_t to);

/* Has nothing begun to change [from, to) since? */
static inline bool sfs_looked(const struct sfs_inode *in, uint64_t seen, uint64_t from, uint64_t to)
{
	uint64_t now;

	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	now = __atomic_load_n(&in->flights.changes, __ATOMIC_RELAXED);
	return likely(now / SFS_CHANGES_ONE == seen / SFS_CHANGES_ONE) || !sfs_look_met(in, seen, from, to);
}

#define SFS_VISIBLE_SHIFT 48 /* files are shorter, see SFS_FILE_MAX */

/*
 * Can this thread see the bytes below `end`? Appends of posix mode are not fenced: their bytes may still be on the way when their size can be
 * seen by another processor. The thread that made them sees them.
 */
static inline bool sfs_visible(const struct sfs_inode *in, uint64_t seen, uint64_t end)
{
	const uint64_t v = __atomic_load_n(&in->visible, __ATOMIC_RELAXED);

	return (v >> SFS_VISIBLE_SHIFT == (uint16_t)(seen / SFS_CHANGES_ONE) &&
		end <= (v & ((1ull << SFS_VISIBLE_SHIFT) - 1))) ||
	       __atomic_load_n(&in->lock.bias.owner, __ATOMIC_RELAXED) == sfs_self();
}
/* Make it so: every thread's stores are seen when it returns. */
void sfs_make_visible(struct sfs_inode *in, uint64_t seen);

#endif
