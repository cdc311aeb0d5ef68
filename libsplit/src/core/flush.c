/* SPDX-License-Identifier: Apache-2.0 */
/* Relinking what is staged: on fsync, close, fork, exec, revocation, before calls we do not serve, and every visibility_ms. */
#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "core/state.h"
#include "pm/pm.h"

/* Relink one run of blocks, [blk, blk + n) of the file, contiguous in one staging file. *done_blocks of them are in it. */
static int relink_run(struct sfs_inode *in, uint64_t blk, uint64_t n, sfs_block b, uint64_t *done_blocks)
{
	struct sfs_volume *vol = in->vol;
	struct sfs_chunk *c = &vol->chunks[(b >> 32) - 1];
	const uint64_t off = blk * SFS_BLOCK;
	const uint64_t end = (blk + n) * SFS_BLOCK < in->size ? (blk + n) * SFS_BLOCK : in->size;
	struct relink_range r = {
		.donor = c->fd,
		.target = in->fd,
		.staged = sfs_block_addr(vol, b),
		.donor_off = (uint64_t)(uint32_t)b * SFS_BLOCK,
		.target_off = off,
		.len = end - off,
		.size = end,
	};
	uint64_t moved = 0;
	int ret;

	/* posix mode left short copies in the cache; the blocks are about to change hands, so nobody else would write them back. */
	if (vol->dax && vol->mode == SFS_POSIX) {
		pm_flush(r.staged, r.len);
		pm_fence();
	}
	ret = relink(vol->provider, &r, &moved);
	if (ret < 0 ? moved > 0 : !(ret & RELINK_DONOR_KEEPS))
		c->holes = true;
	*done_blocks = ret < 0 ? moved / SFS_BLOCK : n; /* after an error, whole blocks from the start may have gone over */
	if (ret < 0)
		return ret;
	count(vol, relink_ops, 1);
	count(vol, relink_bytes, end - off);
	return 0;
}

/* A record that retires the inode's earlier ones. -EAGAIN: the log is full. */
static int done(struct sfs_inode *in, bool durable)
{
	struct sfs_volume *vol = in->vol;
	struct sfs_record rec = {
		.type = SFS_REC_DONE,
		.flags = durable ? SFS_REC_DURABLE : 0,
		.ino = in->ino,
		.gen = in->gen,
	};
	uint32_t slot;
	int r;

	sfs_log_drop_slots(in);
	r = sfs_log_reserve(vol, 1, true, &slot);

	if (r < 0)
		return r;
	sfs_log_write(vol, slot, &rec);
	pm_fence();
	return 0;
}

/*
 * In posix mode records promise nothing across a power loss, and on an emulated volume no record does: only where sync or strict
 * staged on real PM must the file system's journal be committed before the records may be retired.
 */
int sfs_flush(struct sfs_inode *in, bool durable)
{
	struct sfs_volume *vol = in->vol;
	uint64_t blk = in->first;
	int r;

	sfs_grow_end(in); /* what is relinked must not grow in the staging file */
	if (in->live && vol->dax && vol->mode != SFS_POSIX)
		durable = true;
	while (in->staged > 0 && blk < in->last) {
		const sfs_block b = in->table[blk];
		uint64_t n = 1;

		if (b == 0) {
			blk++;
			continue;
		}
		while (blk + n < in->last && in->table[blk + n] == b + n)
			n++;
		r = relink_run(in, blk, n, b, &n);
		in->unretired = true; /* also where only a part of it was moved */
		/* What follows the end without a gap leaves it without holes; asking the kernel again costs a walk over the file. */
		if (!in->dense || blk * SFS_BLOCK > in->ksize)
			in->dense_known = false;
		if (n > 0 && (blk + n) * SFS_BLOCK >= in->ksize)
			in->ksize = (blk + n) * SFS_BLOCK < in->size ? (blk + n) * SFS_BLOCK : in->size;
		memset(&in->table[blk], 0, n * sizeof(sfs_block));
		in->staged -= n;
		blk += n;
		in->first = blk;
		if (r < 0)
			return r; /* the rest stays staged, its records stay valid */
	}
	sfs_inode_times(in);
	if (durable && in->fd >= 0) {
		r = sys_fsync(in->fd);
		if (r < 0)
			return r;
	}
	if (!in->live)
		return 0;
	r = done(in, durable);
	if (r == 0)
		sfs_stage_retired(in);
	return r;
}

int sfs_flush_unlocked(struct sfs_inode *in, bool durable)
{
	int r;

	sfs_rwlock_wrlock(&in->lock);
	r = sfs_flush(in, durable);
	sfs_rwlock_wrunlock(&in->lock);
	if (r == -EAGAIN)
		r = sfs_log_checkpoint(in->vol, true);
	return r;
}

static int flush_one(struct sfs_inode *in, void *arg)
{
	if (in->live || in->staged > 0)
		sfs_flush_unlocked(in, *(bool *)arg);
	return 0;
}

void sfs_flush_all(struct sfs_volume *vol, bool durable)
{
	sfs_inodes_each(vol, flush_one, &durable);
}
