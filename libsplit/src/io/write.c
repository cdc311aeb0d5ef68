/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes. In place: overwrites in posix and sync, stored through the window and fenced. Staged: everything that changes the size,
 * everything in strict, and every write to a block that is staged already. By the kernel: whatever we do not serve.
 *
 * A write plans, copies and ends (io/attempt.c). Nothing is held while it copies, so what it has planned may not hold any more when it ends:
 * then it is made again. Here is what goes around that: staging space, a full log, memory for a write that has been made again too often, and
 * the file offset.
 */
#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "files/kernel_offset.h"
#include "io/call.h"
#include "io/offset.h"
#include "io/user.h"

#define OUTRUN_MAX	 64u /* times that one write relinks everything and others take the space */
#define LEASES_MAX	 16u /* tries of one write to get staging space */
#define WHOLE_LEASES_MAX (SFS_EXTENTS_MAX + LEASES_MAX)
#define ROUNDS_MAX	 3u /* then its bytes are copied beforehand, and it is made in one section of the lock */
#define PAUSE_NS	 50000
#define PIECE_MAX	 (8ul << 20) /* bytes: posix promises no more of a longer write than of several */

/* No staging space, or no memory for the block table: everything is relinked, so that staging files become free; where that does not help, the kernel writes. */
static ssize_t without_staging(struct sfs_attempt *a, ssize_t why)
{
	ssize_t r;

	if (a->in->vol->mode == SFS_STRICT)
		return why;
	do
		r = sfs_attempt_kernel(a);
	while ((r == -EAGAIN && sfs_checkpoint(a->in->vol, true) == 0) || (r == SFS_TURN && sfs_turn_wait(a->in) == 0));
	return r == -EAGAIN ? why : r == SFS_TURN ? -EINTR : r;
}

void sfs_write_give_back(struct sfs_inode *in)
{
	uint64_t *op;
	int r;

	if (in->grant.state != GRANT_ONCE || !sfs_op_begin(in, &op))
		return;
	do {
		sfs_inode_lock(in);
		r = in->grant.state == GRANT_ONCE ? sfs_step_down(in, SFS_DELEG_SHARED) : 0;
		sfs_inode_unlock(in);
	} while (r == -EAGAIN && sfs_checkpoint(in->vol, true) == 0);
	sfs_op_end(op);
}

struct space {
	unsigned leases, outrun;
	bool emptied;
};

/* There is no staging space (-ENOBUFS): before it is tried again. */
static void find_space(struct sfs_attempt *a, struct space *s, uint64_t blocks)
{
	struct sfs_volume *vol = a->in->vol;
	/* In strict there is no other way to write it whole than more than our part of the pool. */
	const bool whole = s->emptied && vol->mode == SFS_STRICT;
	const bool over = whole && !a->append && sfs_staged_over(a->in, sfs_attempt_about(a) + a->n);
	const enum sfs_lease_for use = over ? SFS_LEASE_OVER : whole ? SFS_LEASE_WHOLE : SFS_LEASE_ANY;
	/* Other threads may take what we lease: not for ever. */
	const int r = s->leases++ < (whole ? WHOLE_LEASES_MAX : LEASES_MAX) ? sfs_chunk_lease(vol, blocks, use) : -ENOSPC;

	if (r == 0)
		return;
	a->part = s->emptied;
	s->leases = 0;
	/* There is space now, but other threads may take it first. In strict there is no other way to write. */
	if (sfs_flush_all(vol, SFS_RETIRE) < 0 || vol->mode != SFS_STRICT || s->outrun++ == OUTRUN_MAX ||
	    !(sfs_pool_room(&vol->pool, blocks) || __atomic_load_n(&vol->pool.region_blocks, __ATOMIC_RELAXED)))
		s->emptied = true;
}

/* One operation, a->n bytes of it at most; returns the bytes written. */
static ssize_t write_op(struct sfs_attempt *a)
{
	struct sfs_inode *in = a->in;
	struct space s = {0};
	unsigned rounds = 0;
	ssize_t r;

	for (;;) {
		r = sfs_attempt(a);
		if (likely(r >= 0))
			break;
		if (r == SFS_BUSY) {
			sys_nap(PAUSE_NS);
		} else if (r == SFS_AGAIN) {
			if (++rounds >= ROUNDS_MAX && !a->mem && !sfs_attempt_gather(a))
				return -EFAULT;
		} else if (r == SFS_GATHER) {
			if (!sfs_attempt_gather(a))
				return -EFAULT;
		} else if (r == -EAGAIN || r == SFS_TURN) {
			r = r == SFS_TURN ? sfs_turn_wait(in) : sfs_checkpoint(in->vol, true);
			if (sfs_attempt_is_parents(a))
				return (ssize_t)a->n;
			if (r < 0)
				break;
		} else if (r == -ESTALE && a->buffer) {
			a->buffer = NULL; /* its blocks are not ours any more: it is copied */
		} else if (r == -ENOBUFS && in->vol->agent.state == VOL_READY && !a->part) {
			find_space(a, &s, a->buffer ? 2 : a->n / SFS_BLOCK + 2);
		} else if (r == -E2BIG) {
			a->part = true;
		} else if (r == -ENOSPC && !s.emptied && in->vol->agent.state == VOL_READY) {
			s.emptied = true;
			sfs_flush_all(in->vol, SFS_RETIRE);
		} else if (r == -ENOMEM || ((r == -ENOSPC || r == -ENOBUFS) && s.emptied)) {
			r = without_staging(a, r == -ENOBUFS ? -ENOSPC : r);
			break;
		} else {
			break;
		}
	}
	if (unlikely(in->grant.state == GRANT_ONCE) && r >= 0)
		sfs_write_give_back(in);
	return r;
}

/* The whole of it, in pieces where the mode promises nothing of it as a whole or there is less space. */
static ssize_t write_all(struct sfs_attempt *a, size_t total)
{
	const enum sfs_mode mode = a->in->vol->mode;
	const size_t longest = mode == SFS_POSIX ? PIECE_MAX : mode == SFS_STRICT ? SFS_WHOLE_MAX : SIZE_MAX;
	size_t done = 0;
	ssize_t r;

	do {
		const size_t left = total - done;

		if (unlikely(a->forks != sfs.forks))
			return (ssize_t)total; /* a handler has forked, and this is the child: the parent makes it */
		a->n = left < longest ? left : longest;
		a->part = false;
		r = write_op(a);
		sfs_attempt_settle(a, r);
		sfs_attempt_forget(a);
		if (r <= 0)
			break;
		done += (size_t)r;
		a->start += (size_t)r;
		if (!a->append)
			a->pos += r;
		/* In strict what others give back meanwhile would make it two operations; and one that reaches RLIMIT_FSIZE is no error. */
	} while (done < total && !a->cut && !(a->part && a->in->vol->mode == SFS_STRICT) &&
		 (uint64_t)(a->at + a->last) < sfs.fsize_limit);
	return done > 0 ? (ssize_t)done : r;
}

/* O_SYNC, O_DSYNC and their like for one call. */
static int make_durable(struct sfs_ofd *ofd, struct sfs_inode *in, int fd, int flags)
{
	int r = 0;

	sfs_inode_lock(in);
	/* Closed by another thread meanwhile: that has relinked, and the description may be another file's by now. */
	if (likely(sfs_fd_still(fd, ofd, in)))
		r = sfs_flush_fsync(ofd, fd, !((ofd->flags & O_SYNC) == O_SYNC || (flags & RWF_SYNC)));
	sfs_inode_unlock(in);
	return r == -EAGAIN ? sfs_checkpoint(in->vol, true) : r;
}

int sfs_write_durable(struct sfs_ofd *ofd, struct sfs_inode *in, int fd, int flags)
{
	uint64_t *op;
	int r;

	if (likely(!((ofd->flags & (O_DSYNC | O_SYNC)) || (flags & (RWF_DSYNC | RWF_SYNC)))))
		return 0;
	if (unlikely(!sfs_op_begin(in, &op)))
		return -EDEADLK;
	r = make_durable(ofd, in, fd, flags);
	sfs_op_end(op);
	return r;
}

/* total: of the lengths, or what is wrong with them. */
static ssize_t writev_of(struct sfs_ofd *ofd, int fd, const struct iovec *iov, int cnt, ssize_t total, off_t off, int flags)
{
	struct sfs_attempt a;
	ssize_t r;

	if (!sfs_may_write(ofd->flags))
		return -EBADF;
	if (total <= 0)
		return total;
	sfs_attempt_begin(&a, ofd, fd, iov, cnt, flags);
	r = off < 0 ? sfs_offset_own(ofd, fd) : 0;
	if (r < 0)
		return r;
	/* On Linux O_APPEND wins over the position of pwrite(2). */
	a.append = ((sfs_ofd_shared(ofd) ? sys_fcntl(fd, F_GETFL, 0) : ofd->flags) & O_APPEND) || (flags & RWF_APPEND);
	a.pos = off;
	a.at_offset = off < 0;
	r = write_all(&a, (size_t)total);
	if (unlikely(a.forks != sfs.forks))
		return r;
	if (r > 0 && (size_t)r > a.by_kernel) {
		const int err = sfs_write_durable(ofd, a.in, fd, flags);

		if (err < 0)
			return err;
	}
	return r;
}

ssize_t sfs_write_buffer(struct sfs_ofd *ofd, int fd, const void *p, size_t n, off_t off, bool blocks)
{
	const struct iovec iov = {(void *)p, n};
	struct sfs_attempt a;

	sfs_attempt_begin(&a, ofd, fd, &iov, 1, 0);
	a.pos = off;
	a.n = n;
	a.mem = (uint8_t *)p;
	a.buffer = blocks ? p : NULL;
	return write_op(&a);
}

static ssize_t write_to(struct sfs_ofd *ofd, int fd, struct sfs_vector v, off_t off, int flags)
{
	ssize_t r;

	r = sfs_unheld_write(ofd, fd, v, off, flags);
	if (r != SFS_PASS)
		return r;
	if (flags & ~(RWF_DSYNC | RWF_SYNC | RWF_APPEND)) {
		struct sfs_change change;
		int err;

		r = sfs_true_to_change(fd, &change);
		if (r < 0)
			return r;
		r = sys_pwritev2(fd, v.iov, v.cnt, off, flags);
		err = sfs_change_over(fd, &change, r > 0);
		return err < 0 ? err : r;
	}
	return writev_of(ofd, fd, v.iov, v.cnt, v.one ? sfs_iov_total(v.iov, 1) : sfs_user_total(v.iov, v.cnt), off, flags);
}

ssize_t sfs_writev(int fd, const struct iovec *iov, int cnt, off_t off, int flags)
{
	return sfs_call_on(fd, (struct sfs_vector){iov, cnt, false}, off, flags, write_to);
}

ssize_t sfs_write(int fd, const void *buf, size_t n, off_t off)
{
	const struct iovec iov = {(void *)buf, n > SFS_IO_MAX ? SFS_IO_MAX : n};
	struct sfs_ofd *ofd = off < 0 ? sfs_known(fd) : NULL;

	if (ofd && sfs_append(ofd, fd, buf, n))
		return (ssize_t)n;
	return sfs_call_on(fd, (struct sfs_vector){&iov, 1, true}, off, 0, write_to);
}
