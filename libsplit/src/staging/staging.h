/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of one file is staged: the block table, and the region of a staging file that is the file's own.
 *
 * Staged bytes that a record names are never changed (a record may carry their checksum). A write to a staged block therefore
 * takes a new block, and only bytes beyond the end of the file in its last staged block, which no record names, are written in
 * place. A staging file is used again when every inode that pinned it has had its records retired.
 */
#ifndef SFS_STAGING_H
#define SFS_STAGING_H

#include "staging/pool.h"

struct sfs_staging {
	sfs_block *table;
	uint64_t table_blocks;
	uint64_t count; /* entries that are set */
	uint64_t first; /* blocks below have no entry */
	uint64_t last;	/* blocks from here on have no entry */

	/*
	 * The block staged last, and the bytes of it that records name: the others were carried along and may still be
	 * written, so that a program overwriting a block piece by piece takes one staged block and not one per piece.
	 */
	uint64_t hot;
	sfs_block hot_block;
	uint32_t hot_from;
	uint32_t hot_to;

	/* Region of a staging file that belongs to this file and has not been written. */
	uint32_t region_chunk;
	uint32_t region_next;
	uint32_t region_end;
	uint32_t region_want;
	uint32_t region_taken;		      /* blocks of all regions since the file was last retired */
	uint32_t number;		      /* changes when the region goes */
	uint32_t run;			      /* blocks that ran on since some were last left out to be congruent */
	uint64_t pinned[SFS_CHUNKS_MAX / 64]; /* chunks that it pins, under the pool's lock */
};

/* Any thread: a write may enter others meanwhile. */
static inline sfs_block sfs_block_get(const struct sfs_staging *st, uint64_t blk)
{
	return blk >= __atomic_load_n(&st->first, __ATOMIC_RELAXED) && blk < __atomic_load_n(&st->last, __ATOMIC_RELAXED)
		       ? __atomic_load_n(&st->table[blk], __ATOMIC_RELAXED)
		       : 0;
}
/* Is any block of [pos, pos + n) staged? n > 0. */
bool sfs_staging_any(const struct sfs_staging *st, uint64_t pos, uint64_t n);
/* Room for entries of `blocks` blocks. Growing moves the table; only touched pages of it are resident. */
int sfs_staging_table(struct sfs_staging *st, uint64_t blocks);
void sfs_staging_set(struct sfs_staging *st, uint64_t blk, sfs_block b);
#define SFS_ANYWHERE UINT64_MAX
/*
 * Up to *n contiguous blocks of one staging file; returns their first entry, 0 with *err set: -ENOBUFS: lease a staging file and start
 * again; -ENOSPC. at: the block of the file for which they are, if the file is written on from there; on DAX they are congruent to it modulo 2 MiB, where that
 * leaves few blocks out, so that the file can be mapped by pages of that size when they have been relinked. SFS_ANYWHERE: they need not be.
 */
sfs_block sfs_staging_alloc(struct sfs_pool *pool, struct sfs_staging *st, uint64_t at, uint32_t *n, int *err);
/* Those blocks, taken when st->number was `number`, were not used: they are the region's again, if they are its last ones. */
void sfs_staging_untake(struct sfs_staging *st, uint32_t number, sfs_block b, uint32_t n);
/*
 * So many blocks of a staging file, which the program has filled, are about to be the file's, as those of its region are. -ENOSPC:
 * relink has no room for them.
 */
int sfs_staging_adopt(struct sfs_pool *pool, struct sfs_staging *st, uint32_t chunk, uint32_t blocks);
/*
 * The file's records are retired: it lets go of its region and of every staging file they named, but for those in `keep` (NULL: none), which are
 * being copied to: `kept` blocks, which go on counting as taken.
 */
void sfs_staging_release(struct sfs_pool *pool, struct sfs_staging *st, const uint64_t *keep, uint32_t kept);
/* Forget every entry. */
void sfs_staging_clear(struct sfs_staging *st);
#define SFS_SPARE_TABLES 8
extern void *sfs_spare_tables[SFS_SPARE_TABLES];
/* And the table goes. The file is of so many blocks. */
void sfs_staging_end(struct sfs_staging *st, uint64_t blocks);
/* In the child of a fork: the staging files are the parent's. */
void sfs_staging_forget(struct sfs_staging *st);

#endif
