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
#include "io/user.h"
#include "pm/map.h"
#include "pm/pm.h"

#define POPULATE  (256ul << 10)
#define WAITS_MAX 2000u /* of a write for another thread's store, 50 us each */

void sfs_attempt_begin(struct sfs_attempt *a, struct sfs_ofd *ofd, int fd, const struct iovec *iov, int cnt, int flags)
{
	memset(a, 0, offsetof(struct sfs_attempt, fly));
	a->ofd = ofd;
	a->in = ofd->inode;
	a->fd = fd;
	a->iov = iov;
	a->cnt = cnt;
	a->flags = flags;
	a->forks = sfs.forks;
}

static struct sfs_cursor theirs(const struct sfs_attempt *a)
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
	a->n = sfs_user_gather(theirs(a), p, whole);
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
	    !in->writable || !in->window.dense || sfs_staging_any(&in->staging, pos, n))
		return false;
	/* A valid record names bytes that are in the file already; replaying it would undo us. */
	in->blocked = in->unretired;
	return !in->unretired;
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

off_t sfs_offset_now(const struct sfs_ofd *ofd, int fd)
{
	return ofd->kernel_off ? sys_lseek(fd, 0, SEEK_CUR) : ofd->off;
}

void sfs_offset_set(struct sfs_ofd *ofd, int fd, off_t to)
{
	sfs_mutex_take(&ofd->lock);
	if (ofd->kernel_off)
		sys_lseek(fd, to, SEEK_SET);
	else
		ofd->off = to;
	sfs_mutex_drop(&ofd->lock);
}

/* Where it begins, as far as that is known before it is planned. */
static uint64_t about(const struct sfs_attempt *a)
{
	if (a->append)
		return a->in->size;
	return (uint64_t)(a->at_offset && !a->reserved ? sfs_offset_now(a->ofd, a->fd) : a->pos);
}

/* Nothing that readers see has to change before the write itself. */
static bool ready(const struct sfs_attempt *a)
{
	const struct sfs_inode *in = a->in;

	return sfs_io_prepared(in) && in->writable && !in->privileged && !in->grant.at_once &&
	       !((a->append || a->ofd->kernel_off) && in->staging.count == 0) && !sfs_far_apart(in, about(a));
}

/* Make it so. inode.lock held by sfs_inode_lock(). */
static int make_ready(struct sfs_attempt *a)
{
	struct sfs_inode *in = a->in;
	int r = sfs_io_prepare(a->ofd, in, a->fd);

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
		sfs_io_prepare(a->ofd, in, a->fd);
	}
	/* A process without the library may share the description and have written through it, or have appended. */
	if ((a->append || a->ofd->kernel_off) && in->staging.count == 0 && sfs_inode_served(in)) {
		sfs_inode_reload(in);
		sfs_io_prepare(a->ofd, in, a->fd);
	}
	if (unlikely(in->privileged))
		sfs_privileges_end(in);
	return sfs_inode_served(in) && sfs_far_apart(in, about(a)) ? sfs_flush(in, SFS_PUBLISH) : 0;
}

/*
 * The file offset. It moves when the write ends; but at once where the bytes are the file's from the moment they are stored, and where other
 * processes move it.
 */
static int look_at_offset(struct sfs_attempt *a)
{
	struct sfs_ofd *ofd = a->ofd;

	if (!a->at_offset || a->reserved)
		return 0;
	if (!ofd->kernel_off || (__atomic_load_n(&ofd->lazy, __ATOMIC_RELAXED) & SFS_OFF_LAZY)) {
		a->pos = sfs_offset_now(ofd, a->fd);
		return a->pos < 0 ? (int)a->pos : 0;
	}
	a->pos = sys_lseek(a->fd, (off_t)a->n, SEEK_CUR);
	if (a->pos < 0)
		return (int)a->pos;
	a->reserved = (off_t)a->n;
	a->pos -= a->reserved;
	return 0;
}

static void reserve(struct sfs_attempt *a)
{
	/* Where an append goes only its end tells. */
	if (!a->at_offset || a->append || a->reserved)
		return;
	sfs_offset_set(a->ofd, a->fd, a->pos + (off_t)a->n);
	a->reserved = (off_t)a->n;
}

void sfs_attempt_settle(struct sfs_attempt *a, uint32_t number, ssize_t r)
{
	const off_t less = a->reserved ? a->reserved - (r > 0 ? r : 0) : 0;
	struct sfs_ofd *ofd = a->ofd;
	uint64_t *op;

	a->reserved = 0;
	if (likely(less == 0) || !sfs_op_begin(a->in, &op))
		return;
	sfs_mutex_take(&ofd->lock);
	if (ofd->number != number)
		; /* closed meanwhile, and another description now */
	else if (ofd->kernel_off)
		sys_lseek(a->fd, -less, SEEK_CUR);
	else
		ofd->off -= less;
	sfs_mutex_drop(&ofd->lock);
	sfs_op_end(op);
}

/*
 * Is another thread storing in place in what is to be stored to? Two stores at once would leave a part of each. Of this thread it may be the
 * call that a handler has interrupted, which begins anew.
 */
static bool stores_meet(const struct sfs_attempt *a, uint64_t pos)
{
	const struct sfs_flights *f = &a->in->flights;

	for (uint32_t bits = f->used; bits; bits &= bits - 1) {
		const struct sfs_flight *fl = &f->flight[__builtin_ctz(bits)];

		if (pos < fl->to && fl->from < pos + a->n && fl->thread != sfs_self())
			return true;
	}
	return false;
}

static int plan_store(struct sfs_attempt *a, uint64_t pos)
{
	struct sfs_inode *in = a->in;

	a->way = SFS_WAY_STORE;
	a->base = in->window.base;
	if (unlikely(in->flights.used) && stores_meet(a, pos)) {
		if (a->waits++ < WAITS_MAX)
			return SFS_BUSY;
		sfs_stores_void(in, pos, pos + a->n); /* stopped, or left by a jump: it is to begin anew */
	}
	if (!a->mem && __atomic_load_n(&in->flights.quiet, __ATOMIC_RELAXED))
		return SFS_GATHER;
	reserve(a);
	look_ahead(a, pos);
	return 0;
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
	if (!served || in->by_kernel > 0)
		return 0;
	r = look_at_offset(a);
	if (r < 0)
		return r;
	pos = a->append ? in->size : (uint64_t)a->pos;
	a->at = (off_t)pos;
	if (sfs_too_far(pos + a->n))
		return 0;
	if (sfs_in_place(in, pos, a->n))
		return plan_store(a, pos);
	a->way = SFS_WAY_STAGE;
	sfs_stage_live(in);
	r = sfs_staged_place(in, pos, a->n, a->part, &a->st);
	if (r == 0 && !a->mem) {
		a->head = sfs_staged_head(in, &a->st);
		if (a->head > 0 && a->n <= sizeof(a->bounce))
			r = SFS_GATHER;
	}
	return r;
}

/* ---- copy */

static void copy_store(void *arg)
{
	struct sfs_attempt *a = arg;
	struct sfs_cursor c = theirs(a);

	if (a->ahead_to)
		sfs_map_populate(a->base + a->ahead_from, a->ahead_to - a->ahead_from);
	sfs_copy_in(a->base + a->at, &c, a->n, true);
}

static void copy_stage(void *arg)
{
	struct sfs_attempt *a = arg;
	struct sfs_cursor c = theirs(a);

	sfs_staged_copy(a->in->vol, &a->st, &c, a->bounce, a->head);
}

static void store_ours(void *arg)
{
	struct sfs_attempt *a = arg;
	const struct iovec iov = {a->mem, a->n};
	struct sfs_cursor c = {&iov, 0};

	if (a->ahead_to)
		sfs_map_populate(a->base + a->ahead_from, a->ahead_to - a->ahead_from);
	sfs_copy_in(a->base + a->at, &c, a->n, true);
}

static void stage_ours(void *arg)
{
	struct sfs_attempt *a = arg;
	const struct iovec iov = {a->mem, a->n};
	struct sfs_cursor c = {&iov, 0};

	sfs_staged_copy(a->in->vol, &a->st, &c, NULL, 0);
}

/*
 * The copy has met a fault. In the program's memory: the write ends there. In ours: the memory is poisoned, or the window is not what it was,
 * because somebody has cut the file off without our knowing it. Lock held.
 */
static int faulted(struct sfs_attempt *a, const struct sfs_fault *f)
{
	struct sfs_inode *in = a->in;
	const size_t good = a->mem ? a->n : sfs_user_offset(theirs(a), a->n, f);

	if (good < a->n) {
		a->n = good;
		a->cut = true;
		return good > 0 ? SFS_AGAIN : -EFAULT;
	}
	if (f->sig == SIGBUS && (f->code == BUS_MCEERR_AR || f->code == BUS_MCEERR_AO))
		return -EIO;
	in->window.dense_known = false; /* ask the kernel again */
	in->window.tried = ~in->ksize;
	return a->way == SFS_WAY_STAGE ? -EIO : SFS_AGAIN;
}

/* ---- the whole of it */

/* A store in place is over. */
static ssize_t stored(struct sfs_attempt *a)
{
	a->in->touched = true;
	sfs_count_write(&a->in->vol->log, false, a->n);
	a->last = (off_t)a->n;
	return (ssize_t)a->n;
}

/* With the bytes in memory of ours, in this section of the lock. */
static ssize_t at_once(struct sfs_attempt *a)
{
	struct sfs_inode *in = a->in;
	struct sfs_fault f;
	bool ok;
	int r;

	if (a->way == SFS_WAY_STAGE) {
		r = sfs_commit_begin(a);
		if (r < 0)
			return r;
		return sfs_try(stage_ours, a, &f) ? sfs_commit_end(a) : faulted(a, &f);
	}
	sfs_change_begin(in, (uint64_t)a->at, (uint64_t)a->at + a->n, SFS_CHANGES_ALONE);
	ok = sfs_try(store_ours, a, &f);
	pm_fence();
	sfs_change_end(in, SFS_CHANGES_ALONE);
	return ok ? stored(a) : faulted(a, &f);
}

/* A fork in a signal handler that has returned: this is the child, and the parent makes the write. */
static bool in_child(const struct sfs_attempt *a)
{
	sfs_check_fork();
	return unlikely(a->forks != sfs.forks);
}

/* With the lock dropped for the copy; it is held when this begins and when it ends. The mark is not there meanwhile. */
static ssize_t in_flight(struct sfs_attempt *a, bool alone, uint64_t **op)
{
	struct sfs_inode *in = a->in;
	const bool store = a->way == SFS_WAY_STORE;
	struct sfs_fault f;
	ssize_t r;
	bool ok;

	if (!sfs_flight_begin(in, &a->fly))
		return SFS_GATHER;
	if (store)
		sfs_flight_stores(in, &a->fly, (uint64_t)a->at, (uint64_t)a->at + a->n);
	else
		sfs_flight_stages(&a->fly, &a->st);
	if (alone)
		sfs_inode_unlock(in);
	else
		sfs_inode_drop(in);
	sfs_op_end(*op);
	ok = sfs_try(store ? copy_store : copy_stage, a, &f);
	if (store)
		pm_fence();
	else
		sfs_bytes_first();
	if (in_child(a)) {
		a->last = (off_t)a->n;
		*op = NULL;
		return (ssize_t)a->n;
	}
	if (unlikely(!sfs_op_begin(in, op)))
		return -EDEADLK; /* not seen: handlers are put off until the lock is free */
	sfs_inode_take(in);
	if (!ok)
		r = faulted(a, &f);
	else if (!sfs_flight_holds(&a->fly))
		r = SFS_AGAIN;
	else if (store)
		r = stored(a);
	else
		r = sfs_commit_begin(a);
	if (!store && r == 0)
		r = sfs_commit_end(a);
	sfs_flight_end(in, &a->fly);
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
	if (unlikely(!ready(a))) {
		sfs_inode_drop(in);
		sfs_inode_lock(in);
		alone = true;
	}
	if (unlikely(load_acquire(&sfs_fds[a->fd]) != a->ofd || a->ofd->inode != in))
		r = -EBADF; /* closed by another thread meanwhile */
	else if (alone)
		r = make_ready(a);
	if (r == 0)
		r = plan(a);
	if (r == 0 && a->way == SFS_WAY_KERNEL) {
		if (alone)
			sfs_inode_unlock(in);
		else
			sfs_inode_drop(in);
		sfs_op_end(op);
		return sfs_attempt_kernel(a);
	}
	if (r == 0 && !a->mem) {
		r = in_flight(a, alone, &op);
		if (r != SFS_GATHER)
			alone = false;
		if (!op && r > 0 && in_child(a))
			return r;
	} else if (r == 0) {
		r = at_once(a);
	}
	if (alone)
		sfs_inode_unlock(in);
	else
		sfs_inode_drop(in);
	sfs_op_end(op);
	return r;
}

/*
 * What is staged is older, so it is relinked first. in->by_kernel says that a write is under way: nothing is staged on top of it.
 */
static int before_kernel(struct sfs_attempt *a)
{
	struct sfs_inode *in = a->in;
	int r = sfs_inode_ready(in, a->fd, a->ofd->flags);

	if (r == 0 && !a->append)
		r = look_at_offset(a);
	if (r == 0 && (in->live || in->staging.count > 0))
		r = sfs_flush(in, SFS_RETIRE);
	if (r == 0) {
		reserve(a);
		in->by_kernel++;
		sfs_flights_void(in);
	}
	return r;
}

static ssize_t write_kernel(struct sfs_attempt *a, int flags)
{
	const struct sfs_cursor c = theirs(a);
	const size_t rest = c.iov->iov_len - c.at;
	const struct iovec one = {(char *)c.iov->iov_base + c.at, rest < a->n ? rest : a->n};

	if (a->mem)
		return sys_pwritev2(a->fd, &(struct iovec){a->mem, a->n}, 1, a->append ? 0 : a->pos, flags);
	if (a->start == 0 && !a->cut && c.at == 0)
		return sys_pwritev2(a->fd, a->iov, a->cnt, a->append ? 0 : a->pos, flags);
	return sys_pwritev2(a->fd, &one, 1, a->append ? 0 : a->pos, flags);
}

ssize_t sfs_attempt_kernel(struct sfs_attempt *a)
{
	struct sfs_inode *in = a->in;
	const int flags = a->flags | (in->vol->mode != SFS_POSIX ? RWF_DSYNC : 0);
	struct stat st;
	uint64_t *op;
	ssize_t r;

	if (unlikely(!sfs_op_begin(in, &op)))
		return -EDEADLK;
	sfs_inode_lock(in);
	r = before_kernel(a);
	sfs_inode_unlock(in);
	if (r < 0) {
		sfs_op_end(op);
		return r;
	}
	r = write_kernel(a, flags);
	/* To persistent memory the kernel stores past the caches, and does not wait: in posix an overwrite survives when it returns. */
	if (in->vol->dax && !(flags & RWF_DSYNC))
		pm_fence();
	a->at = a->pos;
	if (a->append && r > 0 && sys_fstat(a->fd, &st) == 0 && st.st_size >= r)
		a->at = st.st_size - r;
	sfs_inode_lock(in);
	in->by_kernel--;
	in->kdirty = in->kdirty || !(flags & RWF_DSYNC);
	count(in->vol, passthrough_ops, 1);
	if (r > 0 && sfs_inode_served(in))
		sfs_inode_reload(in);
	sfs_inode_unlock(in);
	sfs_op_end(op);
	a->last = r > 0 ? r : 0;
	a->cut = a->cut || (r >= 0 && (size_t)r < a->n);
	return r;
}
