/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots without a copy: splitfs_peek(3), zerocopy/pins.h. What is staged of the range is relinked first, so that
 * a snapshot is one piece of the file; stores in place that are under way are waited for. Both under inode.lock, as
 * is everything that changes the file, so a snapshot is from one moment.
 *
 * Where there is a copy to be made (a hole, a store that does not end, a relink that fails) the caller reads the
 * range instead.
 */
#include <errno.h>
#include <limits.h>

#include "base/holes.h"
#include "base/sys.h"
#include "files/pays.h"
#include "io/call.h"
#include "io/io.h"
#include "io/peek.h"

#define TRIES_QUIET 8
#define OFTEN	    4096
#define TRIES_MAX   2000
#define PAUSE_NS    50000

/*
 * Of all files: who changes one that it can't name is at work. Stored before the files' locks are taken, so that each
 * of them tells.
 */
static uint32_t barred;

void sfs_peek_bar(bool on)
{
	__atomic_add_fetch(&barred, on ? 1 : -1, __ATOMIC_SEQ_CST);
}

struct peek {
	struct sfs_ofd *ofd;
	struct sfs_inode *in;
	int fd;
	uint64_t off;
	size_t len;
	/* the result */
	const uint8_t *p;
	size_t n;
};

/* Of the range, what is below the size. */
static size_t below_size(const struct peek *k)
{
	const uint64_t size = k->in->size;

	return k->off >= size ? 0 : k->len < size - k->off ? k->len : (size_t)(size - k->off);
}

static bool staged(const struct peek *k)
{
	const size_t n = below_size(k);

	return n > 0 && sfs_staging_any(&k->in->staging, k->off, n);
}

/* Nothing has to be done before it is pinned. */
static bool ready(const struct peek *k)
{
	return sfs_io_prepared(k->in) && k->in->grant.state == GRANT_WATCHED &&
	       (below_size(k) == k->len || k->in->staging.count > 0) && !staged(k);
}

/*
 * Others have had the file, too, and may be gone. That is asked after 1, 2, 4, ... snapshots that it would have been
 * good for. Then, that whoever comes without the library waits for us.
 */
static int own(struct peek *k)
{
	struct sfs_inode *in = k->in;
	const uint32_t n = ++in->peeks;
	const bool ask = n % OFTEN == 0 || (n & (n - 1)) == 0;

	if (in->grant.state == GRANT_SHARED && !sfs_by_kernel(in) && in->vol->owners && ask) {
		const int r = sfs_inode_try(in);

		if (r == SFS_BUSY)
			in->peeks--; /* it is asked when that has ended */
		if (r != 1)
			return r == SFS_BUSY ? r : -ENOTSUP;
	}
	if (sfs_inode_served(in) && in->grant.state == GRANT_EXCLUSIVE && ask)
		sfs_agent_watch(in->vol, &in->grant, in->ino, in->gen, in->fd);
	return sfs_inode_served(in) && in->grant.state == GRANT_WATCHED ? 0 : -ENOTSUP;
}

/* Make it so. inode.lock held by sfs_inode_lock(). */
static int make_ready(struct peek *k)
{
	struct sfs_inode *in = k->in;
	int r;

	/* Asking for it would make it the kernel's for good: see sfs_inode_own(). */
	if (in->locked && in->fd < 0)
		return -ENOTSUP;
	r = sfs_io_prepare(k->ofd, in, k->fd);
	if (r < 0)
		return r;
	r = own(k);
	if (r < 0)
		return r;
	in->peeks = 0;
	/* Before end of file is believed, look whether somebody without the library wrote more. */
	if (in->staging.count == 0 && below_size(k) < k->len)
		sfs_inode_resize(in);
	if (staged(k)) {
		r = sfs_flush(in, SFS_PUBLISH);
		if (r < 0)
			return r == -EAGAIN ? r : SFS_PEEK_COPY;
	}
	return sfs_io_prepare(k->ofd, in, k->fd);
}

/*
 * Is anybody storing in place there, this thread included: a handler that peeks what the call it interrupts goes on
 * to store?
 */
static bool stored_to(const struct sfs_inode *in, uint64_t from, uint64_t to)
{
	const struct sfs_flights *f = &in->flights;

	for (uint32_t bits = f->used; bits; bits &= bits - 1) {
		const struct sfs_flight *fl = &f->flight[__builtin_ctz(bits)];

		if (from < fl->to && fl->from < to)
			return true;
	}
	return false;
}

/* The window is not looked into where the file has holes; a part of it may have none. */
static bool solid(const struct peek *k)
{
	off_t hole;

	if (k->in->window.dense)
		return true;
	hole = sfs_seek_hole(k->in->fd, (off_t)k->off);
	return hole >= 0 && (uint64_t)hole >= k->off + k->n;
}

static int pin(struct peek *k)
{
	struct sfs_inode *in = k->in;
	const uint64_t end = k->off + below_size(k);

	if (!sfs_inode_served(in) || in->grant.state != GRANT_WATCHED)
		return -ENOTSUP;
	if (sfs_kernel_busy(in))
		return SFS_BUSY;
	k->n = below_size(k);
	k->p = NULL;
	if (k->n == 0)
		return 0;
	if (__atomic_load_n(&barred, __ATOMIC_SEQ_CST) > 0 || end > in->ksize || staged(k) || !solid(k))
		return SFS_PEEK_COPY;
	if (unlikely(in->flights.used) && stored_to(in, k->off, end))
		return SFS_BUSY;
	return sfs_pin(&in->pins, in, in->fd, k->off, end, &k->p);
}

static int attempt(struct peek *k)
{
	struct sfs_inode *in = k->in;
	bool alone = false;
	uint64_t *op;
	int r = 0;

	if (unlikely(!sfs_op_begin(in, &op)))
		return -EDEADLK;
	sfs_inode_take(in);
	if (unlikely(!ready(k))) {
		sfs_inode_drop(in);
		sfs_inode_lock(in);
		alone = true;
	}
	if (unlikely(!sfs_fd_still(k->fd, k->ofd, in)))
		r = SFS_GONE;
	else if (alone)
		r = make_ready(k);
	if (r == 0)
		r = pin(k);
	sfs_io_leave(in, alone, op);
	return r;
}

/* After a few tries writers store under the lock from now on, and what they have begun ends. */
static int attempts(struct peek *k)
{
	struct sfs_inode *in = k->in;
	bool hushed = false;
	int r;

	for (int tries = 0; (r = attempt(k)) == SFS_BUSY || r == -EAGAIN || r == SFS_TURN; tries++) {
		if (r == SFS_TURN) {
			r = sfs_turn_wait(in);
			if (r < 0)
				break;
			continue;
		}
		if (tries == TRIES_QUIET) {
			hushed = true;
			__atomic_add_fetch(&in->flights.quiet, 1, __ATOMIC_RELAXED);
		}
		if (r == SFS_BUSY)
			sys_nap(PAUSE_NS);
		if (tries == TRIES_MAX || (r == -EAGAIN && sfs_checkpoint(in->vol, true) < 0)) {
			r = SFS_PEEK_COPY;
			break;
		}
	}
	if (hushed)
		__atomic_sub_fetch(&in->flights.quiet, 1, __ATOMIC_RELAXED);
	return r;
}

static int peek_at(int fd, off_t off, size_t len, const void **p, size_t *got)
{
	struct peek k = {.ofd = sfs_ofd_of(fd), .fd = fd, .off = (uint64_t)off, .len = len};
	struct sfs_volume *vol;
	int r;

	if (!k.ofd)
		return -ENOTSUP;
	if (!sfs_may_read(k.ofd->flags))
		return -EBADF;
	if (off < 0 || len > SSIZE_MAX)
		return -EINVAL;
	k.in = k.ofd->inode;
	vol = k.in->vol;
	r = attempts(&k);
	if (r < 0)
		return r;
	count(vol, peek_ops, 1);
	*p = k.p;
	*got = k.n;
	return 0;
}

int sfs_peek(int fd, off_t off, size_t len, const void **p, size_t *got)
{
	int r;

	do
		r = peek_at(fd, off, len, p, got);
	while (sfs_gone(r, fd));
	return r;
}

/* The last one of a file that nobody has open. */
static void let_go(dev_t dev, ino_t ino)
{
	const uint64_t signals = sfs_signals_block(); /* a handler that jumps must not take the reference with it */
	struct sfs_inode *it = sfs_inode_ref(dev, ino);

	if (it)
		sfs_inode_put(it);
	sfs_signals_restore(signals);
}

int sfs_unpeek(const void *p)
{
	struct sfs_inode *in;
	uint64_t *op;
	bool gone;
	dev_t dev;
	ino_t ino;
	int r;

	sfs_check_fork();
	in = sfs_pin_file(p);
	if (!in)
		return -EINVAL;
	if (unlikely(!sfs_op_begin(in, &op)))
		return -EDEADLK;
	sfs_inode_take(in);
	r = sfs_unpin(&in->pins, in, p);
	if (r == 0) {
		count(in->vol, unpeek_ops, 1);
		count(in->vol, saved_bytes, in->pins.saved);
		in->pins.saved = 0;
	}
	gone = in->pins.total == 0 && __atomic_load_n(&in->refs, __ATOMIC_RELAXED) == 0;
	dev = in->dev;
	ino = in->ino;
	sfs_inode_drop(in);
	sfs_op_end(op);
	if (r == 0 && unlikely(gone))
		let_go(dev, ino);
	return r;
}
