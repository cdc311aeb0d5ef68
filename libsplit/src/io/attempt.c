/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order of a staged write on PM: bytes to the staging file; fence, unless the record carries their checksum or the mode is posix;
 * records; fence, unless posix. Then, in memory, the block table and the size.
 */
#include "io/attempt.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/sys.h"
#include "files/privileges.h"
#include "io/commit.h"
#include "io/offset.h"
#include "io/patch.h"
#include "io/user.h"
#include "pm/map.h"
#include "pm/pm.h"

#define POPULATE  (256ul << 10)
#define SHOWN_MIN (1ul << 20)
#define SLOTS_FEW 4u	/* a short write takes no more */
#define WAITS_MAX 2000u /* of a write for another thread's store, 50 us each */

void sfs_attempt_begin(struct sfs_attempt *a, struct sfs_ofd *ofd, int fd, const struct iovec *iov, int cnt, int flags)
{
	memset(a, 0, offsetof(struct sfs_attempt, fly));
	a->number = load_acquire(&ofd->number);
	a->ofd = ofd;
	a->in = ofd->inode;
	a->fd = fd;
	a->iov = iov;
	a->cnt = cnt;
	a->flags = flags;
	a->forks = sfs.forks;
}

struct sfs_cursor sfs_attempt_bytes(const struct sfs_attempt *a)
{
	struct sfs_cursor c = {a->iov, 0};

	for (uint64_t left = a->start; left > 0;) {
		size_t got;

		sfs_cursor_next(&c, left, &got);
		left -= got;
	}
	return c;
}

bool sfs_attempt_gather(struct sfs_attempt *a)
{
	const size_t whole = a->n;
	uint8_t *p = whole <= sizeof(a->bounce) ? a->bounce : sfs_user_alloc(whole);

	if (!p)
		return true; /* without */
	a->mem = p;
	a->mem_size = p == a->bounce ? 0 : whole;
	a->n = sfs_user_gather(sfs_attempt_bytes(a), p, whole);
	a->cut = a->cut || a->n < whole;
	if (a->n == 0)
		sfs_attempt_forget(a);
	return a->n > 0;
}

/* In one piece, as most are. */
static bool gather_short(struct sfs_attempt *a)
{
	if (a->cnt != 1 || !sfs_copy_short(a->bounce, (const char *)a->iov->iov_base + a->start, a->n))
		return false;
	a->mem = a->bounce;
	a->mem_size = 0;
	return true;
}

void sfs_attempt_forget(struct sfs_attempt *a)
{
	if (a->mem && a->mem_size)
		sfs_user_free(a->mem, a->mem_size);
	a->mem = NULL;
}

/* ---- plan */

bool sfs_in_place(struct sfs_inode *in, uint64_t pos, size_t n)
{
	if (in->vol->mode == SFS_STRICT || pos + n > in->ksize || !in->window.base || pos + n > in->window.len ||
	    !in->writable || !in->window.dense || sfs_staging_any(&in->staging, pos, n) ||
	    sfs_pins_meet(&in->pins, pos, pos + n))
		return false;
	/* A valid record names bytes that are in the file already; replaying it would undo us. */
	in->counted.blocked = in->counted.relinked != RELINKED_NOTHING;
	return !in->counted.blocked;
}

/*
 * What to fault in before a store in place: a program that writes on and on does not pay a fault per page.
 */
static void look_ahead(struct sfs_attempt *a, uint64_t pos)
{
	struct sfs_window *w = &a->in->window;
	const uint64_t end = pos + a->n;
	const bool goes_on = pos == w->last_end;

	w->last_end = end;
	a->ahead_to = 0;
	if (!goes_on || end <= w->populated)
		return;
	a->ahead_from = pos / SFS_BLOCK * SFS_BLOCK;
	a->ahead_to = (end + POPULATE) / SFS_BLOCK * SFS_BLOCK;
	if (a->ahead_to > a->in->ksize)
		a->ahead_to = (a->in->ksize + SFS_BLOCK - 1) / SFS_BLOCK * SFS_BLOCK;
	w->populated = a->ahead_to;
}

/* Would a store meet a page that has been written back, or one that costs a fault of its own? */
static bool kernel_stores(const struct sfs_attempt *a, uint64_t pos)
{
	const struct sfs_window *w = &a->in->window;

	return (w->few_stores && a->n <= SFS_BOUNCE) || sfs_window_stores_cold(w, pos, a->n);
}

/* Two stores at once would leave a part of each. */
static int plan_store(struct sfs_attempt *a, uint64_t pos)
{
	struct sfs_inode *in = a->in;

	a->way = SFS_WAY_STORE;
	a->base = in->window.base;
	if (unlikely(in->flights.used) && sfs_stores_meet(in, pos, pos + a->n)) {
		if (a->waits++ < WAITS_MAX)
			return SFS_BUSY;
		sfs_stores_void(in, pos, pos + a->n); /* stopped, or left by a jump: it is to begin anew */
	}
	a->cold = a->mem && kernel_stores(a, pos);
	if (!a->mem && (__atomic_load_n(&in->flights.quiet, __ATOMIC_RELAXED) || (in->window.few_stores && a->n <= SFS_BOUNCE)))
		return SFS_GATHER;
	sfs_attempt_reserve(a);
	if (!a->cold)
		look_ahead(a, pos);
	return 0;
}

/*
 * Signal handlers run while it is copied, and while space or slots are got. One that forks or looks at the offset is not to see it behind
 * bytes that are not there yet. So a short write that reserves it has all of that before, unless another thread takes it, and is made in one
 * section of the lock. 0: it may be reserved. Of longer writes it is seen.
 */
static int before_reserved(struct sfs_attempt *a)
{
	struct sfs_inode *in = a->in;
	const uint64_t blocks = a->n / SFS_BLOCK + 2;
	int r = 0;

	if (!a->at_offset || a->append || a->n > SHOWN_MIN || !sfs_ofd_shared(a->ofd))
		return 0;
	if (!a->mem)
		return SFS_GATHER;
	if (a->reserved || a->part || in->vol->unstaged)
		return 0;
	if (!sfs_log_has(&in->vol->log, &in->slots, SLOTS_FEW))
		r = -EAGAIN;
	else if (in->staging.region_end - in->staging.region_next < blocks && !sfs_pool_room(&in->vol->pool, blocks))
		r = -ENOBUFS;
	return r && sfs_in_place(in, sfs_attempt_about(a), a->n) ? 0 : r;
}

/* Lock held. What is to be done, and where; 0, or as sfs_attempt(). */
static int plan(struct sfs_attempt *a)
{
	struct sfs_inode *in = a->in;
	const bool served = sfs_inode_served(in);
	uint64_t pos;
	int r = 0;

	a->head = 0;
	a->way = SFS_WAY_KERNEL;
	if (!served || sfs_kernel_busy(in))
		return 0;
	r = before_reserved(a);
	if (r == 0)
		r = sfs_attempt_offset(a);
	if (r < 0)
		return r;
	pos = a->append ? in->size : (uint64_t)a->pos;
	a->at = (off_t)pos;
	if (sfs_too_far(pos + a->n))
		return 0;
	if (!a->buffer && sfs_in_place(in, pos, a->n)) {
		/* In flight it would be made by the program's descriptor, for which somebody has to wait who closes that, or is to give the file up. */
		if (!a->mem && sfs_window_stores_cold(&in->window, pos, a->n) && !sfs_inode_pending(in)) {
			in->window.cold_stores += a->n;
			return 0;
		}
		return plan_store(a, pos);
	}
	if (unlikely(in->vol->unstaged) && !a->buffer)
		return 0;
	a->way = SFS_WAY_STAGE;
	sfs_grow_end(in); /* it says which bytes of the last block are named */
	sfs_stage_live(in);
	r = a->buffer ? sfs_patch_place(a) : sfs_staged_place(in, pos, a->n, a->part, &a->st);
	if (r == 0 && !a->mem) {
		a->head = sfs_staged_head(in, &a->st);
		if (a->head > 0 && a->n <= sizeof(a->bounce))
			r = SFS_GATHER;
		if (r < 0)
			sfs_staged_unplace(in, &a->st);
	}
	return r;
}

/* ---- copy */

/*
 * The store as the kernel makes it, under the lock: our own descriptor is the file's. On persistent memory it survives when it returns: the
 * blocks may be of a relink that is not in the journal yet, which a store to the window would wait for.
 */
static bool by_kernel(const struct sfs_attempt *a)
{
	const struct iovec all = {a->mem, a->n};

	return sys_pwritev2(a->in->fd, &all, 1, a->at, a->in->vol->dax ? RWF_DSYNC : 0) == (ssize_t)a->n;
}

static void copy(void *arg)
{
	struct sfs_attempt *a = arg;
	const struct iovec ours = {a->mem, a->n};
	struct sfs_cursor c = a->mem ? (struct sfs_cursor){&ours, 0} : sfs_attempt_bytes(a);

	if (a->way == SFS_WAY_STAGE) {
		sfs_staged_copy(a->in->vol, &a->st, &c, a->bounce, a->head);
		return;
	}
	if (a->cold && by_kernel(a))
		return;
	if (a->ahead_to)
		sfs_map_populate(a->base + a->ahead_from, a->ahead_to - a->ahead_from);
	sfs_copy_in(a->base + a->at, &c, a->n, true);
}

/*
 * The copy has met a fault. In the program's memory: the write ends there. In ours: the memory is poisoned; or the file system has no space that
 * a store to the staging file would need (sfs_pool_awaits_space()); or the window is not what it was, because somebody has cut the file off
 * without our knowing it. Lock held.
 */
static int faulted(struct sfs_attempt *a, const struct sfs_fault *f)
{
	struct sfs_inode *in = a->in;
	const size_t good = a->mem ? a->n : sfs_user_offset(sfs_attempt_bytes(a), a->n, f);

	if (good < a->n) {
		a->n = good;
		a->cut = true;
		return good > 0 ? SFS_AGAIN : -EFAULT;
	}
	if (f->sig == SIGBUS && (f->code == BUS_MCEERR_AR || f->code == BUS_MCEERR_AO))
		return -EIO;
	if (a->way == SFS_WAY_STAGE)
		return -ENOSPC;
	sfs_window_unknown(&in->window); /* ask the kernel again */
	in->window.tried = ~in->ksize;
	return SFS_AGAIN;
}

/* ---- the whole of it */

/* A store in place is over. */
static ssize_t stored(struct sfs_attempt *a)
{
	a->in->touched = true;
	a->in->window.stores++;
	if (a->cold)
		a->in->window.cold_stores += a->n;
	sfs_count_write(&a->in->vol->log, false, a->n);
	a->last = (off_t)a->n;
	return (ssize_t)a->n;
}

/* Staged, and nothing is copied to its place any more. */
static int begin_commit(struct sfs_attempt *a)
{
	const int r = sfs_commit_begin(a);

	if (r < 0)
		sfs_staged_unplace(a->in, &a->st);
	return r;
}

/* With the bytes in memory of ours, in this section of the lock. */
static ssize_t at_once(struct sfs_attempt *a)
{
	struct sfs_inode *in = a->in;
	struct sfs_fault f;
	bool ok;
	int r;

	if (a->way == SFS_WAY_STAGE) {
		r = begin_commit(a);
		if (r < 0)
			return r;
		return sfs_try(copy, a, &f) ? sfs_commit_end(a) : faulted(a, &f);
	}
	sfs_change_begin(in, (uint64_t)a->at, (uint64_t)a->at + a->n, SFS_CHANGES_ALONE);
	ok = sfs_try(copy, a, &f);
	pm_fence();
	sfs_change_end(in, SFS_CHANGES_ALONE);
	return ok ? stored(a) : faulted(a, &f);
}

/* All of it is copied. Lock held. */
static ssize_t landed(struct sfs_attempt *a)
{
	int r;

	if (!sfs_flight_holds(&a->fly))
		return SFS_AGAIN;
	if (a->way == SFS_WAY_STORE)
		return stored(a);
	r = begin_commit(a);
	return r == 0 ? sfs_commit_end(a) : r;
}

/* With nothing held while it copies, so the lock goes here, and its mark with it. */
static ssize_t in_flight(struct sfs_attempt *a, bool alone, uint64_t *op)
{
	struct sfs_inode *in = a->in;
	const bool store = a->way == SFS_WAY_STORE, begun = sfs_flight_begin(in, &a->fly);
	struct sfs_fault f;
	ssize_t r;
	bool ok;

	if (begun && store)
		sfs_flight_stores(in, &a->fly, (uint64_t)a->at, (uint64_t)a->at + a->n);
	else if (begun)
		sfs_flight_stages(&a->fly, &a->st);
	else if (!store)
		sfs_staged_unplace(in, &a->st);
	sfs_io_leave(in, alone, op);
	if (!begun)
		return SFS_GATHER;
	ok = sfs_try(copy, a, &f);
	if (store)
		pm_fence();
	else
		sfs_bytes_first();
	if (sfs_attempt_is_parents(a))
		return (ssize_t)a->n;
	if (unlikely(!sfs_op_begin(in, &op)))
		return -EDEADLK; /* not seen: handlers are put off until the lock is free */
	sfs_inode_take(in);
	r = ok ? landed(a) : faulted(a, &f);
	sfs_flight_end(in, &a->fly);
	sfs_io_leave(in, false, op);
	return r;
}

ssize_t sfs_attempt(struct sfs_attempt *a)
{
	struct sfs_inode *in = a->in;
	bool alone = false;
	uint64_t *op;
	ssize_t r = 0;

	/* Short ones: a second section of the lock would cost more than the copy. */
	if (a->n <= SFS_STORE_MAX && !a->mem && !gather_short(a) && !sfs_attempt_gather(a))
		return -EFAULT;
	if (unlikely(!sfs_op_begin(in, &op)))
		return -EDEADLK;
	sfs_inode_take(in);
	if (unlikely(!sfs_attempt_ready(a))) {
		sfs_inode_drop(in);
		sfs_inode_lock(in);
		alone = true;
	}
	if (unlikely(!sfs_fd_still(a->fd, a->ofd, in)))
		r = SFS_GONE;
	else if (alone)
		r = sfs_attempt_make_ready(a);
	if (r == 0)
		r = plan(a);
	if (r == 0 && a->way != SFS_WAY_KERNEL) {
		if (!a->mem)
			return in_flight(a, alone, op);
		r = at_once(a);
	}
	sfs_io_leave(in, alone, op);
	return r == 0 ? sfs_attempt_kernel(a) : r;
}
