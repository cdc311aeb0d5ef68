/* SPDX-License-Identifier: Apache-2.0 */
/* What has to be known of a file, and asked for, before a call on it is served. */
#include <errno.h>
#include <unistd.h>

#include "base/sys.h"
#include "files/leased.h"
#include "files/scarce.h"
#include "format/identity.h"
#include "lease/ask.h"

#define DRAIN_TRIES 2000
#define STAT_TRIES  3

/* What the kernel could not tell for want of memory it may tell now; where it goes on failing, what was known of the file stands. */
static bool stat_own(const struct sfs_inode *in, struct stat *st)
{
	for (int tries = 0; tries < STAT_TRIES; tries++)
		if (sys_fstat(in->fd, st) == 0)
			return true;
	return false;
}

/* Size as the kernel has it; only when nothing is staged. holes: somebody may have made some; else the size has changed and nothing more. */
static void look_at_size(struct sfs_inode *in, bool holes)
{
	struct stat st;

	if (in->fd < 0 || in->staging.count > 0 || !stat_own(in, &st))
		return;
	if (holes)
		sfs_window_unknown(&in->window);
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

int sfs_inode_generation(struct sfs_inode *in, int fd)
{
	struct stat st;
	uint32_t gen;
	int r;

	if (in->gen)
		return 0;
	r = sfs_generation(in->fd >= 0 ? in->fd : fd, &gen);
	if (r == 0 && in->fd < 0 && (sys_fstat(fd, &st) < 0 || st.st_ino != in->ino || st.st_dev != in->dev))
		return SFS_GONE;
	if (r == 0)
		in->gen = gen;
	return r;
}

/* There is no number for a descriptor of our own: the kernel serves the file, where it can keep what the mode promises. As sfs_inode_own(). */
static int without_own(struct sfs_inode *in, int fd)
{
	int r;

	if (in->vol->mode == SFS_STRICT)
		return sfs_scarce_refuse(in->vol);
	sfs_server_kernel(&in->server);
	r = sfs_inode_generation(in, fd);
	return r < 0 ? r : 1;
}

/* 1: they are new. */
int sfs_inode_own(struct sfs_inode *in, int fd, int flags)
{
	const int accmode = flags & O_ACCMODE;
	struct stat st;
	int own, r;

	if (sfs_by_kernel(in))
		return sfs_inode_generation(in, fd);
	if (in->fd >= 0 && (accmode == O_RDONLY || in->writable))
		return 0;
	/* A descriptor is opened under a low number, and that number closed. */
	if (in->locked || sfs_locked_before(fd)) {
		sfs_server_kernel(&in->server);
		in->locked = true;
		r = sfs_inode_generation(in, fd);
		return r < 0 ? r : 1;
	}
	if (in->vol->mode == SFS_POSIX && in->vol->owners && !in->vol->dedicated && in->fd < 0 && !sfs_below(in->vol, fd)) {
		sfs_server_kernel(&in->server);
		return 0;
	}
	/*
	 * It has a file offset of its own, and is read-write where the application's is, so that we can map and relink. The end of a
	 * lease is not waited for.
	 */
	own = sfs_scarce_open(in, fd, (accmode == O_RDONLY ? O_RDONLY : O_RDWR) | O_NONBLOCK);
	if (own >= 0 && (sys_fstat(own, &st) < 0 || st.st_ino != in->ino || st.st_dev != in->dev)) {
		sfs_file_close(own);
		return SFS_GONE;
	}
	if (own == -EMFILE)
		return own;
	if (own == -EAGAIN) {
		sfs_server_lease(&in->server); /* the lease is being broken, and the program has not answered yet */
		return sfs_inode_generation(in, fd);
	}
	if (own < 0) {
		sfs_server_kernel(&in->server); /* the process may not open it again: its identity has changed */
	} else {
		in->fd_readonly = in->fd; /* opened read-only so far */
		in->fd = own;
		in->writable = accmode != O_RDONLY;
		/* The first write looks what they are (privileges.c). */
		in->privileged = in->privileged || (st.st_mode & (S_ISUID | S_ISGID | S_IXUSR | S_IXGRP | S_IXOTH));
		sfs_inode_unmap(in);
	}
	__atomic_store_n(&sfs_files.granted, true, __ATOMIC_RELAXED);
	r = sfs_inode_generation(in, fd);
	if (r == 0 && sfs_was_mapped(in))
		sfs_server_kernel(&in->server);
	return r < 0 ? r : 1;
}

int sfs_inode_acquire(struct sfs_inode *in, int fd, unsigned flags)
{
	int r;

	if (in->grant.state == GRANT_QUEUED)
		flags |= in->grant.asked;
	/* Who stages nothing keeps nobody from reading. */
	if (sfs_by_kernel(in) && (in->vol->agent.features & SFS_FEATURE_KERNEL))
		flags |= SFS_ACQ_KERNEL;
	in->grant.asked = flags;
	sfs_turn_begin(in);
	r = sfs_agent_acquire(in->vol, &in->grant, in->ino, in->gen, fd, flags);
	in->kdirty = true; /* what others have had the kernel do meanwhile */
	if (r != SFS_TURN)
		sfs_turn_come(in);
	return r;
}

/*
 * A thread of this process may be changing the file by the kernel, without a grant: its call is waited for. One that does not end, as a
 * handler has interrupted it, is reason not to stage.
 */
static int acquire(struct sfs_inode *in, int fd)
{
	bool claimed = in->vol->owners && in->vol->claims;
	int r;

	sfs_asking_begin(in);
	for (int n = 0; claimed && n < DRAIN_TRIES; n++) {
		claimed = sfs_claimed_here(in->vol, in->ino);
		if (claimed)
			sys_call0(SYS_sched_yield);
	}
	r = sfs_inode_acquire(in, fd, 0);
	if (claimed && sfs_grant_deleg(&in->grant) == SFS_DELEG_EXCLUSIVE)
		sfs_grant_set(&in->grant, GRANT_SHARED);
	sfs_asking_end(in);
	return r == SFS_TURN ? r : 0;
}

/*
 * Make the inode usable: our descriptor, generation, delegation and size. flags: how fd was opened. When the agent can't
 * be asked the delegation is SHARED, when there is no descriptor for us the kernel serves the file.
 * Returns 0 or a negative errno value.
 */
int sfs_inode_ready(struct sfs_inode *in, int fd, int flags)
{
	bool ask;
	int r;

	if (unlikely(in->life == LIFE_LOST))
		return -EIO;
	sfs_lease_look(in, fd);
	ask = in->grant.state <= GRANT_UNTOLD;
	r = sfs_inode_own(in, fd, flags);
	if (r == -EMFILE)
		r = without_own(in, fd);
	if (r < 0)
		return r;
	/* Also for a file first opened read-only: the agent must see that we may write it. */
	ask = ask || r > 0;
	/* The answer may be that others have it, too. */
	r = ask ? sfs_pins_save_all(&in->pins) : 0;
	if (r < 0) {
		sfs_grant_set(&in->grant, GRANT_UNTOLD); /* it is asked for with the next call */
		return r;
	}
	if (ask) {
		/* In the child of a fork: a log of its own. */
		if (in->vol->agent.state == VOL_UNKNOWN || in->grant.state == GRANT_UNTOLD)
			sfs_volume_connect(in->vol, fd);
		if (in->vol->agent.state == VOL_READY) {
			r = acquire(in, in->fd >= 0 ? in->fd : fd);
		} else {
			sfs_grant_set(&in->grant, GRANT_UNTOLD);
		}
	}
	if (r == SFS_TURN) {
		sfs_life_again(&in->life);
		return r;
	}
	if (ask || in->life != LIFE_READY)
		sfs_inode_reload(in);
	sfs_life_set(&in->life, LIFE_READY);
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
