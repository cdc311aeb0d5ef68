/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads (SplitFS paper section 3.4): every block comes from where the table says, staging file or window. No lock is held: see io/look.h.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "base/sys.h"
#include "files/kernel_offset.h"
#include "io/call.h"
#include "io/io.h"
#include "io/look.h"
#include "io/user.h"

#define LOOKS_MAX 8    /* tries of a read beside writers that change what it reads */
#define STALE_MAX 32   /* tries of one whose window is not the file's */
#define PATIENCE  5000 /* looks, then a store that does not end is one whose thread was stopped, or has left it by a jump */
#define PAUSE_NS  20000
#define WAY_MAX	  10
#define WAY_NS	  50000

/* [off, off + n) below the size into the iovec; what sfs_try() calls. */
struct copy {
	struct sfs_inode *in;
	struct sfs_cursor c;
	uint64_t off;
	size_t n;
	int r;
};

/* Not all of it could be had: `done` bytes before a piece of which r were, or r is why none. As from the kernel, those count. */
static void ended(struct copy *o, size_t done, ssize_t r)
{
	o->n = done + (r > 0 ? (size_t)r : 0);
	o->r = o->n == 0 ? (int)r : 0;
}

static void copy_out(void *arg)
{
	struct copy *o = arg;
	struct sfs_inode *in = o->in;
	struct sfs_cursor c = o->c;
	uint64_t off = o->off;
	size_t n = o->n;
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
				const ssize_t r = sfs_read_base(in, dst, off, got);

				if (unlikely(r < (ssize_t)got)) {
					ended(o, off - o->off, r);
					return;
				}
			}
			off += got;
			bytes -= got;
		}
	}
}

/* Somebody waits for the end of all reads by the kernel: another process is to have the file. Not for long, it may be a program that never ends. */
static void give_way(struct sfs_inode *in)
{
	for (int i = 0; i < WAY_MAX && unlikely(__atomic_load_n(&in->wanted, __ATOMIC_RELAXED)); i++)
		sys_nap(WAY_NS);
}

enum { LOOK = 1, KERNEL };
/*
 * Under the lock, what a read needs. LOOK: it is there. KERNEL: the kernel is to read, counted in by_kernel and with *op still
 * marked: meanwhile we do not give up the grant, and nobody stages what the read would miss. reload: ask the kernel for the size.
 */
static int prepare(struct sfs_ofd *ofd, struct sfs_inode *in, int fd, bool reload, uint64_t **op)
{
	struct sfs_volume *vol;
	int r = 0;

	give_way(in);
	if (unlikely(!sfs_op_begin(in, op)))
		return -EDEADLK;
	sfs_inode_lock(in);
	vol = in->vol;
	if (unlikely(!sfs_fd_still(fd, ofd, in))) {
		r = SFS_GONE;
	} else {
		if (reload)
			sfs_inode_reload(in);
		r = sfs_io_prepare(ofd, in, fd);
		if (r == 0 && !sfs_inode_served(in) && in->staging.count > 0)
			r = sfs_flush(in, SFS_RETIRE);
		if (r == 0)
			r = sfs_inode_served(in) ? LOOK : KERNEL;
	}
	in->by_kernel += r == KERNEL;
	sfs_inode_unlock(in);
	if (r == KERNEL)
		return r;
	sfs_op_end(*op);
	if (r == -EAGAIN)
		r = sfs_checkpoint(vol, true);
	else if (r == SFS_TURN)
		r = sfs_turn_wait(in);
	return r == 0 ? LOOK : r;
}

static ssize_t read_kernel(struct sfs_inode *in, int fd, const struct iovec *iov, int cnt, uint64_t pos, uint64_t *op)
{
	const ssize_t got = sys_preadv2(fd, iov, cnt, (off_t)pos, 0);

	count(in->vol, passthrough_ops, 1);
	sfs_inode_take(in);
	in->by_kernel--;
	sfs_inode_drop(in);
	sfs_op_end(op);
	return got;
}

/* Is somebody storing in place in what is to be read? A handler that reads what the call it interrupts is about to store sees whatever is there. */
static bool stores_meet(struct sfs_inode *in, uint64_t from, uint64_t to)
{
	uint64_t *op;
	bool met;

	if (!sfs_op_begin(in, &op))
		return false;
	sfs_inode_take(in);
	met = sfs_stores_meet(in, from, to);
	sfs_inode_drop(in);
	sfs_op_end(op);
	return met;
}

/* Somebody has the lock for long: when it is free again, what is to be read does not change. */
static void wait_for_lock(struct sfs_inode *in)
{
	uint64_t *op;

	if (!sfs_op_begin(in, &op))
		return;
	sfs_inode_take(in);
	sfs_inode_drop(in);
	sfs_op_end(op);
}

/*
 * What comes of a fault in the copy of *n bytes: -EFAULT; -EIO: poisoned memory; -ESTALE: the window is not what it was, somebody has cut the file
 * off without our knowing it; -EAGAIN: again, for *n bytes, which are those before the fault.
 */
static int faulted(const struct sfs_fault *f, struct sfs_cursor c, size_t *n, bool settled)
{
	const size_t good = sfs_user_offset(c, *n, f);

	if (good < *n) {
		*n = good;
		return good ? -EAGAIN : -EFAULT;
	}
	if (!settled)
		return -EAGAIN;
	return f->sig == SIGBUS && (f->code == BUS_MCEERR_AR || f->code == BUS_MCEERR_AO) ? -EIO : -ESTALE;
}

/* After too many looks: writers store under the lock from now on, and what they have begun ends. */
static void quiet(struct sfs_inode *in, bool on)
{
	__atomic_add_fetch(&in->flights.quiet, on ? 1 : -1, __ATOMIC_RELAXED);
}

/* One look: r < 0, or r bytes. -EAGAIN: again. */
static ssize_t look_once(struct sfs_inode *in, const struct iovec *iov, uint64_t pos, size_t *total, bool patient)
{
	const uint64_t seen = sfs_look(in), size = load_acquire(&in->size);
	struct copy o = {.in = in, .c = {iov, 0}, .off = pos, .n = pos >= size ? 0 : *total > size - pos ? size - pos : *total};
	struct sfs_fault f;

	if (unlikely(seen & SFS_CHANGES_ALONE)) {
		wait_for_lock(in);
		return -EAGAIN;
	}
	if (unlikely(seen & SFS_CHANGES_STORES) && patient && stores_meet(in, pos, pos + *total)) {
		sys_nap(PAUSE_NS);
		return -EAGAIN;
	}
	if (in->vol->mode == SFS_POSIX && __atomic_load_n(&in->staging.count, __ATOMIC_RELAXED) > 0 &&
	    !sfs_visible(in, seen, pos + o.n))
		sfs_make_visible(in, seen);
	if (o.n > 0 && unlikely(!sfs_try(copy_out, &o, &f))) {
		*total = o.n;
		return faulted(&f, o.c, total, sfs_looked(in, seen, pos, pos + o.n));
	}
	if (!sfs_looked(in, seen, pos, pos + *total))
		return -EAGAIN;
	return o.r < 0 ? o.r : (ssize_t)o.n;
}

/* The read itself at `pos`, however the file is served. */
static ssize_t read_at(struct sfs_ofd *ofd, int fd, const struct iovec *iov, int cnt, uint64_t pos, size_t total)
{
	struct sfs_inode *in = ofd->inode;
	struct sfs_volume *vol = in->vol;
	bool looked = false, hushed = false, stale = false;
	uint64_t *op;
	ssize_t r;

	if (unlikely(pos + total > INT64_MAX))
		return -EINVAL; /* not 0, though it is beyond any end */
	for (int tries = 0;; tries++) {
		const bool prepared = sfs_io_prepared(in);

		r = likely(sfs_fd_still(fd, ofd, in)) ? -EAGAIN : SFS_GONE;
		if (r == SFS_GONE)
			break;
		/* Before end of file is believed, look whether somebody without the library wrote more. */
		if (unlikely(!prepared || stale ||
			     (!looked && pos + total > load_acquire(&in->size) &&
			      __atomic_load_n(&in->staging.count, __ATOMIC_RELAXED) == 0))) {
			r = prepare(ofd, in, fd, prepared, &op);
			looked = looked || prepared;
			if (r == LOOK)
				continue;
			if (r == KERNEL)
				r = read_kernel(in, fd, iov, cnt, pos, op);
			if (hushed)
				quiet(in, false);
			return r;
		}
		if (unlikely(tries >= LOOKS_MAX && !hushed))
			quiet(in, hushed = true);
		r = look_once(in, iov, pos, &total, tries < PATIENCE);
		if (r >= 0 && unlikely(!sfs_fd_still(fd, ofd, in)))
			continue;
		stale = r == -ESTALE && tries < STALE_MAX;
		if (r != -EAGAIN && !stale)
			break;
	}
	if (hushed)
		quiet(in, false);
	if (r < 0)
		return r == -ESTALE ? -EIO : r;
	count(vol, read_ops, 1);
	count(vol, read_bytes, r);
	return r;
}

/* The offset moves from where the read began. False: another thread has moved it meanwhile. */
static bool advance(struct sfs_ofd *ofd, uint32_t number, off_t from, ssize_t n)
{
	bool ok;

	sfs_mutex_take(&ofd->lock);
	ok = (ofd->off == from && !ofd->kernel_off) || ofd->number != number;
	if (ok && ofd->number == number)
		__atomic_store_n(&ofd->off, from + n, __ATOMIC_RELAXED);
	sfs_mutex_drop(&ofd->lock);
	return ok;
}

static ssize_t read_next(struct sfs_ofd *ofd, int fd, const struct iovec *iov, int cnt, size_t total)
{
	const uint32_t number = load_acquire(&ofd->number);
	struct sfs_inode *in = ofd->inode;
	uint64_t *op;
	ssize_t r;
	off_t pos;
	bool ok;

	r = sfs_offset_own(ofd, fd);
	if (r < 0)
		return r;
	do {
		/* Where other processes share the offset the kernel keeps it: reserve the range there. */
		if (ofd->kernel_off && sfs_kernel_offset_is(ofd)) {
			/* Another thread may have made the descriptor another file's. */
			pos = likely(sfs_fd_still(fd, ofd, in)) ? sys_lseek(fd, (off_t)total, SEEK_CUR) : SFS_GONE;
			r = pos < 0 ? pos : read_at(ofd, fd, iov, cnt, (uint64_t)pos - total, total);
			if (pos >= 0)
				sys_lseek(fd, (r > 0 ? r : 0) - (off_t)total, SEEK_CUR);
			sfs_kernel_offset_end(ofd);
			return r;
		}
		pos = __atomic_load_n(&ofd->off, __ATOMIC_RELAXED);
		r = read_at(ofd, fd, iov, cnt, (uint64_t)pos, total);
		if (r <= 0)
			return r;
		if (unlikely(!sfs_op_begin(in, &op)))
			return -EDEADLK;
		ok = advance(ofd, number, pos, r);
		sfs_op_end(op);
	} while (!ok);
	return r;
}

static ssize_t read_to(struct sfs_ofd *ofd, int fd, struct sfs_vector v, off_t off, int flags)
{
	struct sfs_taken taken;
	ssize_t total, r;

	r = sfs_unheld_read(ofd, fd, v, off, flags, &taken);
	if (r == SFS_AGAIN) {
		r = read_at(ofd, fd, v.iov, v.cnt, (uint64_t)taken.at, (size_t)taken.n);
		return r < taken.n ? r : taken.n;
	}
	if (r != SFS_PASS)
		return r;
	if (flags != 0) {
		r = sfs_true_to_look(fd);
		if (r < 0)
			return r;
		r = sys_preadv2(fd, v.iov, v.cnt, off, flags);
		if (off < 0)
			sfs_changed(fd);
		return r;
	}
	if (!sfs_may_read(ofd->flags))
		return -EBADF;
	total = sfs_user_total(v.iov, v.cnt);
	if (total < 0)
		return total;
	return off < 0 ? read_next(ofd, fd, v.iov, v.cnt, (size_t)total)
		       : read_at(ofd, fd, v.iov, v.cnt, (uint64_t)off, (size_t)total);
}

ssize_t sfs_readv(int fd, const struct iovec *iov, int cnt, off_t off, int flags)
{
	return sfs_call_on(fd, (struct sfs_vector){iov, cnt, false}, off, flags, read_to);
}

/*
 * A short read that is one copy from the window: what read_at() does, without everything that can't be the case. At the file offset
 * when off is negative. False: nothing was done.
 */
bool sfs_read_window(struct sfs_ofd *ofd, int fd, void *buf, size_t n, off_t off)
{
	struct sfs_inode *in = ofd->inode;
	const bool at_offset = off < 0;
	const uint32_t number = load_acquire(&ofd->number);
	struct sfs_volume *vol;
	uint64_t seen, end;
	uint64_t *op;
	bool done;

	sfs_check_fork();
	if (at_offset)
		off = __atomic_load_n(&ofd->off, __ATOMIC_RELAXED);
	seen = sfs_look(in);
	end = (uint64_t)off + n;
	if (n - 1 >= SFS_LONG - 1 || unlikely(seen & (SFS_CHANGES_ALONE | SFS_CHANGES_STORES)) ||
	    (at_offset && ofd->kernel_off) || !sfs_may_read(ofd->flags) || !sfs_io_prepared(in) || !in->window.dense ||
	    !in->window.base || __atomic_load_n(&in->staging.count, __ATOMIC_RELAXED) || end > load_acquire(&in->size) ||
	    end > in->ksize || end > in->window.len || !sfs_read_warm(in, n))
		return false;
	vol = in->vol;
	done = sfs_copy(buf, in->window.base + off, n) && sfs_fd_still(fd, ofd, in) && sfs_looked(in, seen, (uint64_t)off, end);
	if (unlikely(!done))
		return false;
	if (at_offset) {
		if (unlikely(!sfs_op_begin(in, &op)))
			return false;
		done = advance(ofd, number, off, (ssize_t)n);
		sfs_op_end(op);
		if (!done)
			return false;
	}
	count(vol, read_ops, 1);
	count(vol, read_bytes, n);
	return true;
}

ssize_t sfs_read(int fd, void *buf, size_t n, off_t off)
{
	const struct iovec iov = {buf, n > SFS_IO_MAX ? SFS_IO_MAX : n};

	return sfs_call_on(fd, (struct sfs_vector){&iov, 1, true}, off, 0, read_to);
}
