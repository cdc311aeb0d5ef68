/* SPDX-License-Identifier: Apache-2.0 */
#include "io/commit.h"

#include <errno.h>

#include "io/offset.h"
#include "pm/pm.h"

void sfs_bytes_first(void)
{
#ifndef __x86_64__
	pm_fence();
#endif
}

void sfs_commit_gap(struct sfs_inode *in, uint64_t pos)
{
	const uint64_t blk = in->size / SFS_BLOCK;
	const sfs_block b = in->size % SFS_BLOCK ? sfs_block_get(&in->staging, blk) : 0;
	const uint64_t to = pos < (blk + 1) * SFS_BLOCK ? pos : (blk + 1) * SFS_BLOCK;

	if (b && pos > in->size)
		pm_zero(sfs_block_addr(&in->vol->pool, b) + in->size % SFS_BLOCK, to - in->size);
}

/* Is it still what was planned? An append goes to the end of the file as it is now, if its bytes fit there. */
static bool holds(struct sfs_attempt *a)
{
	struct sfs_inode *in = a->in;
	struct sfs_staged *st = &a->st;

	/* From memory of ours it is made in the section that has ended the privileges; a file that keeps them has them again. */
	if (!sfs_inode_served(in) || sfs_kernel_busy(in) || (in->privileged && !a->mem) ||
	    sfs_too_far(a->append ? in->size + st->n : st->pos + st->n))
		return false;
	if (a->append && st->pos != in->size) {
		if (a->head > 0 || a->mem || (in->size - st->pos) % SFS_BLOCK)
			return false;
		sfs_staged_move(st, in->size);
		a->at = (off_t)st->pos;
	}
	/* Another thread has written at the offset of this description, or moved it. */
	if (a->at_offset && !a->append && !a->reserved && sfs_offset_now(a) != a->pos)
		return false;
	return sfs_staged_holds(in, st, a->head) && !sfs_far_apart(in, st->pos);
}

/* Room in the block table. Readers must not look at one that has moved away. */
static int table(struct sfs_inode *in, uint64_t blocks)
{
	int r;

	if (likely(blocks <= in->staging.table_blocks))
		return 0;
	if (in->flights.changes & SFS_CHANGES_ALONE)
		return sfs_staging_table(&in->staging, blocks);
	sfs_change_begin(in, 0, UINT64_MAX, SFS_CHANGES_ALONE);
	r = sfs_staging_table(&in->staging, blocks);
	sfs_change_end(in, SFS_CHANGES_ALONE);
	return r;
}

/* The record of an append that grows with those that follow it: see struct sfs_grow. */
static void grow_from(struct sfs_inode *in, const struct sfs_staged *st, uint32_t crc)
{
	struct sfs_grow *g = &in->grow;

	g->record = &in->vol->log.records[st->slot];
	g->crc = crc;
	g->base = sfs_block_addr(&in->vol->pool, st->ext[0].b) + st->pos % SFS_BLOCK;
	g->at = g->dirty = g->base + st->n;
	g->limit = g->at + -(st->pos + st->n) % SFS_BLOCK;
}

/* The next locked instruction waits until all stores have their lines: fetch those of the next small append now. */
static void prefetch(const struct sfs_volume *vol, const struct sfs_staged *st)
{
	const struct sfs_extent *e = &st->ext[st->extents - 1];
	const uint8_t *end = sfs_block_addr(&vol->pool, e->b) + e->off % SFS_BLOCK + e->len;

	for (size_t i = 0; i < st->n; i += 64)
		__builtin_prefetch(end + SFS_PREFETCH * st->n + i, 1);
}

/* From here on the write is part of the file. */
static void enter(struct sfs_inode *in, const struct sfs_staged *st, uint64_t size)
{
	const uint64_t from = st->pos / SFS_BLOCK * SFS_BLOCK, to = (st->pos + st->n + SFS_BLOCK - 1) / SFS_BLOCK * SFS_BLOCK;
	/* Blocks behind the end are nobody's to see before the size says so; others, readers may be looking at. */
	const bool seen = from < in->size && !(in->flights.changes & SFS_CHANGES_ALONE);

	sfs_stores_void(in, from, to);
	if (seen)
		sfs_change_begin(in, from, to, SFS_CHANGES_ALONE);
	sfs_staged_enter(in, st);
	if (seen)
		sfs_change_end(in, SFS_CHANGES_ALONE);
	__atomic_store_n(&in->size, size, __ATOMIC_RELEASE);
}

/* posix promises that an overwrite survives when it returns: here, as everything before it, by a COMMIT. */
static bool commits(const struct sfs_attempt *a)
{
	const struct sfs_volume *vol = a->in->vol;

	return vol->dax && vol->mode == SFS_POSIX && a->st.pos < a->in->size;
}

int sfs_commit_begin(struct sfs_attempt *a)
{
	struct sfs_inode *in = a->in;
	struct sfs_staged *st = &a->st;
	int r;

	sfs_grow_end(in); /* it says which bytes of the last block are named */
	if (!holds(a))
		return SFS_AGAIN;
	r = commits(a) ? sfs_commit_base(in) : 0;
	if (r == 0)
		r = table(in, (st->pos + st->n + SFS_BLOCK - 1) / SFS_BLOCK);
	if (r < 0)
		return r;
	sfs_stage_live(in);
	r = sfs_staged_slots(in, st, commits(a));
	return r == 0 ? sfs_staged_carry(in, st) : r;
}

/* Of a write from a buffer, the bytes that nobody has copied. */
static uint64_t adopted(const struct sfs_staged *st)
{
	uint64_t n = 0;

	for (int i = 0; i < st->extents; i++)
		n += st->ext[i].there ? st->ext[i].len : 0;
	return n;
}

ssize_t sfs_commit_end(struct sfs_attempt *a)
{
	struct sfs_inode *in = a->in;
	struct sfs_volume *vol = in->vol;
	struct sfs_staged *st = &a->st;
	const bool commit = commits(a);
	const uint64_t size = st->pos + st->n > in->size ? st->pos + st->n : in->size;
	/* Behind what a buffer has nothing of the file may be put. */
	const bool grows =
		!a->buffer && !st->fenced && st->extents == 1 && st->pos == in->size && !sfs_near_limit(st->pos + st->n);
	uint32_t crc;

	sfs_commit_gap(in, st->pos);
	if (a->head > 0)
		sfs_staged_copy_head(vol, st, a->bounce, a->head);
	crc = sfs_staged_records(in, st, size, grows);
	if (st->fenced)
		pm_fence();
	else if (commit)
		sfs_commit_at(in, st->slot + (uint32_t)st->extents);
	sfs_count_write(&vol->log, size > in->size, st->n);
	enter(in, st, size);
	if (a->at_offset && !a->reserved)
		sfs_offset_set(a, (off_t)(st->pos + st->n));
	count(vol, staged_bytes, st->n);
	if (unlikely(a->buffer))
		count_later(vol, adopted_bytes, adopted(st));
	if (grows)
		grow_from(in, st, crc);
	else if (st->n <= SFS_STORE_MAX)
		prefetch(vol, st);
	in->touched = in->busy = true;
	if (!st->fenced && !commit && in->counted.records == RECORDS_DURABLE)
		sfs_records_set(&in->counted, RECORDS_BOTH);
	if (unlikely(!vol->dirty))
		sfs_service_wake(vol);
	a->last = (off_t)st->n;
	return (ssize_t)st->n;
}
