/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent publishes, and what its clients announce: how a process without a grant reads and writes a file through the kernel and
 * asks nobody.
 *
 * The table. ROOT/.splitfs/owners, which the agent writes and all processes of the volume map read-only: one word for all inodes with
 * the same hash.
 *
 *   bits 0..15   how many grants allow to stage bytes of such an inode, those of the dead whose logs are not recovered included
 *   bits 16..30  how many other grants allow to remember what the file is like (its size, its pages)
 *   bit 31       programs without the library have such an inode open (SFS_FEATURE_OUTSIDE)
 *   bits 32..63  a number that changes with each grant
 *
 * Behind them, on a line of its own, a word for all inodes together.
 *
 * The agent counts a grant before it gives it, and forgets it when the holder has relinked and stepped down, or has been recovered. So
 * a process that finds no stager before a call knows that the kernel's view is true. Else it asks (LOOK), and the answer says
 * at which number nobody staged the file: while that number stands nobody does.
 *
 * Bit 31. The agent sets it before such a program's open succeeds, when who stages bytes of the file has brought them into it. Who stages
 * some later looks at it when fsync returns, and every few milliseconds, and brings them in while it is set. To a library that does not
 * know of it, it is a grant more: it asks once too often.
 *
 * Claims. A process that changes a file by the kernel, without a grant, writes the inode's number into a free place of page 0 of its
 * log before, looks at the table then, and clears the place when the call has returned. The agent counts a grant first and
 * looks at the claims then, and gives no grant for an inode that another process claims. Each does a store, a full fence and a load: one
 * of them sees the other.
 */
#ifndef SFS_OWNERS_H
#define SFS_OWNERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"

#define SFS_OWNERS_WORDS       8192u
#define SFS_OWNERS_ALL	       SFS_OWNERS_WORDS /* index of the word for all inodes */
#define SFS_OWNERS_BYTES       ((SFS_OWNERS_WORDS + 512) * sizeof(uint64_t))
#define SFS_OWNERS_NAME	       "owners"
#define SFS_OWNERS_MOST	       0xffffu /* a larger count is shown as this one */
#define SFS_OWNERS_MOST_OTHERS 0x7fffu
#define SFS_OWNERS_OUTSIDE     (1ull << 31)

static inline uint32_t sfs_owners_index(uint64_t ino)
{
	return (uint32_t)(ino * SFS_HASH_FACTOR >> 51);
}
_Static_assert(SFS_OWNERS_WORDS == 1u << (64 - 51), "as many words as there are indexes");

static inline uint32_t sfs_owners_stagers(uint64_t word)
{
	return (uint32_t)word & 0xffffu;
}
/* Those that remember something of the file, the stagers among them. */
static inline bool sfs_owners_any(uint64_t word)
{
	return ((uint32_t)word & ~(uint32_t)SFS_OWNERS_OUTSIDE) != 0;
}
/* Do programs without the library have it open? */
static inline bool sfs_owners_outside(uint64_t word)
{
	return word & SFS_OWNERS_OUTSIDE;
}
static inline uint32_t sfs_owners_number(uint64_t word)
{
	return (uint32_t)(word >> 32);
}

#endif
