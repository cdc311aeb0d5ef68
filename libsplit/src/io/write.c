/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes. In place: overwrites in posix and sync, stored through the window and fenced. Staged: everything that changes the size,
 * everything in strict, and every write to a block that is staged already.
 *
 * Order of a staged write on PM: bytes to the staging file; fence, unless the record carries their checksum or the mode is posix;
 * records; fence, unless posix. Then, in memory, the block table and the size. Nothing staged is visible to anybody before its
 * records are stored, and nothing is stored before there is room for the records.
 */
#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "files/privileges.h"
#include "pm/map.h"
#include "io/staged.h"
#include "pm/pm.h"

#define POPULATE   (256ul << 10)
#define OUTRUN_MAX 64u /* times that one write relinks everything and others take the space */
#define LEASES_MAX 16u /* tries of one write to get staging space */

#ifndef RWF_DSYNC
#define RWF_DSYNC  0x2
#define RWF_SYNC   0x4
#define RWF_APPEND 0x10
#endif

/* How a write is to go: what the caller asked for, in one place. */
struct request {
	struct sfs_ofd *ofd;
	int fd;
	const struct iovec *iov;
	int cnt;
	size_t total;
	int flags; /* RWF_* */
	bool part; /* there will not be more staging space: write as much as fits, atomically */
};

static ssize_t kernel_write(const struct request *q, off_t pos)
{
	struct sfs_inode *in = q->ofd->inode;
	const int flags = q->flags | (in->vol->mode != SFS_POSIX ? RWF_DSYNC : 0);
	const ssize_t r = sys_pwritev2(q->fd, q->iov, q->cnt, pos, flags);

	/* To persistent memory the kernel stores past the caches, and does not wait: in posix an overwrite survives when it returns. */
	if (in->vol->dax && !(flags & RWF_DSYNC))
		pm_fence();
	count(in->vol, passthrough_ops, 1);
	in->kdirty = in->kdirty || !(flags & RWF_DSYNC);
	if (r > 0 && sfs_inode_served(in))
		sfs_inode_reload(in);
	return r;
}

/* May the write go in place? unretired: a valid record names bytes that are in the file already; replaying it would undo us. */
bool sfs_in_place(struct sfs_inode *in, uint64_t pos, size_t n)
{
	if (in->vol->mode == SFS_STRICT || pos + n > in->ksize || !in->window.base || pos + n > in->window.len ||
	    !in->writable || !in->window.dense || sfs_staging_any(&in->staging, pos, n))
		return false;
	in->blocked = in->unretired;
	return !in->unretired;
}

struct sfs_range sfs_ahead(struct sfs_inode *in, uint64_t pos, size_t n)
{
	struct sfs_range pages = {.from = pos / SFS_BLOCK * SFS_BLOCK, .to = (pos + n + POPULATE) / SFS_BLOCK * SFS_BLOCK};
	const bool goes_on = pos == in->window.last_end;

	in->window.last_end = pos + n;
	if (!goes_on || pos + n <= in->window.populated)
		return (struct sfs_range){0};
	if (pages.to > in->ksize)
		pages.to = (in->ksize + SFS_BLOCK - 1) / SFS_BLOCK * SFS_BLOCK;
	in->window.populated = pages.to;
	return pages;
}

void sfs_store(const struct sfs_inode *in, struct sfs_range ahead, struct sfs_cursor *c, uint64_t pos, size_t n)
{
	if (ahead.to)
		sfs_map_populate(in->window.base + ahead.from, ahead.to - ahead.from);
	sfs_copy_in(in->window.base + pos, c, n, true);
	pm_fence();
}

/* A write behind the end makes what lies between part of the file: zeros, also in the staged last block. */
static void zero_gap(struct sfs_inode *in, uint64_t pos)
{
	const uint64_t blk = in->size / SFS_BLOCK;
	const sfs_block b = in->size % SFS_BLOCK ? sfs_block_get(&in->staging, blk) : 0;
	const uint64_t to = pos < (blk + 1) * SFS_BLOCK ? pos : (blk + 1) * SFS_BLOCK;

	if (b && pos > in->size)
		pm_zero(sfs_block_addr(&in->vol->pool, b) + in->size % SFS_BLOCK, to - in->size);
}

static void commit_now(struct sfs_inode *in, uint32_t slot)
{
	sfs_log_commit(&in->vol->log, slot, in->ino, in->gen);
	in->uncommitted = false;
	in->committed = true;
}

/*
 * One atomic operation. Returns the bytes written, less than n only where an operation needs more than SFS_EXTENTS_MAX extents or
 * more staging space than there is;
 * -EAGAIN: the log is full; -ENOSPC: no staging space.
 */
static ssize_t write_staged(struct sfs_inode *in, struct sfs_cursor *c, uint64_t pos, size_t n, bool part)
{
	struct sfs_volume *vol = in->vol;
	/* posix promises that an overwrite survives when it returns: here, as everything before it, by a COMMIT. */
	const bool commits = vol->dax && vol->mode == SFS_POSIX && pos < in->size;
	struct sfs_staged st;
	uint32_t rec_crc;
	uint64_t size;
	bool grows;
	int r;

	sfs_grow_end(in);
	if (commits) {
		r = sfs_commit_base(in);
		if (r < 0)
			return r;
	}
	r = sfs_staging_table(&in->staging, (pos + n + SFS_BLOCK - 1) / SFS_BLOCK);
	if (r < 0)
		return r;
	sfs_stage_live(in);
	r = sfs_staged_place(in, pos, n, part ? SFS_PLACE_PART : SFS_PLACE_ALL, commits, &st);
	if (r == 0)
		r = sfs_staged_carry(in, &st);
	if (r < 0)
		return r;
	n = st.n;
	size = pos + n > in->size ? pos + n : in->size;
	grows = !st.fenced && st.extents == 1 && pos == in->size && !sfs_near_limit(pos + n);
	zero_gap(in, pos);
	sfs_staged_copy(vol, &st, c);
	rec_crc = sfs_staged_records(in, &st, size, grows);
	if (st.fenced)
		pm_fence();
	else if (commits)
		commit_now(in, st.slot + (uint32_t)st.extents);
	sfs_staged_enter(in, &st);
	sfs_count_write(&vol->log, size > in->size, n);
	in->size = size;
	count(vol, staged_bytes, n);
	if (grows) {
		in->grow.record = &vol->log.records[st.slot];
		in->grow.crc = rec_crc;
		in->grow.base = sfs_block_addr(&vol->pool, st.ext[0].b) + pos % SFS_BLOCK;
		in->grow.at = in->grow.dirty = in->grow.base + n;
		in->grow.limit = in->grow.at + -(pos + n) % SFS_BLOCK;
	} else if (n <= SFS_STORE_MAX) {
		/* The next locked instruction waits until all stores have their lines: fetch those of the next small append now. */
		const struct sfs_extent *e = &st.ext[st.extents - 1];
		const uint8_t *end = sfs_block_addr(&vol->pool, e->b) + e->off % SFS_BLOCK + e->len;

		for (size_t i = 0; i < n; i += 64)
			__builtin_prefetch(end + SFS_PREFETCH * n + i, 1);
	}
	in->touched = in->busy = true;
	in->uncommitted = !st.fenced && !commits;
	if (unlikely(!vol->dirty))
		sfs_service_wake(vol);
	return (ssize_t)n;
}

/* By the kernel, whatever the reason: what is staged is older. */
static ssize_t write_unserved(const struct request *q, bool append, off_t pos, off_t *at)
{
	struct sfs_inode *in = q->ofd->inode;
	ssize_t r = in->live || in->staging.count > 0 ? sfs_flush(in, SFS_RETIRE) : 0;

	if (r == 0)
		r = kernel_write(q, pos);
	if (append && r > 0) {
		struct stat st;

		if (sys_fstat(q->fd, &st) == 0 && st.st_size >= r)
			*at = st.st_size - r;
	}
	return r;
}

/*
 * The write at `pos` (at the end with append) by whoever serves the file. Lock held exclusively; -EAGAIN and -ENOSPC as above.
 * *at: where it went.
 */
static ssize_t write_once(const struct request *q, bool append, off_t pos, off_t *at)
{
	struct sfs_inode *in = q->ofd->inode;
	struct sfs_cursor c = {q->iov, 0};
	size_t done = 0;
	ssize_t r = sfs_io_prepare(q->ofd, in, q->fd);

	if (r < 0)
		return r;
	if (in->vol->mode == SFS_STRICT && in->grant.deleg == SFS_DELEG_SHARED && !in->kernel_only) {
		/* Atomic writes need the file to ourselves; the others get it back when they ask. */
		if (in->vol->agent.state != VOL_READY)
			return -EIO;
		r = sfs_agent_acquire(in->vol, &in->grant, in->ino, in->gen, in->fd, SFS_ACQ_EXCLUSIVE);
		if (r < 0 || in->grant.deleg != SFS_DELEG_EXCLUSIVE)
			return -EIO;
		sfs_inode_reload(in);
		sfs_io_prepare(q->ofd, in, q->fd);
	}
	/* A process without the library may share the description and have written through it, or have appended. */
	if ((append || q->ofd->kernel_off) && in->staging.count == 0 && sfs_inode_served(in)) {
		sfs_inode_reload(in);
		sfs_io_prepare(q->ofd, in, q->fd);
	}
	if (unlikely(in->privileged))
		sfs_privileges_end(in);
	if (append && sfs_inode_served(in))
		pos = (off_t)in->size;
	*at = pos;
	if (!sfs_inode_served(in) || sfs_too_far((uint64_t)pos + q->total))
		return write_unserved(q, append, pos, at);
	if (sfs_in_place(in, (uint64_t)pos, q->total)) {
		sfs_store(in, sfs_ahead(in, (uint64_t)pos, q->total), &c, (uint64_t)pos, q->total);
		in->touched = true;
		sfs_count_write(&in->vol->log, false, q->total);
		return (ssize_t)q->total;
	}
	if (sfs_far_apart(in, (uint64_t)pos)) {
		r = sfs_flush(in, SFS_PUBLISH);
		if (r < 0)
			return r;
	}
	while (done < q->total) {
		r = write_staged(in, &c, (uint64_t)pos + done, q->total - done, q->part);
		if (r < 0)
			return done > 0 ? (ssize_t)done : r;
		done += (size_t)r;
		/* What others give back meanwhile would make it two operations. */
		if (q->part && in->vol->mode == SFS_STRICT)
			break;
	}
	return (ssize_t)done;
}

/* No staging space, or no memory for the block table: everything is relinked, so that staging files become free; where that does not help, the kernel writes. */
static ssize_t write_without_staging(const struct request *q, off_t pos, ssize_t why)
{
	struct sfs_inode *in = q->ofd->inode;
	ssize_t r;

	if (in->vol->mode == SFS_STRICT)
		return why;
	do {
		sfs_rwlock_wrlock(&in->lock);
		r = sfs_flush(in, SFS_RETIRE);
		if (r == 0) {
			r = kernel_write(q, pos);
			sfs_inode_reload(in);
		}
		sfs_rwlock_wrunlock(&in->lock);
	} while (r == -EAGAIN && sfs_checkpoint(in->vol, true) == 0);
	return r == -EAGAIN ? why : r;
}

/* The file to itself, whatever that takes. */
static ssize_t write_alone(struct request *q, bool append, off_t pos, off_t *at)
{
	struct sfs_inode *in = q->ofd->inode;
	const uint64_t blocks = q->total / SFS_BLOCK + 2;
	unsigned leases = 0, outrun = 0;
	bool emptied = false;
	int given = 0;
	ssize_t r;

	for (;;) {
		sfs_rwlock_wrlock(&in->lock);
		if (unlikely(load_acquire(&sfs_fds[q->fd]) != q->ofd || q->ofd->inode != in))
			r = -EBADF; /* closed by another thread meanwhile */
		else
			r = write_once(q, append, pos, at);
		/* It was ours for this write only. What can't be relinked now is when the service thread answers the agent's REVOKE. */
		if (unlikely(in->grant.at_once) && r >= 0)
			given = sfs_step_down(in, SFS_DELEG_SHARED);
		sfs_rwlock_wrunlock(&in->lock);
		if (likely(r >= 0))
			break;
		if (r == -EAGAIN) {
			r = sfs_checkpoint(in->vol, true);
			if (r < 0)
				break;
		} else if (r == -ENOBUFS && in->vol->agent.state == VOL_READY && !q->part) {
			/* Other threads may take what we lease: not for ever. */
			r = leases++ < LEASES_MAX ? sfs_chunk_lease(in->vol, blocks) : -ENOSPC;
			if (r == 0)
				continue;
			q->part = emptied;
			leases = 0;
			/* There is space now, but other threads may take it first. In strict there is no other way to write. */
			if (sfs_flush_all(in->vol, SFS_RETIRE) < 0 || in->vol->mode != SFS_STRICT || outrun++ == OUTRUN_MAX ||
			    !(sfs_pool_room(&in->vol->pool, blocks) ||
			      __atomic_load_n(&in->vol->pool.region_blocks, __ATOMIC_RELAXED)))
				emptied = true;
		} else if (r == -ENOSPC && !emptied && in->vol->agent.state == VOL_READY) {
			emptied = true;
			sfs_flush_all(in->vol, SFS_RETIRE);
		} else if (r == -ENOMEM || ((r == -ENOSPC || r == -ENOBUFS) && emptied)) {
			return write_without_staging(q, *at, r == -ENOBUFS ? -ENOSPC : r);
		} else {
			break;
		}
	}
	while (unlikely(given == -EAGAIN) && sfs_checkpoint(in->vol, true) == 0) {
		sfs_rwlock_wrlock(&in->lock);
		given = in->grant.at_once ? sfs_step_down(in, SFS_DELEG_SHARED) : 0;
		sfs_rwlock_wrunlock(&in->lock);
	}
	return r;
}

static ssize_t write_at(struct request *q, bool append, off_t pos, off_t *at)
{
	struct sfs_inode *in = q->ofd->inode;
	ssize_t r = unlikely(in->privileged) ? 0 : sfs_fly(q->ofd, q->fd, q->iov, q->total, append, pos, at);

	if (r == 0)
		r = write_alone(q, append, pos, at);
	if (r > 0 && ((q->ofd->flags & (O_DSYNC | O_SYNC)) || (q->flags & (RWF_DSYNC | RWF_SYNC)))) {
		int err = 0;

		sfs_rwlock_wrlock(&in->lock);
		/* Closed by another thread meanwhile: that has relinked, and the description may be another file's by now. */
		if (likely(load_acquire(&sfs_fds[q->fd]) == q->ofd && q->ofd->inode == in))
			err = sfs_flush_fsync(q->ofd, q->fd, !((q->ofd->flags & O_SYNC) == O_SYNC || (q->flags & RWF_SYNC)));
		sfs_rwlock_wrunlock(&in->lock);
		if (err == -EAGAIN)
			err = sfs_checkpoint(in->vol, true);
		if (err < 0)
			return err;
	}
	return r;
}

static ssize_t writev_of(struct sfs_ofd *ofd, int fd, const struct iovec *iov, int cnt, off_t off, int flags)
{
	struct request q = {ofd, fd, iov, cnt, 0, flags, false};
	const ssize_t total = sfs_iov_total(iov, cnt);
	bool append;
	off_t pos = off, at = 0;
	ssize_t r;

	if ((ofd->flags & O_ACCMODE) == O_RDONLY)
		return -EBADF;
	if (total <= 0)
		return total;
	q.total = (size_t)total;
	/* On Linux O_APPEND wins over the position of pwrite(2). */
	append = ((ofd->kernel_off ? sys_fcntl(fd, F_GETFL, 0) : ofd->flags) & O_APPEND) || (flags & RWF_APPEND);
	if (off >= 0)
		return write_at(&q, append, pos, &at);
	sfs_mutex_lock(&ofd->lock);
	if (ofd->kernel_off) {
		pos = append ? 0 : sys_lseek(fd, total, SEEK_CUR);
		if (pos < 0) {
			sfs_mutex_unlock(&ofd->lock);
			return pos;
		}
		if (!append)
			pos -= total;
	} else {
		pos = ofd->off;
	}
	r = write_at(&q, append, pos, &at);
	if (r > 0 || ofd->kernel_off) {
		const off_t end = (append ? at : pos) + (r > 0 ? r : 0);

		if (!ofd->kernel_off)
			ofd->off = end;
		else if (append)
			sys_lseek(fd, end, SEEK_SET);
		else
			sys_lseek(fd, (r > 0 ? r : 0) - total, SEEK_CUR);
	}
	sfs_mutex_unlock(&ofd->lock);
	return r;
}

ssize_t sfs_writev(int fd, const struct iovec *iov, int cnt, off_t off, int flags)
{
	struct sfs_ofd *ofd = sfs_ofd_of(fd);
	uint64_t *op;
	ssize_t r;

	if (!ofd)
		return SFS_PASS;
	if (flags & ~(RWF_DSYNC | RWF_SYNC | RWF_APPEND)) {
		r = sfs_make_true(fd, false);
		if (r < 0)
			return r;
		r = sys_pwritev2(fd, iov, cnt, off, flags);
		sfs_changed(fd);
		return r;
	}
	if (unlikely(!sfs_op_begin(ofd->inode, &op)))
		return -EDEADLK;
	r = writev_of(ofd, fd, iov, cnt, off, flags);
	sfs_op_end(op);
	return r;
}
