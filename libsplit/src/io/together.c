/* SPDX-License-Identifier: Apache-2.0 */
#include "io/together.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/sys.h"
#include "io/call.h"
#include "io/user.h"

#define BUSY_NS	      10000000000ll /* so long others may take a file away between PREPARED and LOCKED */
#define PAUSE_NS      50000l
#define PAUSE_DOUBLED 7	  /* times: up to 6.4 ms */
#define LEASES_MAX    20u /* of staging files that other threads take */

/* What is wrong with a range, before anything is done; 0. */
static int look_at(const struct sfs_range *r, struct sfs_ofd **ofd)
{
	const int flags = sys_fcntl(r->fd, F_GETFL, 0);

	if (flags < 0)
		return flags;
	if (!sfs_may_write(flags) || (flags & O_PATH))
		return -EBADF;
	if (r->off < 0 || r->len > SSIZE_MAX || (flags & O_APPEND))
		return -EINVAL;
	if (r->len > SFS_FILE_MAX || sfs_too_far((uint64_t)r->off + r->len))
		return -EFBIG;
	*ofd = sfs_ofd_of(r->fd);
	return *ofd ? 0 : -ENOTSUP;
}

/* The files in the order of their locks. */
static int add_file(struct sfs_together *t, struct sfs_inode *in)
{
	int i = 0;

	for (; i < t->files && t->file[i].in < in; i++)
		;
	if (i < t->files && t->file[i].in == in)
		return 0;
	if (t->files == SFS_TOGETHER_FILES)
		return -EINVAL;
	for (int k = t->files++; k > i; k--)
		t->file[k].in = t->file[k - 1].in;
	t->file[i].in = in;
	return 0;
}

/*
 * In the order of the files' numbers, so that all processes ask for the same files in one order; those of one file in the order of the call, as
 * they may overlap.
 */
static void add_part(struct sfs_together *t, const struct sfs_part *p)
{
	int i = t->parts++;

	for (; i > 0 && t->part[i - 1].in->ino > p->in->ino; i--)
		t->part[i] = t->part[i - 1];
	t->part[i] = *p;
}

/* Which files and how much. The bytes are still the program's. */
static int take_parts(struct sfs_together *t, const struct sfs_range *ranges, int n, size_t *total)
{
	*total = 0;
	for (int i = 0; i < n; i++) {
		const struct sfs_range *r = &ranges[i];
		struct sfs_ofd *ofd;
		int err = look_at(r, &ofd);

		if (err < 0)
			return err;
		if (t->vol && ofd->inode->vol != t->vol)
			return -EXDEV;
		t->vol = ofd->inode->vol;
		if (r->len == 0)
			continue;
		add_part(t, &(struct sfs_part){ofd, ofd->inode, r->fd, (uint64_t)r->off, r->len, r->buf, false});
		t->blocks += r->len / SFS_BLOCK + 2;
		*total += r->len;
		err = add_file(t, ofd->inode);
		if (err < 0)
			return err;
		if (*total > SFS_FILE_MAX)
			return -EFBIG;
	}
	if (t->vol->mode != SFS_STRICT ||
	    (t->files > 1 && !(t->vol->agent.features & SFS_FEATURE_FILES) && t->vol->agent.state == VOL_READY))
		return -ENOTSUP;
	return 0;
}

static int gather(struct sfs_together *t, uint8_t *to)
{
	for (int i = 0; i < t->parts; i++) {
		struct sfs_part *p = &t->part[i];
		const struct iovec iov = {(void *)p->bytes, p->len};

		if (sfs_user_gather((struct sfs_cursor){&iov, 0}, to, p->len) < p->len)
			return -EFAULT;
		p->bytes = to;
		to += p->len;
	}
	return 0;
}

static int commit(const struct sfs_part *p)
{
	uint64_t *op;
	int r = SFS_GONE;

	if (!sfs_op_begin(p->in, &op))
		return -EDEADLK;
	sfs_inode_lock(p->in);
	if (sfs_fd_still(p->fd, p->ofd, p->in))
		r = sfs_flush_fsync(p->ofd, p->fd, true);
	sfs_io_leave(p->in, true, op);
	return r;
}

/* Each file becomes ours; nobody else's lock is held while the agent is asked. */
static int prepare(struct sfs_together *t)
{
	int r = 0;

	for (int i = 0; r == 0 && i < t->parts; i++) {
		struct sfs_part *p = &t->part[i];

		/* What is written in one step is not to outlive what is older and not committed. */
		if (t->vol->mode == SFS_POSIX && sfs_records_volatile(&p->in->counted))
			r = commit(p);
		if (r == 0)
			r = sfs_attempt_prepare(p->ofd, p->in, p->fd, p->off, t->alone);
		if (r == SFS_TURN) {
			r = sfs_turn_wait(p->in);
			return r < 0 ? r : SFS_BUSY;
		}
		p->keeps = p->in->privileged;
		/* No more records fit, or what is staged is too far away. */
		if (r == -EAGAIN)
			r = sfs_checkpoint(t->vol, true);
	}
	return r;
}

static bool still_ours(const struct sfs_together *t)
{
	for (int i = 0; i < t->files; i++) {
		const struct sfs_inode *in = t->file[i].in;

		if (!sfs_io_prepared(in) || !in->writable || sfs_kernel_busy(in))
			return false;
	}
	for (int i = 0; i < t->parts; i++)
		if (sfs_far_apart(t->part[i].in, t->part[i].off) || (t->part[i].in->privileged && !t->part[i].keeps))
			return false;
	return true;
}

static int still_open(const struct sfs_together *t)
{
	for (int i = 0; i < t->parts; i++) {
		const struct sfs_part *p = &t->part[i];

		if (!sfs_fd_still(p->fd, p->ofd, p->in))
			return SFS_GONE;
	}
	return 0;
}

/* False: this thread is inside a call on one of them. */
static bool lock_all(struct sfs_together *t)
{
	for (int i = 0; i < t->files; i++) {
		if (sfs_op_begin(t->file[i].in, &t->file[i].op))
			continue;
		while (i-- > 0)
			sfs_op_end(t->file[i].op);
		return false;
	}
	for (int i = 0; i < t->files; i++)
		sfs_inode_lock(t->file[i].in);
	return true;
}

static void unlock_all(struct sfs_together *t)
{
	for (int i = t->files; i-- > 0;)
		sfs_inode_unlock(t->file[i].in);
	/* A handler that was put off is called when all marks are gone, so that it may call for any of the files. */
	for (int i = t->files; i-- > 0;)
		if (t->file[i].op)
			__atomic_store_n(t->file[i].op, 0, __ATOMIC_RELAXED);
	for (int i = t->files; i-- > 0;)
		sfs_op_end(t->file[i].op);
}

/* One try. SFS_BUSY: again. */
static int attempt(struct sfs_together *t)
{
	int r = prepare(t);

	if (r < 0)
		return r;
	if (!lock_all(t))
		return -EDEADLK;
	r = still_open(t);
	if (r == 0)
		r = still_ours(t) ? t->act(t) : SFS_BUSY;
	unlock_all(t);
	return r;
}

/* Staging space for all of it. Where there is none everything is relinked; what that has emptied goes back, and comes again. */
static int find_space(struct sfs_together *t)
{
	int r = sfs_chunk_lease(t->vol, t->blocks, SFS_LEASE_WHOLE);

	for (unsigned tries = 0; r == -ENOSPC && tries < LEASES_MAX; tries++) {
		sfs_flush_all(t->vol, SFS_RETIRE);
		if (sfs_pool_room(&t->vol->pool, t->blocks))
			return 0;
		sfs_pool_idle(&t->vol->pool);
		r = sfs_chunk_lease(t->vol, t->blocks, SFS_LEASE_WHOLE);
		if (r == -ENOSPC)
			sys_nap(PAUSE_NS);
	}
	return r;
}

/* Longer with each try, and not as long as another thread's: two processes that take files from each other end it. */
static void pause_before(unsigned try)
{
	const long most = PAUSE_NS << (try < PAUSE_DOUBLED ? try : PAUSE_DOUBLED);
	const uint32_t mixed = ((uint32_t)sys_call0(SYS_gettid) + try) * 2654435761u;

	sys_nap(most / 2 + (long)(mixed >> 8) % (most / 2));
}

/* Once more? *begun: when that was asked first, 0 before. Who gets the files at once asks for no time. */
static bool in_time(int64_t *begun)
{
	const int64_t now = sys_now_ns();

	if (*begun == 0)
		*begun = now;
	return now - *begun < BUSY_NS;
}

int sfs_together_attempts(struct sfs_together *t)
{
	const uint32_t forks = sfs.forks;
	int64_t begun = 0;
	int r = SFS_BUSY;

	for (unsigned tries = 0; tries == 0 || in_time(&begun); tries++) {
		r = attempt(t);
		/* While it waited a handler has forked: the parent makes it. */
		if (r == SFS_BUSY && sfs_is_child(forks))
			return 0;
		/* After the first checkpoint the agent may be making the log longer. */
		if (r == SFS_BUSY || (r == -EAGAIN && tries > 1))
			pause_before(tries);
		if (r == SFS_BUSY)
			continue;
		if (r == -EAGAIN)
			r = sfs_checkpoint(t->vol, true);
		else if (r == -ENOBUFS)
			r = find_space(t);
		else
			return r;
		if (r < 0)
			return r;
	}
	return -EBUSY;
}

static int write_together(const struct sfs_range *ranges, int n)
{
	struct sfs_together *t;
	size_t total;
	int r;

	sfs_check_fork();
	if (n < 1 || n > SFS_TOGETHER_RANGES)
		return -EINVAL;
	t = (struct sfs_together *)sfs_user_alloc(sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->act = sfs_together_write;
	r = take_parts(t, ranges, n, &total);
	if (r == 0 && total > 0) {
		uint8_t *bytes = sfs_user_alloc(total);

		r = bytes ? gather(t, bytes) : -ENOMEM;
		if (r == 0)
			r = sfs_together_attempts(t);
		if (r == 0) {
			count_later(t->vol, atomic_ops, 1);
			count_later(t->vol, atomic_bytes, total);
		}
		for (int i = 0; i < t->files; i++)
			sfs_write_give_back(t->file[i].in);
		for (int i = 0; r == 0 && i < t->parts; i++)
			r = sfs_write_durable(t->part[i].ofd, t->part[i].in, t->part[i].fd, 0);
		if (bytes)
			sfs_user_free(bytes, total);
	}
	sfs_user_free((uint8_t *)t, sizeof(*t));
	return r;
}

int sfs_write_atomic(const struct sfs_range *ranges, int n)
{
	bool gone;
	int r;

	do {
		r = write_together(ranges, n);
		gone = false;
		for (int i = 0; r == SFS_GONE && i < n; i++)
			gone = sfs_gone(r, ranges[i].fd) || gone;
	} while (gone);
	return r;
}
