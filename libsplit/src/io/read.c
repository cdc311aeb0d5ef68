/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads (SplitFS paper section 3.4): every block comes from where the table says, staging file or window. The inode's lock is
 * held shared, so nothing is relinked or unmapped under the copy.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/sys.h"
#include "base/iov.h"
#include "io/io.h"

#define COLD_MAX  (128ull << 10)
#define LOOKS_MAX 3 /* tries of a read beside writers that change what it reads */

bool sfs_io_prepared(const struct sfs_inode *in)
{
	return sfs_inode_served(in) && in->window.dense_known &&
	       ((in->window.base && in->window.len >= in->ksize) || in->window.tried == in->ksize);
}

/* inode.lock held exclusively. */
int sfs_io_prepare(struct sfs_ofd *ofd, struct sfs_inode *in, int fd)
{
	int r = sfs_inode_ready(in, fd, ofd->flags);

	if (r < 0)
		return r;
	if (sfs_inode_served(in)) {
		if (in->window.tried != in->ksize)
			sfs_window_map(&in->window, in->vol->dax, in->writable, in->fd, in->ksize);
		sfs_window_dense(&in->window, in->fd, in->ksize);
	}
	return 0;
}

int sfs_read_kernel(struct sfs_inode *in, uint8_t *dst, uint64_t off, size_t n)
{
	size_t have = off < in->ksize ? (in->ksize - off < n ? (size_t)(in->ksize - off) : n) : 0;

	for (size_t done = 0; done < have;) {
		ssize_t r = sys_pread(in->fd, dst + done, have - done, (off_t)(off + done));

		if (r < 0 && r != -EINTR)
			return (int)r;
		if (r == 0)
			have = done; /* shorter than we knew: somebody else truncated it */
		if (r > 0)
			done += (size_t)r;
	}
	memset(dst + have, 0, n - have);
	return 0;
}

/*
 * A small file that is read once, as most are, is read by the kernel: a fault for each of its pages costs more. The counter is only
 * about right where several threads read.
 */
static bool cold(struct sfs_inode *in, size_t n)
{
	if (likely(in->ksize > COLD_MAX || in->window.cold >= in->ksize))
		return false;
	in->window.cold += n;
	return true;
}

int sfs_read_base(struct sfs_inode *in, uint8_t *dst, uint64_t off, size_t n)
{
	const size_t have = off < in->ksize ? (in->ksize - off < n ? (size_t)(in->ksize - off) : n) : 0;

	if (have > 0 && (!(in->window.dense && in->window.base && off + have <= in->window.len) || cold(in, have)))
		return sfs_read_kernel(in, dst, off, n);
	memcpy(dst, in->window.base + off, have);
	memset(dst + have, 0, n - have);
	return 0;
}

/* [off, off + n) below in->size into the iovec. Lock held. */
static int copy_out(struct sfs_inode *in, struct sfs_cursor c, uint64_t off, size_t n)
{
	const bool staged = __atomic_load_n(&in->staging.count, __ATOMIC_RELAXED) > 0;

	while (n > 0) {
		const uint64_t blk = off / SFS_BLOCK, at = off % SFS_BLOCK;
		const sfs_block b = staged ? sfs_block_get(&in->staging, blk) : 0;
		uint64_t run = 1, bytes;

		/* The longest run of blocks in one place. */
		while (run * SFS_BLOCK - at < n) {
			const sfs_block next = staged ? sfs_block_get(&in->staging, blk + run) : 0;

			if (b ? next != b + run : next != 0)
				break;
			if (!staged) {
				run = (at + n + SFS_BLOCK - 1) / SFS_BLOCK;
				break;
			}
			run++;
		}
		bytes = run * SFS_BLOCK - at < n ? run * SFS_BLOCK - at : n;
		n -= bytes;
		while (bytes > 0) {
			size_t got;
			uint8_t *dst = sfs_cursor_next(&c, bytes, &got);

			if (b) {
				memcpy(dst, sfs_block_addr(&in->vol->pool, b) + (off - blk * SFS_BLOCK), got);
			} else {
				int r = sfs_read_base(in, dst, off, got);

				if (r < 0)
					return r;
			}
			off += got;
			bytes -= got;
		}
	}
	return 0;
}

/* How a read has inode.lock. */
struct hold {
	bool alone; /* exclusively */
	bool lent;  /* see sfs_rwlock_rdlock_long() */
};

static void take(struct sfs_inode *in, size_t n, struct hold *h)
{
	h->lent = false;
	if (h->alone)
		sfs_rwlock_wrlock(&in->lock);
	else if (n < SFS_LONG)
		sfs_rwlock_rdlock(&in->lock);
	else
		h->lent = sfs_rwlock_rdlock_long(&in->lock);
}

static void leave(struct sfs_inode *in, struct hold h)
{
	if (h.alone)
		sfs_rwlock_wrunlock(&in->lock);
	else
		sfs_rwlock_rdunlock_long(&in->lock, h.lent);
}

#define KERNEL 1
/*
 * What a read of n bytes needs, and the lock: shared, or exclusively with h->alone. 0: from the window and staged blocks. KERNEL: by the
 * kernel, with the lock: as long as this read goes on we do not give up the delegation, and nobody stages what it would miss. An error:
 * without the lock.
 */
static int enter(struct sfs_ofd *ofd, struct sfs_inode *in, int fd, uint64_t pos, size_t n, struct hold *h)
{
	const uint64_t end = pos + n;
	struct sfs_volume *vol = in->vol;
	bool looked = false, asked = false;
	int r;

	sfs_step_back(in);
	take(in, n, h);
	for (;;) {
		if (unlikely(load_acquire(&sfs_fds[fd]) != ofd || ofd->inode != in)) {
			r = -EBADF; /* closed by another thread meanwhile */
			break;
		}
		if (likely(sfs_io_prepared(in)) &&
		    (end <= load_acquire(&in->size) || looked || __atomic_load_n(&in->staging.count, __ATOMIC_RELAXED) > 0))
			return 0;
		if (in->ready && in->grant.deleg != SFS_DELEG_NONE && !sfs_inode_served(in) && in->staging.count == 0 &&
		    (!in->grant.untold || asked))
			return KERNEL;
		/* Prepare it, and before end of file is believed look whether somebody without the library wrote more. */
		looked = sfs_io_prepared(in);
		asked = true;
		if (!h->alone) {
			leave(in, *h);
			sfs_rwlock_wrlock(&in->lock);
		}
		if (load_acquire(&sfs_fds[fd]) == ofd && ofd->inode == in) {
			if (looked)
				sfs_inode_reload(in);
			r = sfs_io_prepare(ofd, in, fd);
			if (r == 0 && !sfs_inode_served(in) && in->staging.count > 0)
				r = sfs_flush(in, SFS_RETIRE);
			if (r < 0) {
				sfs_rwlock_wrunlock(&in->lock);
				if (r == -EAGAIN)
					r = sfs_checkpoint(vol, true);
				return r < 0 ? r : enter(ofd, in, fd, pos, n, h);
			}
		}
		if (!h->alone) {
			sfs_rwlock_wrunlock(&in->lock);
			take(in, n, h);
		}
	}
	leave(in, *h);
	return r;
}

/* The read itself at `pos`, however the file is served. */
static ssize_t read_at(struct sfs_ofd *ofd, int fd, const struct iovec *iov, int cnt, uint64_t pos, size_t total)
{
	struct sfs_inode *in = ofd->inode;
	struct sfs_volume *vol = in->vol;
	const struct sfs_cursor c = {iov, 0};
	bool done = false;
	size_t n = 0;
	int r = 0;

	/* Where writers change what is being read, at last with the file to ourselves. */
	for (int tries = 0; !done; tries++) {
		struct hold h = {.alone = tries == LOOKS_MAX};
		uint64_t seen, size;

		r = enter(ofd, in, fd, pos, total, &h);
		if (r == KERNEL) {
			const ssize_t got = sys_preadv2(fd, iov, cnt, (off_t)pos, 0);

			leave(in, h);
			count(vol, passthrough_ops, 1);
			return got;
		}
		if (r < 0)
			return r;
		done = sfs_look_begin(in, &seen) || h.alone || !sfs_flights_over(in, pos, total);
		size = load_acquire(&in->size);
		n = pos >= size ? 0 : total > size - pos ? (size_t)(size - pos) : total;
		if (done && n > 0)
			r = copy_out(in, c, pos, n);
		done = h.alone || (done && sfs_look_end(in, seen));
		leave(in, h);
	}
	if (r < 0)
		return r;
	count(vol, read_ops, 1);
	count(vol, read_bytes, n);
	return (ssize_t)n;
}

static ssize_t readv_of(struct sfs_ofd *ofd, int fd, const struct iovec *iov, int cnt, off_t off)
{
	const ssize_t total = sfs_iov_total(iov, cnt);
	ssize_t r;
	off_t pos;

	if ((ofd->flags & O_ACCMODE) == O_WRONLY)
		return -EBADF;
	if (total < 0)
		return total;
	if (off >= 0)
		return read_at(ofd, fd, iov, cnt, (uint64_t)off, (size_t)total);
	sfs_mutex_lock(&ofd->lock);
	/* Where other processes share the offset the kernel keeps it: reserve the range there. */
	pos = ofd->kernel_off ? sys_lseek(fd, total, SEEK_CUR) : ofd->off;
	if (pos < 0) {
		r = pos;
	} else {
		if (ofd->kernel_off)
			pos -= total;
		r = read_at(ofd, fd, iov, cnt, (uint64_t)pos, (size_t)total);
		if (ofd->kernel_off)
			sys_lseek(fd, (r > 0 ? r : 0) - total, SEEK_CUR);
		else if (r > 0)
			ofd->off += r;
	}
	sfs_mutex_unlock(&ofd->lock);
	return r;
}

ssize_t sfs_readv(int fd, const struct iovec *iov, int cnt, off_t off, int flags)
{
	struct sfs_ofd *ofd = sfs_ofd_of(fd);
	uint64_t *op;
	ssize_t r;

	if (!ofd)
		return SFS_PASS;
	if (flags != 0) {
		r = sfs_make_true(fd, false);
		if (r < 0)
			return r;
		r = sys_preadv2(fd, iov, cnt, off, flags);
		if (off < 0)
			sfs_changed(fd);
		return r;
	}
	if (unlikely(!sfs_op_begin(ofd->inode, &op)))
		return -EDEADLK;
	r = readv_of(ofd, fd, iov, cnt, off);
	sfs_op_end(op);
	return r;
}

/* Is [pos, pos + n) in the window, and nowhere else? Lock held shared. */
static inline bool in_window(const struct sfs_inode *in, uint64_t pos, size_t n)
{
	return sfs_io_prepared(in) && in->window.dense && in->window.base &&
	       __atomic_load_n(&in->staging.count, __ATOMIC_RELAXED) == 0 &&
	       pos + n <= __atomic_load_n(&in->size, __ATOMIC_RELAXED) && pos + n <= in->ksize && pos + n <= in->window.len &&
	       (in->ksize > COLD_MAX || in->window.cold >= in->ksize);
}

/*
 * A short read that is one copy from the window: what read_at() does, without everything that can't be the case. Waits for nothing, so the
 * order of the locks is free; where the inode's is this thread's own that says also who is inside (see sfs_op_begin()). At the file offset
 * when off is negative. False: nothing was done.
 */
bool sfs_read_window(struct sfs_ofd *ofd, int fd, void *buf, size_t n, off_t off)
{
	struct sfs_inode *in = ofd->inode;
	struct sfs_volume *vol = NULL;
	const bool at_offset = off < 0;
	bool own, done = false;
	uint64_t *op = NULL, seen = 0;

	sfs_check_fork();
	if (n - 1 >= SFS_LONG - 1 || sfs_lock_wanted(in))
		return false;
	own = sfs_bias_take(&in->lock.bias);
	if (!own && unlikely(!sfs_op_begin(in, &op)))
		return false;
	if (likely(!at_offset || sfs_mutex_trylock(&ofd->lock))) {
		if (own || likely(sfs_rwlock_tryrdlock(&in->lock))) {
			if (at_offset)
				off = ofd->off;
			done = load_acquire(&sfs_fds[fd]) == ofd && ofd->inode == in && !(at_offset && ofd->kernel_off) &&
			       (ofd->flags & O_ACCMODE) != O_WRONLY && (own || sfs_look_begin(in, &seen)) &&
			       in_window(in, (uint64_t)off, n);
			if (likely(done)) {
				memcpy(buf, in->window.base + off, n);
				vol = in->vol; /* the inode may be another file's when it is unlocked */
				done = own || sfs_look_end(in, seen);
			}
			if (!own)
				sfs_rwlock_rdunlock(&in->lock);
		}
		if (at_offset) {
			if (done)
				ofd->off = off + (off_t)n;
			sfs_mutex_unlock(&ofd->lock);
		}
	}
	if (own)
		sfs_bias_drop(&in->lock.bias);
	sfs_op_end(op);
	if (done) {
		count(vol, read_ops, 1);
		count(vol, read_bytes, n);
	}
	return done;
}

ssize_t sfs_read(int fd, void *buf, size_t n, off_t off)
{
	const struct iovec iov = {buf, n > SFS_IO_MAX ? SFS_IO_MAX : n};

	return sfs_readv(fd, &iov, 1, off, 0);
}
