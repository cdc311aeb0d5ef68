/* SPDX-License-Identifier: Apache-2.0 */
/* What is done with all locks held: blocks, records, block tables. */
#include <errno.h>

#include "io/commit.h"
#include "io/together.h"
#include "pm/pm.h"

/* ---- blocks */

/* Does a range of this file touch the block? *whole: one has all of it. */
static bool touched(const struct sfs_together *t, const struct sfs_inode *in, uint64_t blk, bool *whole)
{
	bool any = false;

	*whole = false;
	for (int i = 0; i < t->parts; i++) {
		const struct sfs_part *p = &t->part[i];
		const uint64_t from = blk * SFS_BLOCK, to = from + SFS_BLOCK;

		if (p->in != in || p->off >= to || p->off + p->len <= from)
			continue;
		any = true;
		*whole = *whole || (p->off <= from && p->off + p->len >= to);
	}
	return any;
}

/* The first block from `blk` on that a range of the file touches; UINT64_MAX: none. */
static uint64_t next_touched(const struct sfs_together *t, const struct sfs_inode *in, uint64_t blk)
{
	uint64_t next = UINT64_MAX;

	for (int i = 0; i < t->parts; i++) {
		const struct sfs_part *p = &t->part[i];
		const uint64_t first = p->off / SFS_BLOCK, last = (p->off + p->len - 1) / SFS_BLOCK;

		if (p->in != in || last < blk)
			continue;
		if ((first > blk ? first : blk) < next)
			next = first > blk ? first : blk;
	}
	return next;
}

/* So many touched blocks follow each other. */
static uint64_t run_of(const struct sfs_together *t, const struct sfs_inode *in, uint64_t blk)
{
	uint64_t n = 1;

	while (next_touched(t, in, blk + n) == blk + n)
		n++;
	return n;
}

static int place(struct sfs_together *t, struct sfs_party *f)
{
	struct sfs_staged *st = &f->st;
	int err = 0;

	f->size = f->in->size;
	for (int i = 0; i < t->parts; i++)
		if (t->part[i].in == f->in && t->part[i].off + t->part[i].len > f->size)
			f->size = t->part[i].off + t->part[i].len;
	*st = (struct sfs_staged){.pos = next_touched(t, f->in, 0) * SFS_BLOCK, .fenced = true};
	for (uint64_t blk = st->pos / SFS_BLOCK; blk != UINT64_MAX; blk = next_touched(t, f->in, blk)) {
		const uint64_t run = run_of(t, f->in, blk), most = 1u << 30;
		uint32_t n = (uint32_t)(run < most ? run : most);
		sfs_block b;
		uint64_t end;

		if (st->extents == SFS_EXTENTS_MAX)
			return -E2BIG;
		b = sfs_staging_alloc(&t->vol->pool, &f->in->staging, SFS_ANYWHERE, &n, &err);
		if (!b)
			return err;
		end = (blk + n) * SFS_BLOCK < f->size ? (blk + n) * SFS_BLOCK : f->size;
		st->ext[st->extents++] = (struct sfs_extent){.off = blk * SFS_BLOCK, .len = end - blk * SFS_BLOCK, .b = b};
		st->n = (size_t)(end - st->pos);
		blk += n;
	}
	t->records += (uint32_t)st->extents;
	return 0;
}

/* The block as it was, but for what the ranges say, in their order. */
static int fill(const struct sfs_together *t, struct sfs_inode *in, uint64_t blk, uint8_t *dst)
{
	const uint64_t from = blk * SFS_BLOCK, to = from + SFS_BLOCK;
	bool whole;
	int r = 0;

	touched(t, in, blk, &whole);
	if (!whole)
		r = sfs_staged_keep(in, blk, 0, SFS_BLOCK, dst);
	for (int i = 0; r == 0 && i < t->parts; i++) {
		const struct sfs_part *p = &t->part[i];
		const uint64_t a = p->off > from ? p->off : from, b = p->off + p->len < to ? p->off + p->len : to;

		if (p->in == in && a < b)
			pm_copy(dst + (a - from), p->bytes + (a - p->off), b - a);
	}
	return r;
}

static int fill_all(struct sfs_together *t, struct sfs_party *f)
{
	int r = 0;

	for (int i = 0; i < f->st.extents; i++) {
		const struct sfs_extent *e = &f->st.ext[i];
		const uint64_t first = e->off / SFS_BLOCK, end = (e->off + e->len + SFS_BLOCK - 1) / SFS_BLOCK;

		for (uint64_t blk = first; r == 0 && blk < end; blk++)
			r = fill(t, f->in, blk, sfs_block_addr(&t->vol->pool, e->b + (blk - first)));
	}
	return r;
}

/* ---- records */

static void record(struct sfs_together *t)
{
	uint32_t at = 0;

	for (int k = 0; k < t->files; k++) {
		struct sfs_party *f = &t->file[k];

		f->st.slot = t->slot + at;
		for (int i = 0; i < f->st.extents; i++, at++) {
			const struct sfs_extent *e = &f->st.ext[i];
			struct sfs_record rec = sfs_record_write(f->in, e->off, e->len, e->b,
								 SFS_REC_DURABLE | (t->files > 1 ? SFS_REC_FILES : 0));

			rec.group_pos = (uint8_t)at;
			rec.group_left = (uint8_t)(t->records - 1 - at);
			rec.size = f->size;
			sfs_log_write(&t->vol->log, t->slot + at, rec);
		}
	}
}

/* Slots behind all that any of the files has: a later DONE or write of one of them is to have a higher one than this. */
static int reserve(struct sfs_together *t)
{
	if (t->records > SFS_GROUP_MAX ||
	    t->records + SFS_LOG_HEADROOM >= __atomic_load_n(&t->vol->log.slots_max, __ATOMIC_RELAXED))
		return -E2BIG;
	for (int k = 0; k < t->files; k++)
		sfs_log_drop_slots(t->file[k].in);
	return sfs_log_reserve(&t->vol->log, t->records, false, &t->slot);
}

static void enter(struct sfs_together *t, struct sfs_party *f)
{
	struct sfs_inode *in = f->in;

	sfs_stores_void(in, 0, UINT64_MAX);
	sfs_staged_enter(in, &f->st);
	sfs_count_write(&t->vol->log, f->size > in->size, f->st.n);
	count(t->vol, staged_bytes, f->st.n);
	__atomic_store_n(&in->size, f->size, __ATOMIC_RELEASE);
	in->touched = in->busy = true;
	/* posix: these count after a power loss, as what a COMMIT stands behind, and there are no others (swap.c). */
	if (t->vol->dax)
		sfs_records_set(&in->counted, RECORDS_DURABLE);
}

int sfs_together_write(struct sfs_together *t)
{
	int r = 0;

	t->records = 0;
	for (int k = 0; r == 0 && k < t->files; k++) {
		struct sfs_party *f = &t->file[k];

		sfs_stage_live(f->in);
		r = place(t, f);
		if (r == 0)
			r = sfs_staging_table(&f->in->staging, (f->size + SFS_BLOCK - 1) / SFS_BLOCK);
	}
	if (r == 0)
		r = reserve(t);
	for (int k = 0; r == 0 && k < t->files; k++)
		r = fill_all(t, &t->file[k]);
	if (r < 0)
		return r;
	for (int k = 0; k < t->files; k++)
		sfs_commit_gap(t->file[k].in, t->file[k].size);
	pm_fence();
	record(t);
	pm_fence();
	for (int k = 0; k < t->files; k++)
		enter(t, &t->file[k]);
	if (unlikely(!t->vol->dirty))
		sfs_service_wake(t->vol);
	return 0;
}
