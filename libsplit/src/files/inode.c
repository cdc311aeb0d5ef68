/* SPDX-License-Identifier: Apache-2.0 */
/* Files that this process has open on our volumes. */
#include "files/inode.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sys.h"
#include "format/identity.h"
#include "lease/ask.h"

#define PARKED_MAX  128u /* inodes that are not open: each has a descriptor */
#define AGE_MAX	    10u	 /* ticks: a second */
#define DRAIN_TRIES 2000
#define NAP_NS	    50000l
#define NAPS	    1000 /* 50 ms: a service thread that takes longer than this does not keep a fork or exec waiting */

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
	if (in->park.parked) {
		in->park.parked = false;
		sfs_files.parked--;
	}
}

/* A reference of the application's. */
static void hold_locked(struct sfs_inode *in)
{
	in->refs++;
	leave_park_locked(in);
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

static struct sfs_inode *free_inode_locked(void)
{
	struct sfs_inode *in = sfs_files.free_inodes;

	if (!in) {
		struct sfs_slab *slab =
			sys_mmap(NULL, sizeof(*slab), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (sys_is_err(slab))
			return NULL;
		for (size_t i = 0; i < SFS_SLAB_INODES; i++) {
			slab->inodes[i].next = sfs_files.free_inodes;
			sfs_files.free_inodes = &slab->inodes[i];
		}
		slab->next = sfs_files.slabs;
		store_release(&sfs_files.slabs, slab);
		in = sfs_files.free_inodes;
	}
	sfs_files.free_inodes = in->next;
	return in;
}

_Static_assert(offsetof(struct sfs_inode, lock) == 0, "what follows the lock is cleared");

/* The inode with one more reference; new ones know nothing but their name yet. NULL without memory. */
struct sfs_inode *sfs_inode_get_locked(struct sfs_volume *vol, dev_t dev, ino_t ino)
{
	struct sfs_inode *in = find_locked(dev, ino);
	uint64_t changes;

	if (!in) {
		in = free_inode_locked();
		if (!in)
			return NULL;
		/* Not the lock: a stale pointer may be waiting for it. And a reader is to see that it is another file. */
		changes = (in->flights.changes / SFS_CHANGES_ONE + 1) * SFS_CHANGES_ONE;
		memset((char *)in + sizeof(in->lock), 0, sizeof(*in) - sizeof(in->lock));
		in->flights.changes = changes;
		in->vol = vol;
		in->dev = dev;
		in->ino = ino;
		in->fd = in->fd_readonly = -1;
		in->kdirty = true;
		in->next = sfs_files.hash[bucket(dev, ino)];
		sfs_files.hash[bucket(dev, ino)] = in;
	}
	hold_locked(in);
	in->park.evict = false;
	in->park.age = 0;
	return in;
}

/* Drop what hangs on the inode. Lock held exclusively, nothing staged. */
static void dismantle(struct sfs_inode *in)
{
	sfs_inode_times(in);
	sfs_inode_unmap(in);
	sfs_pins_idle(&in->pins);
	if (in->staging.table)
		sys_munmap(in->staging.table, in->staging.table_blocks * sizeof(sfs_block));
	if (in->fd >= 0)
		sfs_private_close(in->fd);
	if (in->fd_readonly >= 0)
		sfs_private_close(in->fd_readonly);
	in->staging.table = NULL;
	in->staging.table_blocks = 0;
	in->fd = in->fd_readonly = -1;
	in->ready = false;
}

bool sfs_inode_parks(const struct sfs_inode *in)
{
	return in->park.keep && !in->park.evict && !in->kernel_only && in->grant.deleg == SFS_DELEG_EXCLUSIVE &&
	       load_acquire(&in->vol->agent.state) == VOL_READY && !sfs.no_staging && sfs.service_state &&
	       (in->park.parked || load_acquire(&sfs_files.parked) < PARKED_MAX);
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
	if (stays && !in->park.parked) {
		in->park.parked = true;
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
	return in->staging.count > 0 || in->live || in->pins.total > 0;
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
	if (last && !stays_closed(in) && (in->grant.held || in->grant.deleg != SFS_DELEG_NONE))
		sfs_agent_release(in->vol, &in->grant, in->ino, in->gen);
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
		in->park.evict = true;
	sfs_mutex_unlock(&sfs_files.lock);
	return alone;
}

static int unpark_one(struct sfs_inode *in, void *arg)
{
	(void)arg;
	if (in->park.parked && sfs_inode_evict(in))
		sfs_inode_settle(in);
	return 0;
}

static int age_one(struct sfs_inode *in, void *arg)
{
	return in->park.parked && ++in->park.age >= AGE_MAX ? unpark_one(in, arg) : 0;
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

void sfs_fd_path(char *buf, int fd)
{
	static const char prefix[] = "/proc/self/fd/";
	char digits[12];
	int i = sizeof(digits) - 1;

	memcpy(buf, prefix, sizeof(prefix) - 1);
	digits[i] = 0;
	do
		digits[--i] = (char)('0' + fd % 10);
	while ((fd /= 10) != 0);
	memcpy(buf + sizeof(prefix) - 1, digits + i, sizeof(digits) - (size_t)i);
}

/* Is the file in the part of the file system that is ours? Only asked where the volume is a directory of something larger. */
bool sfs_below(const struct sfs_volume *vol, int fd)
{
	char link[32], path[SFS_PATH_MAX + 256];
	const size_t n = strlen(vol->dir);
	ssize_t len;

	sfs_fd_path(link, fd);
	len = sys_readlinkat(AT_FDCWD, link, path, sizeof(path));
	if (len < (ssize_t)n || memcmp(path, vol->dir, n) != 0 || (len > (ssize_t)n && path[n] != '/' && n > 1))
		return false;
	/* The control directory is not content. */
	return len < (ssize_t)(n + sizeof("/" SFS_CONTROL_DIR) - 1) ||
	       memcmp(path + n, "/" SFS_CONTROL_DIR "/", sizeof("/" SFS_CONTROL_DIR)) != 0;
}

/*
 * A descriptor of our own, with a file offset of its own: read-write where the application's is, so that we can map and relink.
 * A process that may not open the file again (its identity has changed, it has no number left) has none.
 */
static int own_fd(int fd, int accmode)
{
	const int flags = (accmode == O_RDONLY ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOCTTY;
	struct sfs_limit l;
	char path[32];
	int own;

	sfs_fd_path(path, fd);
	sfs_limit_lift(&l);
	own = sfs_limit_move(&l, sys_openat(AT_FDCWD, path, flags, 0));
	sfs_limit_set_back(&l);
	return own;
}

/* Size as the kernel has it; only when nothing is staged. */
/* holes: somebody may have made some; else the size has changed and nothing more. */
static void look_at_size(struct sfs_inode *in, bool holes)
{
	struct stat st;

	if (in->fd < 0 || in->staging.count > 0 || sys_fstat(in->fd, &st) < 0)
		return;
	if (holes)
		in->window.dense_known = false;
	else
		sfs_window_resized(&in->window, in->fd, in->ksize, (uint64_t)st.st_size);
	in->ksize = in->size = (uint64_t)st.st_size;
	if (in->window.populated > in->ksize)
		in->window.populated = in->ksize;
}

void sfs_inode_reload(struct sfs_inode *in)
{
	look_at_size(in, true);
}

void sfs_inode_resize(struct sfs_inode *in)
{
	look_at_size(in, false);
}

/* 1: they are new. */
int sfs_inode_own(struct sfs_inode *in, int fd, int flags)
{
	const int accmode = flags & O_ACCMODE;
	struct stat st;
	int own, r;

	if (in->kernel_only || (in->fd >= 0 && (accmode == O_RDONLY || in->writable)))
		return 0;
	/* A descriptor is opened under a low number, and that number closed. */
	if (in->locked) {
		in->kernel_only = true;
		r = in->gen ? 0 : sfs_generation(fd, &in->gen);
		return r < 0 ? r : 1;
	}
	if (in->vol->mode == SFS_POSIX && in->vol->owners && !in->vol->dedicated && in->fd < 0 && !sfs_below(in->vol, fd)) {
		in->kernel_only = true;
		return 0;
	}
	own = own_fd(fd, accmode);
	if (own >= 0 && (sys_fstat(own, &st) < 0 || st.st_ino != in->ino || st.st_dev != in->dev)) {
		sfs_private_close(own);
		return -EBADF; /* closed by another thread meanwhile */
	}
	if (own < 0) {
		in->kernel_only = true;
	} else {
		in->fd_readonly = in->fd; /* opened read-only so far */
		in->fd = own;
		in->writable = accmode != O_RDONLY;
		/* The first write looks what they are (privileges.c). */
		in->privileged = in->privileged || (st.st_mode & (S_ISUID | S_ISGID | S_IXUSR | S_IXGRP | S_IXOTH));
		sfs_inode_unmap(in);
	}
	sfs_files.granted = true;
	r = in->gen ? 0 : sfs_generation(fd, &in->gen);
	in->kernel_only = in->kernel_only || (r == 0 && sfs_was_mapped(in));
	return r < 0 ? r : 1;
}

/*
 * A thread of this process may be changing the file by the kernel, without a grant: its call is waited for. One that does not end, as a
 * handler has interrupted it, is reason not to stage.
 */
static void acquire(struct sfs_inode *in, int fd)
{
	bool claimed = in->vol->owners && in->vol->claims;

	sfs_asking_begin(in);
	for (int n = 0; claimed && n < DRAIN_TRIES; n++) {
		claimed = sfs_claimed_here(in->vol, in->ino);
		if (claimed)
			sys_call0(SYS_sched_yield);
	}
	sfs_agent_acquire(in->vol, &in->grant, in->ino, in->gen, fd, 0);
	if (claimed && in->grant.deleg == SFS_DELEG_EXCLUSIVE)
		in->grant.deleg = SFS_DELEG_SHARED;
	in->kdirty = true;
	sfs_asking_end(in);
}

/*
 * Make the inode usable: our descriptor, generation, delegation and size. flags: how fd was opened. When the agent can't
 * be asked the delegation is SHARED, when there is no descriptor for us kernel_only is set: the kernel serves the file.
 * Returns 0 or a negative errno value.
 */
int sfs_inode_ready(struct sfs_inode *in, int fd, int flags)
{
	bool ask = in->grant.deleg == SFS_DELEG_NONE || in->grant.untold;
	int r;

	if (unlikely(in->lost))
		return -EIO;
	r = sfs_inode_own(in, fd, flags);
	if (r < 0)
		return r;
	/* Also for a file first opened read-only: the agent must see that we may write it. */
	ask = ask || r > 0;
	/* The answer may be that others have it, too. */
	r = ask ? sfs_pins_save_all(&in->pins) : 0;
	if (r < 0) {
		in->grant.untold = true; /* it is asked for with the next call */
		return r;
	}
	if (ask) {
		/* In the child of a fork: a log of its own. */
		if (in->vol->agent.state == VOL_UNKNOWN || in->grant.untold)
			sfs_volume_connect(in->vol, fd);
		if (in->vol->agent.state == VOL_READY) {
			acquire(in, in->fd >= 0 ? in->fd : fd);
		} else {
			in->grant.deleg = SFS_DELEG_SHARED;
			in->grant.untold = true;
		}
	}
	if (ask || !in->ready)
		sfs_inode_reload(in);
	in->ready = true;
	return 0;
}

/* Stores through a mapping leave mtime behind on some file systems: set it before anybody looks. */
void sfs_inode_times(struct sfs_inode *in)
{
	const struct timespec ts[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};

	if (!in->touched || in->fd < 0)
		return;
	sfs_grow_end(in); /* the next append is to touch it again */
	in->touched = false;
	sys_call4(SYS_utimensat, in->fd, 0, (long)ts, 0);
}
