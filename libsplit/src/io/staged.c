/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a staged write. */
#include "io/staged.h"

#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/sys.h"
#include "pm/pm.h"

void sfs_copy_in(uint8_t *dst, struct sfs_cursor *c, size_t n, bool durable)
{
	while (n > 0) {
		size_t got;
		const void *src = sfs_cursor_next(c, n, &got);

		if (!durable && got < SFS_STORE_MAX)
			pm_store(dst, src, got);
		else
			pm_copy(dst, src, got);
		dst += got;
		n -= got;
	}
}

/* As sfs_copy_in(), durable, with the checksum. Short pieces are gathered: storing to a line that is being written back takes its time. */
static uint32_t copy_in_crc(uint32_t crc, uint8_t *dst, struct sfs_cursor *c, size_t n)
{
	uint8_t gathered[SFS_STORE_MAX];

	while (n > 0) {
		size_t got;
		const void *src = sfs_cursor_next(c, n, &got);

		if (got < n && got < sizeof(gathered)) {
			const size_t most = n < sizeof(gathered) ? n : sizeof(gathered);

			memcpy(gathered, src, got);
			for (size_t some = got; some < most; some += got) {
				src = sfs_cursor_next(c, most - some, &got);
				memcpy(gathered + some, src, got);
			}
			src = gathered;
			got = most;
		}
		crc = pm_copy_crc(crc, dst, src, got);
		dst += got;
		n -= got;
	}
	return crc;
}

int sfs_staged_keep(struct sfs_inode *in, uint64_t blk, uint32_t from, uint32_t to, uint8_t *dst)
{
	const sfs_block old = sfs_block_get(&in->staging, blk);
	uint8_t buf[SFS_BLOCK];
	const uint64_t off = blk * SFS_BLOCK + from;
	int r;

	if (from >= to)
		return 0;
	if (old) {
		/* Bytes behind the end of the file are not content. */
		const uint64_t end = in->size > off ? in->size - off : 0;
		const uint32_t have = end < to - from ? (uint32_t)end : to - from;

		pm_copy(dst + from, sfs_block_addr(&in->vol->pool, old) + from, have);
		pm_zero(dst + from + have, to - from - have);
		return 0;
	}
	/* By the kernel and not from the window: somebody without the library may just have truncated the file (copytruncate). */
	r = sfs_read_kernel(in, buf, off, to - from);
	if (r == 0)
		pm_copy(dst + from, buf, to - from);
	return r;
}

/*
 * May bytes [pos, end) be written into the block where pos's block is staged? Only bytes that no record names: behind the end of
 * the file, or carried along (see `hot`). end lies in the same block or the write goes on behind it.
 */
static bool continues(const struct sfs_inode *in, uint64_t pos, uint64_t end)
{
	const uint64_t blk = pos / SFS_BLOCK;
	const uint32_t from = pos % SFS_BLOCK;
	const uint32_t to = end - blk * SFS_BLOCK < SFS_BLOCK ? (uint32_t)(end - blk * SFS_BLOCK) : SFS_BLOCK;

	if (from == 0 && to == SFS_BLOCK)
		return false; /* a whole block: nothing would be carried */
	if (!sfs_block_get(&in->staging, blk))
		return false;
	return pos >= in->size || (in->staging.hot == blk && in->staging.hot_block == sfs_block_get(&in->staging, blk) &&
				   (from >= in->staging.hot_to || to <= in->staging.hot_from));
}

/* As sfs_staging_alloc(). What goes behind the end of the file, or behind what was staged last, goes on there, most often. */
static sfs_block take(struct sfs_inode *in, struct sfs_staged *st, uint64_t pos, uint32_t *blocks, int *err)
{
	const uint64_t blk = pos / SFS_BLOCK;
	const bool runs = pos >= in->size || (in->staging.count > 0 && blk == in->staging.hot + 1);
	const sfs_block b = sfs_staging_alloc(&in->vol->pool, &in->staging, runs ? blk : SFS_ANYWHERE, blocks, err);

	if (!b)
		return 0;
	if (st->taken == 0 || b != st->first_taken + st->taken) {
		st->first_taken = b;
		st->taken = 0;
	}
	st->taken += *blocks;
	return b;
}

/* Find staging space for [st->pos, end). */
static int find(struct sfs_inode *in, struct sfs_staged *st, uint64_t end, bool part)
{
	const uint64_t need = (end - 1) / SFS_BLOCK - st->pos / SFS_BLOCK + 1,
		       left = in->staging.region_end - in->staging.region_next;
	struct sfs_extent *ext = st->ext;
	uint64_t pos = st->pos;
	int n = 0, err = 0;

	if (!part && need > left && !sfs_pool_room(&in->vol->pool, need - left))
		return -ENOBUFS;

	while (pos < end) {
		const uint64_t blk = pos / SFS_BLOCK;
		uint32_t blocks = (uint32_t)((end - 1) / SFS_BLOCK - blk + 1);
		uint64_t stop;
		sfs_block b;

		if (n == 0 && continues(in, pos, end)) {
			b = sfs_block_get(&in->staging, blk);
			blocks = 1;
		} else {
			b = take(in, st, pos, &blocks, &err);
			if (!b && (n == 0 || !part))
				return err;
			if (!b)
				break;
		}
		stop = (blk + blocks) * SFS_BLOCK < end ? (blk + blocks) * SFS_BLOCK : end;
		if (n > 0 && b == ext[n - 1].b + (blk - ext[n - 1].off / SFS_BLOCK)) {
			ext[n - 1].len += stop - pos;
		} else {
			if (n == SFS_EXTENTS_MAX && !part)
				return -E2BIG;
			if (n == SFS_EXTENTS_MAX)
				break;
			ext[n++] = (struct sfs_extent){.off = pos, .len = stop - pos, .b = b};
		}
		pos = stop;
	}
	st->n = (size_t)(pos - st->pos);
	st->extents = n;
	return 0;
}

int sfs_staged_place(struct sfs_inode *in, uint64_t pos, size_t n, bool part, struct sfs_staged *st)
{
	int r;

	st->pos = pos;
	st->fenced = in->vol->mode != SFS_POSIX;
	st->data_crc = 0;
	st->taken = 0;
	st->number = in->staging.number;
	r = find(in, st, pos + n, part);
	if (r < 0)
		sfs_staged_unplace(in, st);
	st->crc = r == 0 && st->fenced && st->extents == 1 && st->n <= pm_crc_max();
	return r;
}

void sfs_staged_unplace(struct sfs_inode *in, struct sfs_staged *st)
{
	sfs_staging_untake(&in->staging, st->number, st->first_taken, st->taken);
	st->taken = 0;
}

size_t sfs_staged_head(const struct sfs_inode *in, const struct sfs_staged *st)
{
	const uint64_t blk = st->pos / SFS_BLOCK, rest = SFS_BLOCK - st->pos % SFS_BLOCK;

	if (sfs_block_get(&in->staging, blk) != st->ext[0].b)
		return 0;
	return rest < st->n ? (size_t)rest : st->n;
}

bool sfs_staged_holds(const struct sfs_inode *in, const struct sfs_staged *st, size_t head)
{
	if (head == 0)
		return true;
	return sfs_block_get(&in->staging, st->pos / SFS_BLOCK) == st->ext[0].b && continues(in, st->pos, st->pos + st->n);
}

void sfs_staged_move(struct sfs_staged *st, uint64_t pos)
{
	for (int i = 0; i < st->extents; i++)
		st->ext[i].off += pos - st->pos;
	st->pos = pos;
}

int sfs_staged_slots(struct sfs_inode *in, struct sfs_staged *st, uint32_t more)
{
	return sfs_log_slots(&in->vol->log, &in->slots, (uint32_t)st->extents + more, &st->slot);
}

/* Bytes around the new ones in blocks that are newly staged. */
static int carry_edges(struct sfs_inode *in, const struct sfs_extent *e)
{
	const uint64_t first = e->off / SFS_BLOCK, end = e->off + e->len, last = (end - 1) / SFS_BLOCK;
	int r = 0;

	if (e->off % SFS_BLOCK && sfs_block_get(&in->staging, first) != e->b)
		r = sfs_staged_keep(in, first, 0, e->off % SFS_BLOCK, sfs_block_addr(&in->vol->pool, e->b));
	if (r == 0 && end % SFS_BLOCK && end < in->size && sfs_block_get(&in->staging, last) != e->b + (last - first))
		r = sfs_staged_keep(in, last, end % SFS_BLOCK, SFS_BLOCK,
				    sfs_block_addr(&in->vol->pool, e->b + (last - first)));
	return r;
}

/* Enter the extent into the table, and remember which bytes of its last block records name now. */
static void enter(struct sfs_inode *in, const struct sfs_extent *e)
{
	const uint64_t first = e->off / SFS_BLOCK, end = e->off + e->len, last = (end - 1) / SFS_BLOCK;
	const sfs_block b = e->b + (last - first);
	const bool fresh = sfs_block_get(&in->staging, last) != b;
	uint32_t from = e->off > last * SFS_BLOCK ? (uint32_t)(e->off - last * SFS_BLOCK) : 0;
	uint32_t to = (uint32_t)(end - last * SFS_BLOCK);

	for (uint64_t blk = first; blk <= last; blk++)
		sfs_staging_set(&in->staging, blk, e->b + (blk - first));
	if (!fresh) {
		/* Earlier records name bytes of it too: known ones, or anything before ours. */
		const bool known = in->staging.hot == last && in->staging.hot_block == b;

		from = !known ? 0 : from < in->staging.hot_from ? from : in->staging.hot_from;
		to = known && to < in->staging.hot_to ? in->staging.hot_to : to;
	}
	in->staging.hot = last;
	in->staging.hot_block = b;
	in->staging.hot_from = from;
	in->staging.hot_to = to;
}

int sfs_staged_carry(struct sfs_inode *in, const struct sfs_staged *st)
{
	for (int i = 0; i < st->extents; i++) {
		const int r = carry_edges(in, &st->ext[i]);

		if (r < 0)
			return r;
	}
	return 0;
}

static void gather(uint8_t *at, struct sfs_cursor *c, size_t n)
{
	while (n > 0) {
		size_t got;
		const void *src = sfs_cursor_next(c, n, &got);

		memcpy(at, src, got);
		at += got;
		n -= got;
	}
}

/* The cursor goes on behind n bytes. */
static void pass(struct sfs_cursor *c, uint64_t n)
{
	while (n > 0) {
		size_t got;

		sfs_cursor_next(c, n, &got);
		n -= got;
	}
}

void sfs_staged_copy(struct sfs_volume *vol, struct sfs_staged *st, struct sfs_cursor *c, uint8_t *at, size_t head)
{
	if (head > 0) {
		gather(at, c, head);
		if (st->crc)
			st->data_crc = crc32c(0, at, head);
	}
	for (int i = 0; i < st->extents; i++) {
		const struct sfs_extent *e = &st->ext[i];
		const size_t skip = i == 0 ? head : 0;
		uint8_t *dst = sfs_block_addr(&vol->pool, e->b) + e->off % SFS_BLOCK + skip;

		if (e->len == skip)
			continue;
		if (e->there) {
			pass(c, e->len);
			continue;
		}
		if (st->crc)
			st->data_crc = copy_in_crc(st->data_crc, dst, c, e->len - skip);
		else
			sfs_copy_in(dst, c, e->len - skip, st->fenced || vol->dax);
	}
	if (st->fenced && !st->crc)
		pm_fence();
}

void sfs_staged_copy_head(struct sfs_volume *vol, const struct sfs_staged *st, const uint8_t *from, size_t head)
{
	uint8_t *dst = sfs_block_addr(&vol->pool, st->ext[0].b) + st->pos % SFS_BLOCK;

	if (!(st->fenced || vol->dax) && head < SFS_STORE_MAX)
		pm_store(dst, from, head);
	else
		pm_copy(dst, from, head);
	if (st->fenced && !st->crc)
		pm_fence();
}

uint32_t sfs_staged_records(const struct sfs_inode *in, const struct sfs_staged *st, uint64_t size, bool grows)
{
	const unsigned flags =
		(st->crc ? SFS_REC_DATA_CRC : 0) | (st->fenced ? SFS_REC_DURABLE : 0) | (grows ? SFS_REC_GROWS : 0);
	uint32_t crc = 0;

	for (int i = 0; i < st->extents; i++) {
		const struct sfs_extent *e = &st->ext[i];
		struct sfs_record rec = sfs_record_write(in, e->off, e->len, e->b, (uint8_t)flags);

		rec.group_pos = (uint8_t)i;
		rec.group_left = (uint8_t)(st->extents - 1 - i);
		rec.data_crc = st->data_crc;
		rec.size = size;
		crc = sfs_log_write(&in->vol->log, st->slot + (uint32_t)i, rec);
	}
	return crc;
}

void sfs_staged_enter(struct sfs_inode *in, const struct sfs_staged *st)
{
	for (int i = 0; i < st->extents; i++)
		enter(in, &st->ext[i]);
}
