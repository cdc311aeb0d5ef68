/* SPDX-License-Identifier: Apache-2.0 */
/* The way of a small append, the log writer's case: the same protocol as in write.c for one record in one block. */
#include <string.h>

#include "base/crc32c.h"
#include "base/sys.h"
#include "core/iov.h"
#include "core/state.h"
#include "pm/pm.h"

/*
 * The small append of a log writer: it continues the staged last block, and the inode has a free slot. What write_staged() does,
 * without everything that can't be the case. False: nothing was done.
 */
static bool append_small(struct sfs_inode *in, const void *buf, size_t n)
{
	struct sfs_volume *vol = in->vol;
	const uint64_t pos = in->size;
	const uint32_t at = pos % SFS_BLOCK, slot = in->slot_next;
	const bool fenced = vol->mode != SFS_POSIX;
	uint8_t bounce[SFS_CRC_MAX];
	struct sfs_record rec;
	uint8_t *dst;

	if (!sfs_inode_served(in) || in->hot != pos / SFS_BLOCK || at == 0 || at + n > SFS_BLOCK || slot == in->slot_end ||
	    sfs_block_get(in, in->hot) != in->hot_block || !in->live || pos + n > sfs.fsize_limit)
		return false;
	dst = sfs_block_addr(vol, in->hot_block) + at;
	rec = (struct sfs_record){
		.type = SFS_REC_WRITE,
		.flags = fenced ? SFS_REC_DATA_CRC | SFS_REC_DURABLE : 0,
		.ino = in->ino,
		.gen = in->gen,
		.off = pos,
		.len = (uint32_t)n,
		.stage_file = vol->chunks[(in->hot_block >> 32) - 1].id,
		.stage_off = (uint64_t)(uint32_t)in->hot_block * SFS_BLOCK + at,
		.size = pos + n,
	};
	if (fenced) {
		memcpy(bounce, buf, n);
		rec.data_crc = crc32c(0, bounce, n);
		pm_copy(dst, bounce, n);
	} else {
		pm_store(dst, buf, n);
	}
	in->slot_next++;
	sfs_log_write(vol, slot, &rec);
	if (fenced)
		pm_fence();
	in->size = pos + n;
	if (at + n > in->hot_to)
		in->hot_to = at + (uint32_t)n;
	in->touched = true;
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

/* At the file offset, of a description that no other process shares. */
static bool write_small(struct sfs_ofd *ofd, int fd, const void *buf, size_t n)
{
	struct sfs_inode *in = ofd->inode;
	struct sfs_op outer;
	bool done = false;

	if ((ofd->flags & O_ACCMODE) == O_RDONLY || (ofd->flags & (O_SYNC | O_DSYNC)) || ofd->kernel_off ||
	    (uintptr_t)buf < SFS_USER_MIN || (uintptr_t)buf > SFS_USER_MAX - SFS_CRC_MAX || !sfs_op_begin(in, &outer))
		return false;
	sfs_mutex_lock(&ofd->lock);
	sfs_rwlock_wrlock(&in->lock);
	if (likely(load_acquire(&sfs_fds[fd]) == ofd && ofd->inode == in) && !ofd->kernel_off &&
	    ((ofd->flags & O_APPEND) || ofd->off == (int64_t)in->size)) {
		done = append_small(in, buf, n);
		if (done) {
			ofd->off = (int64_t)in->size;
		}
	}
	sfs_rwlock_wrunlock(&in->lock);
	sfs_mutex_unlock(&ofd->lock);
	sfs_op_end(&outer);
	return done;
}

ssize_t sfs_write(int fd, const void *buf, size_t n, off_t off)
{
	const struct iovec iov = {(void *)buf, n > SFS_IO_MAX ? SFS_IO_MAX : n};

	struct sfs_ofd *ofd;

	if (off < 0 && n > 0 && n <= SFS_STORE_MAX && (ofd = sfs_ofd_of(fd)) && write_small(ofd, fd, buf, n))
		return (ssize_t)n;
	return sfs_writev(fd, &iov, 1, off, 0);
}
