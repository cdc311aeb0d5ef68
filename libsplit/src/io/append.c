/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of an append that continues what is staged, in one piece: the log writer's case, and that of who writes a file from its
 * beginning to its end.
 */
#include <string.h>

#include "base/sys.h"
#include "base/iov.h"
#include "io/io.h"
#include "pm/pm.h"

/* On persistent memory: what was stored since everything was last written back. */
static void grow_flush(struct sfs_inode *in)
{
	if (in->vol->dax)
		pm_flush(in->grow.dirty, (size_t)(in->grow.at - in->grow.dirty));
}

void sfs_grow_forget(struct sfs_inode *in)
{
	in->grow.record = NULL;
	in->grow.at = in->grow.limit = NULL;
	in->grow.ops = 0;
}

void sfs_grow_end(struct sfs_inode *in)
{
	uint64_t bytes;

	if (!in->grow.record)
		return;
	in->staging.hot_to = SFS_BLOCK - (uint32_t)(in->grow.limit - in->grow.at);
	/* Everything else is written back as it is stored; the next fence is to find this too. */
	grow_flush(in);
	if (in->vol->dax)
		pm_flush(in->grow.record, sizeof(*in->grow.record));
	bytes = (uint64_t)(in->grow.at - in->grow.base) - in->grow.record->len;
	count(in->vol, append_ops, in->grow.ops);
	count(in->vol, append_bytes, bytes);
	count(in->vol, staged_bytes, bytes);
	sfs_grow_forget(in);
}

/*
 * Make room for n more bytes behind the end of the file, all in one piece with its last byte, which is staged in `hot`: the rest of that
 * block, and the blocks of the inode's region that follow it. Returns where they go, NULL when they can't.
 */
static inline uint8_t *extend(struct sfs_inode *in, size_t n)
{
	const uint64_t last = (in->size + n - 1) / SFS_BLOCK, more = last - in->staging.hot;
	uint8_t *at = sfs_block_addr(&in->vol->pool, in->staging.hot_block) + (in->size - in->staging.hot * SFS_BLOCK);

	if (more == 0)
		return at;
	if (more > in->staging.region_end - in->staging.region_next || last >= in->staging.table_blocks ||
	    in->staging.hot_block + 1 != ((sfs_block)(in->staging.region_chunk + 1) << 32 | in->staging.region_next))
		return NULL;
	for (uint64_t i = 1; i <= more; i++)
		sfs_staging_set(&in->staging, in->staging.hot + i, in->staging.hot_block + i);
	in->staging.region_next += (uint32_t)more;
	in->staging.hot = last;
	in->staging.hot_block += more;
	in->staging.hot_from = 0;
	return at;
}

/* The record ends behind n more bytes, which are stored. */
static inline void grown(struct sfs_inode *in, size_t n)
{
	in->grow.at += n;
	pm_store_word(&in->grow.record->size, sfs_grow_word(in->grow.crc, (uint32_t)(in->grow.at - in->grow.base)));
	in->size += n;
	in->grow.ops++;
}

/* Small ones that need the next block, and whole blocks. */
static __attribute__((noinline)) bool grow_blocks(struct sfs_inode *in, const void *buf, size_t n)
{
	if (sfs_near_limit(in->size + n) || !extend(in, n))
		return false;
	if (n <= SFS_STORE_MAX) {
		pm_store(in->grow.at, buf, n);
	} else {
		grow_flush(in);
		pm_copy(in->grow.at, buf, n);
		in->grow.dirty = in->grow.at + n;
	}
	grown(in, n);
	in->grow.limit = in->grow.at + -in->size % SFS_BLOCK;
	return true;
}

/*
 * posix: the last record grows. Bytes, then the word that says how many they are; a process that dies leaves whole calls. The
 * conditions of an append are those of `grow` (files/inode.h). False: nothing was done.
 */
static inline bool append_grow(struct sfs_inode *in, const void *buf, size_t n)
{
	if (n > SFS_STORE_MAX || n > (size_t)(in->grow.limit - in->grow.at))
		return grow_blocks(in, buf, n);
	pm_store(in->grow.at, buf, n);
	grown(in, n);
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
	const uint32_t slot = in->slots.next;
	struct sfs_record rec;
	sfs_block first;
	uint8_t *dst;

	if (vol->mode == SFS_POSIX || !sfs_inode_served(in) || slot == in->slots.end || !in->live || in->size == 0 ||
	    in->staging.hot != (pos - 1) / SFS_BLOCK || sfs_block_get(&in->staging, in->staging.hot) != in->staging.hot_block ||
	    sfs_near_limit(in->size + n) || !(dst = extend(in, n)))
		return false;
	first = in->staging.hot_block - (in->staging.hot - pos / SFS_BLOCK);
	rec = sfs_record_write(in, pos, n, first, SFS_REC_DURABLE);
	rec.size = pos + n;
	if (n <= pm_crc_max()) {
		rec.flags |= SFS_REC_DATA_CRC;
		rec.data_crc = pm_copy_crc(0, dst, buf, n);
	} else {
		pm_copy(dst, buf, n);
		pm_fence();
	}
	in->slots.next++;
	sfs_log_write(&vol->log, slot, rec);
	pm_fence();
	in->size = pos + n;
	in->staging.hot_to = (uint32_t)((in->size - 1) % SFS_BLOCK) + 1;
	in->touched = in->busy = true;
	sfs_count_write(&vol->log, true, n);
	count(vol, staged_bytes, n);
	/* The next locked instruction waits until all stores have their lines: fetch those of later appends now. */
	if (n <= SFS_STORE_MAX && !pm_whole_lines(dst, n))
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
	if (n - 1 >= SFS_LONG - 1 || !sfs_bias_take(&in->lock.bias))
		return false;
	if (sfs_bias_take(&ofd->lock.bias)) {
		if (likely(load_acquire(&sfs_fds[fd]) == ofd && ofd->inode == in) && !ofd->kernel_off &&
		    (ofd->flags & O_ACCMODE) != O_RDONLY && !(ofd->flags & (O_SYNC | O_DSYNC)) &&
		    ((ofd->flags & O_APPEND) || ofd->off == (int64_t)in->size)) {
			done = in->grow.record ? append_grow(in, buf, n) : append_record(in, buf, n);
			if (done)
				ofd->off = (int64_t)in->size;
		}
		sfs_bias_drop(&ofd->lock.bias);
	}
	sfs_bias_drop(&in->lock.bias);
	sfs_op_end(NULL);
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
