/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes of several threads to one file at the same time. Each takes its place (where its bytes go, in the file and in the staging file)
 * under flights.lock, copies with no lock but inode.lock shared, and then becomes part of the file:
 *
 *   append            its blocks are entered before the copy, behind the end where nobody reads; the size is what publishes it
 *   staged overwrite  (strict) to blocks of its own, entered after the copy; a reader that was at it meanwhile reads again
 *   store in place    (posix, sync) readers of these bytes take their turn with it, as they do in the kernel
 *
 * Staged writes end in the order in which they began (struct sfs_turns): a record counts when it is stored, and one that counts without
 * an earlier one would be a file that no order of the calls leaves. So what is acknowledged, what is in the log and
 * what readers see at any moment is what calls one after the other would have left.
 *
 * Writes that overlap, and all that are not plain (see take_place()), have the file to themselves (write.c).
 */
#include <errno.h>

#include "base/sys.h"
#include "pm/map.h"
#include "io/staged.h"
#include "pm/pm.h"

#define PAUSES	 10
#define PAUSE_NS 50000

enum kind { APPEND, OVERWRITE, STORE };

struct flight {
	struct sfs_inode *in;
	enum kind kind;
	struct sfs_range *range;
	uint32_t turn;
	uint64_t pos;
	size_t n;
	struct sfs_range ahead;
	uint32_t forks;
	struct sfs_staged st;
};

static bool meets(const struct sfs_range *r, uint64_t from, uint64_t to)
{
	return from < r->to && r->from < to;
}

bool sfs_flights_over(struct sfs_inode *in, uint64_t off, uint64_t n)
{
	struct sfs_flights *f = &in->flights;
	bool yes = false;

	/* Blocks that are staged are entered under this lock. */
	sfs_mutex_lock(&f->lock);
	for (int i = 0; i < SFS_FLIGHTS_MAX; i++)
		yes = yes || (f->range[i].store && meets(&f->range[i], off, off + n));
	sfs_mutex_unlock(&f->lock);
	return yes;
}

/* False: another one is over it, or there are too many. */
static bool claim(struct flight *fl, uint64_t from, uint64_t to)
{
	struct sfs_flights *f = &fl->in->flights;
	const struct sfs_range r = {.from = from, .to = to, .append = fl->kind == APPEND, .store = fl->kind == STORE};

	for (int i = 0; i < SFS_FLIGHTS_MAX; i++)
		if (meets(&f->range[i], from, to) && !(r.append && f->range[i].append))
			return false;
	for (int i = 0; i < SFS_FLIGHTS_MAX; i++) {
		if (f->range[i].to == 0) {
			f->range[i] = r;
			fl->range = &f->range[i];
			__atomic_store_n(&f->aloft, f->aloft + 1, __ATOMIC_RELAXED);
			return true;
		}
	}
	return false;
}

static void disclaim(struct flight *fl)
{
	struct sfs_flights *f = &fl->in->flights;

	*fl->range = (struct sfs_range){0};
	__atomic_store_n(&f->aloft, f->aloft - 1, __ATOMIC_RELAXED);
}

/* Readers are to know before a byte changes that they see. */
static void change_begin(struct sfs_flights *f)
{
	__atomic_add_fetch(&f->changes, (1u << 8) + 1, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void change_end(struct sfs_flights *f)
{
	__atomic_sub_fetch(&f->changes, 1, __ATOMIC_RELEASE);
}

/* The place in the staging file and in the log, and the turn. */
static bool stage(struct flight *fl)
{
	struct sfs_inode *in = fl->in;
	const uint64_t end = fl->pos + fl->n, upto = (end + SFS_BLOCK - 1) / SFS_BLOCK;

	if (upto > in->staging.table_blocks || sfs_far_apart(in, fl->pos) ||
	    !claim(fl, fl->pos / SFS_BLOCK * SFS_BLOCK, upto * SFS_BLOCK))
		return false;
	sfs_grow_end(in);
	sfs_stage_live(in);
	/* No space, no slot, more extents than one operation may have: who has the file to itself knows what to do. */
	if (sfs_staged_place(in, fl->pos, fl->n, fl->kind == APPEND ? SFS_PLACE_ALL : SFS_PLACE_FRESH, 0, &fl->st) < 0 ||
	    fl->st.n < fl->n) {
		pm_fence(); /* another thread may commit the record that has just ended */
		disclaim(fl);
		return false;
	}
	if (fl->kind == APPEND) {
		sfs_staged_enter(in, &fl->st);
		in->flights.end = end;
	}
	fl->turn = in->flights.turns.next++;
	return true;
}

/* flights.lock held. False: the write is to have the file to itself. */
static bool take_place(struct flight *fl, bool append, uint64_t pos)
{
	struct sfs_inode *in = fl->in;
	struct sfs_flights *f = &in->flights;
	uint64_t end;

	if (sfs_turns_over(&f->turns))
		f->end = in->size;
	end = f->end;
	fl->pos = append ? end : pos;
	if (sfs_too_far(fl->pos + fl->n))
		return false;
	if (fl->pos == end) {
		/*
		 * With nothing staged the kernel is to be asked for the end first. The rest of a last block that is not staged would have to
		 * be carried to where this one begins.
		 */
		if (in->staging.count == 0 || (end % SFS_BLOCK && !sfs_block_get(&in->staging, end / SFS_BLOCK)) ||
		    sfs_near_limit(end + fl->n))
			return false;
		fl->kind = APPEND;
		return stage(fl);
	}
	if (fl->pos + fl->n > in->size)
		return false;
	if (in->vol->mode == SFS_STRICT) {
		fl->kind = OVERWRITE;
		return stage(fl);
	}
	fl->kind = STORE;
	if (!sfs_in_place(in, fl->pos, fl->n) || !claim(fl, fl->pos, fl->pos + fl->n))
		return false;
	fl->ahead = sfs_ahead(in, fl->pos, fl->n);
	change_begin(f);
	return true;
}

/* Of a fork in a signal handler, which has returned: nobody is in flight here. */
static bool in_child(const struct flight *fl)
{
	sfs_check_fork();
	return unlikely(fl->forks != sfs.forks);
}

static void store(struct flight *fl, struct sfs_cursor *c)
{
	struct sfs_inode *in = fl->in;

	sfs_store(in, fl->ahead, c, fl->pos, fl->n);
	if (in_child(fl))
		return;
	sfs_mutex_lock(&in->flights.lock);
	in->touched = true;
	disclaim(fl);
	sfs_mutex_unlock(&in->flights.lock);
	change_end(&in->flights);
	sfs_count_write(&in->vol->log, false, fl->n);
}

/*
 * Before the size is stored, by which readers go, and maybe with no locked instruction in between. And on arm64 another thread's fence would not
 * wait for what this one has written back, when it commits the record.
 */
static void bytes_first(void)
{
	pm_fence();
}

static int publish(struct flight *fl, struct sfs_cursor *c)
{
	struct sfs_inode *in = fl->in;
	struct sfs_flights *f = &in->flights;
	struct sfs_volume *vol = in->vol;
	const bool append = fl->kind == APPEND;
	/* Where an append begins nothing is to be carried: it would read what others are about to change. */
	const int r = append ? 0 : sfs_staged_carry(in, &fl->st);

	if (r == 0)
		sfs_staged_copy(vol, &fl->st, c);
	if (!fl->st.fenced)
		bytes_first();
	if (in_child(fl))
		return -EINTR;
	sfs_turns_wait(&f->turns, fl->turn);
	if (r == 0) {
		sfs_staged_records(in, &fl->st, append ? fl->pos + fl->n : in->size, false);
		if (fl->st.fenced)
			pm_fence();
	}
	sfs_mutex_lock(&f->lock);
	if (r == 0 && append) {
		__atomic_store_n(&in->size, fl->pos + fl->n, __ATOMIC_RELEASE);
	} else if (r == 0) {
		change_begin(f);
		sfs_staged_enter(in, &fl->st);
		change_end(f);
	}
	in->touched = in->busy = true;
	in->uncommitted = !fl->st.fenced;
	disclaim(fl);
	sfs_mutex_unlock(&f->lock);
	sfs_turns_pass(&f->turns);
	if (r < 0)
		return r;
	sfs_count_write(&vol->log, append, fl->n);
	count(vol, staged_bytes, fl->n);
	if (unlikely(!vol->dirty))
		sfs_service_wake(vol);
	return 0;
}

static __attribute__((noinline)) ssize_t fly(struct sfs_ofd *ofd, int fd, const struct iovec *iov, size_t total, bool append,
					     off_t pos, off_t *at)
{
	struct sfs_inode *in = ofd->inode;
	struct sfs_cursor c = {iov, 0};
	struct flight fl;
	bool flies = false, lent;
	int r = 0;

	fl.in = in;
	fl.n = total;
	fl.forks = sfs.forks;
	lent = sfs_rwlock_rdlock_long(&in->lock);
	if (load_acquire(&sfs_fds[fd]) == ofd && ofd->inode == in && sfs_io_prepared(in) && in->writable &&
	    !in->grant.at_once && !ofd->kernel_off) {
		sfs_mutex_lock(&in->flights.lock);
		flies = take_place(&fl, append, (uint64_t)pos);
		sfs_mutex_unlock(&in->flights.lock);
	}
	if (flies && fl.kind == STORE)
		store(&fl, &c);
	else if (flies)
		r = publish(&fl, &c);
	sfs_rwlock_rdunlock_long(&in->lock, lent);
	if (!flies || r < 0)
		return r;
	*at = (off_t)fl.pos;
	return (ssize_t)total;
}

/*
 * Is nobody else there, as far as one look can say? Then having the file to oneself for a short copy costs least: the lock becomes this
 * thread's own (base/bias.h), for which it has to be taken exclusively again and again. Who comes meanwhile waits for that copy.
 */
static bool alone(struct sfs_inode *in)
{
	struct sfs_rwlock *l = &in->lock;

	if (__atomic_load_n(&l->bias.owner, __ATOMIC_RELAXED) == sfs_self())
		return true;
	if (__atomic_load_n(&in->flights.aloft, __ATOMIC_RELAXED) || __atomic_load_n(&l->state, __ATOMIC_RELAXED))
		return false;
	/* Readers of a lock that is spread are not in its word. */
	if (!__atomic_load_n(&l->spread, __ATOMIC_RELAXED))
		return true;
	if (!sfs_rwlock_trywrlock(l))
		return false;
	sfs_rwlock_wrunlock(l);
	return true;
}

void sfs_step_back_slow(struct sfs_inode *in)
{
	for (int i = 0; i < PAUSES && sfs_lock_wanted(in); i++)
		sys_nap(PAUSE_NS);
}

bool sfs_lock_soon(struct sfs_inode *in)
{
	bool got = sfs_rwlock_trywrlock(&in->lock);

	if (got)
		return true;
	__atomic_add_fetch(&in->flights.held, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < PAUSES && !got; i++) {
		sys_nap(PAUSE_NS);
		got = sfs_rwlock_trywrlock(&in->lock);
	}
	__atomic_sub_fetch(&in->flights.held, 1, __ATOMIC_RELAXED);
	return got;
}

ssize_t sfs_fly(struct sfs_ofd *ofd, int fd, const struct iovec *iov, size_t total, bool append, off_t pos, off_t *at)
{
	struct sfs_inode *in = ofd->inode;

	sfs_step_back(in);
	if (total < SFS_LONG && alone(in))
		return 0;
	return fly(ofd, fd, iov, total, append, pos, at);
}
