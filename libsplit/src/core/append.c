/* SPDX-License-Identifier: Apache-2.0 */
/* The way of a small append, the log writer's case: continuing the staged last block. */
#include <string.h>

#include "base/crc32c.h"
#include "base/sys.h"
#include "core/iov.h"
#include "core/state.h"
#include "pm/pm.h"

/* The next block of the file can be the next one of the inode's region: what is staged goes on without a gap. */
static __attribute__((noinline)) bool grow_block(struct sfs_inode *in)
{
	const uint64_t blk = in->hot + 1;

	if (!in->grow || sfs_near_limit(in) || in->region_next == in->region_end || blk >= in->table_blocks ||
	    in->hot_block + 1 != ((sfs_block)(in->region_chunk + 1) << 32 | in->region_next))
		return false;
	in->region_next++;
	in->hot = blk;
	in->hot_block++;
	in->hot_from = 0;
	in->grow_limit += SFS_BLOCK;
	sfs_stage_set(in, blk, in->hot_block);
	return true;
}

/*
 * posix: the last record grows. Bytes, then the word that says how many they are; a process that dies leaves whole calls. The
 * conditions of an append are those of `grow` (state.h). False: nothing was done.
 */
static inline bool append_grow(struct sfs_inode *in, const void *buf, size_t n)
{
	if (n > (size_t)(in->grow_limit - in->grow_at) && !grow_block(in))
		return false;
	pm_store(in->grow_at, buf, n);
	in->grow_at += n;
	pm_store_word(&in->grow->size, sfs_grow_word(in->grow_crc, (uint32_t)(in->grow_at - in->grow_base)));
	in->size += n;
	in->grow_ops++;
	return true;
}

/*
 * sync, strict: it continues the staged last block, and the inode has a free slot. What write_staged() does, without everything
 * that can't be the case. False: nothing was done.
 */
static __attribute__((noinline)) bool append_record(struct sfs_inode *in, const void *buf, size_t n)
{
	struct sfs_volume *vol = in->vol;
	const uint64_t pos = in->size;
	const uint32_t at = pos % SFS_BLOCK, slot = in->slot_next;
	uint8_t bounce[SFS_CRC_MAX];
	struct sfs_record rec;
	uint8_t *dst;

	if (vol->mode == SFS_POSIX || !sfs_inode_served(in) || in->hot != pos / SFS_BLOCK || at == 0 || at + n > SFS_BLOCK ||
	    slot == in->slot_end || sfs_block_get(in, in->hot) != in->hot_block || !in->live || pos + n > sfs.fsize_limit)
		return false;
	dst = sfs_block_addr(vol, in->hot_block) + at;
	memcpy(bounce, buf, n);
	rec = (struct sfs_record){
		.type = SFS_REC_WRITE,
		.flags = SFS_REC_DATA_CRC | SFS_REC_DURABLE,
		.ino = in->ino,
		.gen = in->gen,
		.data_crc = crc32c(0, bounce, n),
		.off = pos,
		.len = (uint32_t)n,
		.stage_file = vol->chunks[(in->hot_block >> 32) - 1].id,
		.stage_off = (uint64_t)(uint32_t)in->hot_block * SFS_BLOCK + at,
		.size = pos + n,
	};
	pm_copy(dst, bounce, n);
	in->slot_next++;
	sfs_log_write(vol, slot, &rec);
	pm_fence();
	in->size = pos + n;
	if (at + n > in->hot_to)
		in->hot_to = at + (uint32_t)n;
	in->touched = in->busy = true;
	count(vol, append_ops, 1);
	count(vol, append_bytes, n);
	count(vol, staged_bytes, n);
	/* The next locked instruction waits until all stores have their lines: fetch those of later appends now. */
	__builtin_prefetch(&vol->records[slot + SFS_PREFETCH], 1);
	__builtin_prefetch(dst + SFS_PREFETCH * n, 1);
	if (unlikely(!vol->dirty))
		sfs_service_wake(vol);
	return true;
}

/*
 * At the file offset, of a description that no other process shares, where both locks are this thread's own (base/bias.h): then
 * nothing can wait, their order is free, and who holds the inode's is who is inside (see sfs_op_begin()). Anything else takes the
 * long way.
 */
bool sfs_append(struct sfs_ofd *ofd, int fd, const void *buf, size_t n)
{
	struct sfs_inode *in = ofd->inode;
	bool done = false;

	sfs_check_fork();
	if (n - 1 >= SFS_STORE_MAX || !sfs_bias_take(&in->lock.bias))
		return false;
	if (sfs_bias_take(&ofd->lock.bias)) {
		if (likely(load_acquire(&sfs_fds[fd]) == ofd && ofd->inode == in) && !ofd->kernel_off &&
		    (ofd->flags & O_ACCMODE) != O_RDONLY && !(ofd->flags & (O_SYNC | O_DSYNC)) &&
		    ((ofd->flags & O_APPEND) || ofd->off == (int64_t)in->size)) {
			done = append_grow(in, buf, n) || append_record(in, buf, n);
			if (done)
				ofd->off = (int64_t)in->size;
		}
		sfs_bias_drop(&ofd->lock.bias);
	}
	sfs_bias_drop(&in->lock.bias);
	return done;
}

ssize_t sfs_write(int fd, const void *buf, size_t n, off_t off)
{
	const struct iovec iov = {(void *)buf, n > SFS_IO_MAX ? SFS_IO_MAX : n};
	struct sfs_ofd *ofd = off < 0 ? sfs_known(fd) : NULL;

	if (ofd && sfs_append(ofd, fd, buf, n))
		return (ssize_t)n;
	return sfs_writev(fd, &iov, 1, off, 0);
}
