/* SPDX-License-Identifier: Apache-2.0 */
/* Files that this process has open on our volumes. */
#include "files/inode.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "base/sys.h"

#define PARKED_MAX 128u /* inodes that are not open: each has a descriptor */
#define AGE_MAX	   10u	/* ticks: a second */
#define NAP_NS	   50000l
#define NAPS	   1000 /* 50 ms: a service thread that takes longer than this does not keep a fork or exec waiting */

static unsigned bucket(dev_t dev, ino_t ino)
{
	return (unsigned)((ino ^ (ino >> 12) ^ dev) % SFS_HASH);
}

static struct sfs_inode *find_locked(dev_t dev, ino_t ino)
{
	struct sfs_inode *in = sfs_files.hash[bucket(dev, ino)];

	while (in && (in->ino != ino || in->dev != dev))
		in = in->next;
	return in;
}

static void leave_park_locked(struct sfs_inode *in)
{
	sfs_files.parked -= sfs_parked(&in->park);
	sfs_park_leave(&in->park);
}

/* A reference of the application's. */
static void hold_locked(struct sfs_inode *in)
{
	in->refs++;
	leave_park_locked(in);
}

bool sfs_inode_none(dev_t dev, ino_t ino)
{
	return !load_acquire(&sfs_files.hash[bucket(dev, ino)]);
}

struct sfs_inode *sfs_inode_ref(dev_t dev, ino_t ino)
{
	struct sfs_inode *in;

	sfs_mutex_lock(&sfs_files.lock);
	in = find_locked(dev, ino);
	if (in)
		hold_locked(in);
	sfs_mutex_unlock(&sfs_files.lock);
	return in;
}

int sfs_inode_open_at(const struct sfs_inode *in, int fd)
{
	for (; fd <= load_acquire(&sfs_fdt.fd_max); fd++) {
		const struct sfs_ofd *ofd = load_acquire(&sfs_fds[fd]);

		if (ofd > SFS_PRIVATE && ofd->inode == in)
			return fd;
	}
	return -1;
}

int sfs_inode_fd(const struct sfs_inode *in)
{
	const int own = __atomic_load_n(&in->fd, __ATOMIC_RELAXED);

	return own >= 0 ? own : sfs_inode_open_at(in, 0);
}

static struct sfs_inode *free_inode_locked(void)
{
	struct sfs_inode *in = sfs_files.free_inodes;
	struct sfs_slab *slab = sfs_files.slabs;

	if (in) {
		sfs_files.free_inodes = in->next;
		return in;
	}
	if (!slab || slab->used == SFS_SLAB_INODES) {
		slab = sys_mmap(NULL, sizeof(*slab), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (sys_is_err(slab))
			return NULL;
		slab->next = sfs_files.slabs;
		store_release(&sfs_files.slabs, slab);
	}
	in = &slab->inodes[slab->used];
	store_release(&slab->used, slab->used + 1);
	return in;
}

_Static_assert(offsetof(struct sfs_inode, lock) == 0 &&
		       offsetof(struct sfs_inode, next) == sizeof(struct sfs_mutex) + sizeof(uint64_t) + sizeof(void *),
	       "what follows the lock, `awaited` and `vol` is cleared");

/* The inode with one more reference; new ones know nothing but their name yet. NULL without memory. */
struct sfs_inode *sfs_inode_get_locked(struct sfs_volume *vol, dev_t dev, ino_t ino, bool parks)
{
	struct sfs_inode *in = find_locked(dev, ino);
	uint64_t changes;

	if (!in) {
		in = free_inode_locked();
		if (!in)
			return NULL;
		/* Not the lock and the volume: a stale pointer may be in use. And a reader is to see that it is another file. */
		changes = (in->flights.changes / SFS_CHANGES_ONE + 1) * SFS_CHANGES_ONE;
		memset(&in->next, 0, sizeof(*in) - offsetof(struct sfs_inode, next));
		in->flights.changes = changes;
		__atomic_store_n(&in->vol, vol, __ATOMIC_RELAXED);
		in->fd = in->fd_readonly = -1;
		__atomic_signal_fence(__ATOMIC_SEQ_CST); /* another thread may fork: the child closes what an inode has open */
		in->dev = dev;
		in->ino = ino;
		in->kdirty = true;
		in->next = sfs_files.hash[bucket(dev, ino)];
		store_release(&sfs_files.hash[bucket(dev, ino)], in);
	}
	hold_locked(in);
	sfs_park_set(&in->park, parks ? PARK_MAY : PARK_NEVER);
	in->park.age = 0;
	return in;
}

void sfs_inode_left(void)
{
	__atomic_add_fetch(&sfs_files.left, 1, __ATOMIC_ACQ_REL);
}

void sfs_inode_close_own(struct sfs_inode *in)
{
	const int fd = in->fd, readonly = in->fd_readonly;

	if (fd >= 0)
		sfs_inode_left();
	sfs_inode_unmap(in);
	sfs_pins_idle(&in->pins);
	sfs_life_again(&in->life);
	in->writable = false;
	/* First: another thread may fork, and the child closes what it finds here (process/process.c), which may be another file's by then. */
	in->fd_readonly = -1;
	__atomic_store_n(&in->fd, -1, __ATOMIC_RELAXED);
	if (fd >= 0)
		sfs_file_close(fd);
	if (readonly >= 0)
		sfs_file_close(readonly);
}

void sfs_inode_renew(struct sfs_inode *in)
{
	uint64_t *op;

	if (unlikely(!sfs_op_begin(in, &op)))
		return;
	sfs_inode_lock(in);
	if (in->unsure && in->fd < 0 && !sfs_inode_pending(in)) {
		if (in->grant.revokes > 0)
			sfs_service_answer(in);
		if (in->grant.state != GRANT_NONE)
			sfs_agent_release(in->vol, &in->grant, in->ino, in->gen);
		in->gen = 0;
		sfs_life_set(&in->life, LIFE_NEW);
		sfs_server_again(&in->server);
		in->privileged = in->locked = in->named = in->fsyncs = false;
		in->kdirty = true;
		in->unheld = (struct sfs_unheld){0};
		sfs_inode_unmap(in);
	}
	store_release(&in->unsure, false);
	sfs_inode_unlock(in);
	sfs_op_end(op);
}

/* Drop what hangs on the inode. Lock held exclusively, nothing staged. */
static void dismantle(struct sfs_inode *in)
{
	sfs_turn_come(in); /* closed by another thread meanwhile */
	sfs_inode_times(in);
	sfs_staging_end(&in->staging, (in->size + SFS_BLOCK - 1) / SFS_BLOCK);
	sfs_inode_close_own(in);
}

bool sfs_inode_parks(const struct sfs_inode *in)
{
	return (in->park.state == PARK_MAY || in->park.state == PARK_PARKED) && !sfs_by_kernel(in) &&
	       sfs_grant_deleg(&in->grant) == SFS_DELEG_EXCLUSIVE && load_acquire(&in->vol->agent.state) == VOL_READY &&
	       !sfs.no_staging && sfs.service_state && (sfs_parked(&in->park) || load_acquire(&sfs_files.parked) < PARKED_MAX);
}

/*
 * Give a reference back. With the last one the inode goes (sfs_inode_end() when true is returned); whoever drops it has flushed before (a
 * flush that failed keeps the data staged and its records live: then the inode stays, for the agent to recover when the process ends).
 */
static bool put_locked(struct sfs_inode *in, bool walk)
{
	bool stays, last;

	in->walks -= walk;
	/* Not open any more, or it was not: may it stay? */
	stays = in->refs - in->walks == 1 && sfs_inode_parks(in);
	if (stays && !sfs_parked(&in->park)) {
		sfs_park_set(&in->park, PARK_PARKED);
		in->locked = false; /* they go with the descriptor that is being closed */
		sfs_files.parked++;
	}
	last = in->refs == 1 && !stays;
	if (!last)
		in->refs--;
	return last;
}

bool sfs_inode_put_locked(struct sfs_inode *in)
{
	return put_locked(in, false);
}

/*
 * Lock held. Nobody has it open, and it can't go yet: what is staged of it could not be relinked, or somebody looks at a snapshot
 * of it.
 */
static bool stays_closed(const struct sfs_inode *in)
{
	return sfs_inode_pending(in) || in->pins.total > 0;
}

/* Signals blocked: nothing comes between the end of the mark and the lock, nor before the inode is free. */
static void end_blocked(struct sfs_inode *in)
{
	struct sfs_inode **p;
	uint64_t *op;
	bool last;

	if (unlikely(!sfs_op_begin(in, &op))) {
		/* A signal handler has left the call that has the lock by a jump: it stays as it is. */
		sfs_mutex_lock(&sfs_files.lock);
		in->refs--;
		leave_park_locked(in);
		sfs_mutex_unlock(&sfs_files.lock);
		return;
	}
	sfs_op_end(op);
	sfs_inode_lock(in);
	sfs_mutex_lock(&sfs_files.lock);
	last = --in->refs == 0;
	sfs_mutex_unlock(&sfs_files.lock);
	/* Released while others can still find the inode: whoever opens it meanwhile asks again, after our release. */
	if (last && !stays_closed(in) && in->grant.state != GRANT_NONE) {
		/* First: who is told that we have gone may ask the kernel for a lease. */
		sfs_inode_times(in);
		sfs_inode_close_own(in);
		sfs_agent_release(in->vol, &in->grant, in->ino, in->gen);
	}
	sfs_mutex_lock(&sfs_files.lock);
	if (!last || in->refs > 0 || stays_closed(in)) {
		if (stays_closed(in))
			leave_park_locked(in);
		sfs_mutex_unlock(&sfs_files.lock);
		sfs_inode_unlock(in);
		return;
	}
	for (p = &sfs_files.hash[bucket(in->dev, in->ino)]; *p != in; p = &(*p)->next)
		;
	*p = in->next;
	sfs_mutex_unlock(&sfs_files.lock);
	if (in->grant.revokes > 0)
		sfs_service_answer(in); /* it was busy when the service thread tried */
	dismantle(in);
	in->ino = 0;
	sfs_inode_unlock(in);
	sfs_mutex_lock(&sfs_files.lock);
	leave_park_locked(in); /* not before its descriptor is closed */
	in->next = sfs_files.free_inodes;
	sfs_files.free_inodes = in;
	sfs_mutex_unlock(&sfs_files.lock);
}

void sfs_inode_end(struct sfs_inode *in)
{
	const uint64_t signals = sfs_signals_block();

	end_blocked(in);
	sfs_signals_restore(signals);
}

static void put(struct sfs_inode *in, bool walk)
{
	bool last;

	sfs_mutex_lock(&sfs_files.lock);
	last = put_locked(in, walk);
	sfs_mutex_unlock(&sfs_files.lock);
	if (last)
		sfs_inode_end(in);
}

void sfs_inode_put(struct sfs_inode *in)
{
	put(in, false);
}

static void walk_locked(struct sfs_inode *in)
{
	if (in) {
		in->refs++;
		in->walks++;
	}
}

/*
 * Call fn for every inode of the volume that was open all the time; no lock is held while fn runs, and the inode can't go
 * away. fn returning non-zero ends the walk.
 */
void sfs_inodes_each(struct sfs_volume *vol, int (*fn)(struct sfs_inode *in, void *arg), void *arg)
{
	const uint64_t signals = sfs_signals_block();

	for (int i = 0; i < SFS_HASH; i++) {
		struct sfs_inode *in, *next;
		int stop = 0;

		if (!load_acquire(&sfs_files.hash[i]))
			continue; /* what is opened now was not open all the time */
		sfs_mutex_lock(&sfs_files.lock);
		for (in = sfs_files.hash[i]; in && in->vol != vol; in = in->next)
			;
		walk_locked(in);
		sfs_mutex_unlock(&sfs_files.lock);
		while (in && !stop) {
			stop = fn(in, arg);
			sfs_mutex_lock(&sfs_files.lock);
			for (next = in->next; next && next->vol != vol; next = next->next)
				;
			walk_locked(next);
			sfs_mutex_unlock(&sfs_files.lock);
			put(in, true);
			in = next;
		}
		if (in)
			put(in, true);
		if (stop)
			break;
	}
	sfs_signals_restore(signals);
}

bool sfs_inode_evict(struct sfs_inode *in)
{
	bool alone;

	sfs_mutex_lock(&sfs_files.lock);
	alone = in->refs == in->walks;
	if (alone)
		sfs_park_end(&in->park);
	sfs_mutex_unlock(&sfs_files.lock);
	return alone;
}

static int unpark_one(struct sfs_inode *in, void *arg)
{
	(void)arg;
	if (sfs_parked(&in->park) && sfs_inode_evict(in))
		sfs_inode_settle(in);
	return 0;
}

static int age_one(struct sfs_inode *in, void *arg)
{
	return sfs_parked(&in->park) && ++in->park.age >= AGE_MAX ? unpark_one(in, arg) : 0;
}

void sfs_inodes_age(struct sfs_volume *vol)
{
	if (load_acquire(&sfs_files.parked) > 0)
		sfs_inodes_each(vol, age_one, NULL);
}

void sfs_inodes_unpark(void)
{
	/* The service thread may just be looking at one, which goes when it has. */
	for (int n = 0; load_acquire(&sfs_files.parked) > 0 && n < NAPS; n++) {
		if (n > 0)
			sys_nap(NAP_NS);
		for (int i = 0; i < sfs.nvolumes; i++)
			sfs_inodes_each(&sfs.volumes[i], unpark_one, NULL);
	}
}
