/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors: closing and duplicating them, and fcntl. */
#include "preload.h"

#include <sched.h>
#include <unistd.h>

#define UNSHARE (1u << 1) /* CLOSE_RANGE_UNSHARE */

/* Asked about every descriptor: the core keeps some of its own, which a program that closes all it finds must not hit. */
WRAPPER int w_close(int fd)
{
	int r;

	if (likely(!sfs_active()))
		return REAL(close)(fd);
	pl_cancel_point();
	r = sfs_close(fd);
	return r == SFS_PASS ? REAL(close)(fd) : (int)pl_ret(r);
}
EXPORT(close, w_close);
EXPORT(__close, w_close);

/*
 * A table of descriptors of a thread's own: the same numbers would mean different files, which we can't tell apart. With one thread there
 * is nobody to be apart from. Else it is refused, rather than served wrongly.
 */
long pl_unshare_raw(int flags)
{
	if ((flags & CLONE_FILES) && sfs_one_thread())
		flags &= ~CLONE_FILES;
	if (flags & CLONE_FILES)
		return -EOPNOTSUPP;
	return flags ? sys_call1(SYS_unshare, flags) : 0;
}

WRAPPER int w_unshare(int flags)
{
	if (likely(!sfs_active() || !(flags & CLONE_FILES)))
		return REAL(unshare)(flags);
	return (int)pl_ret(pl_unshare_raw(flags));
}
EXPORT(unshare, w_unshare);

long pl_close_range_raw(unsigned first, unsigned last, unsigned flags)
{
	long r = SFS_PASS;

	if (flags & UNSHARE) {
		if (!sfs_one_thread())
			return -EOPNOTSUPP;
		flags &= ~UNSHARE;
	}
	r = sfs_close_range(first, last, flags);
	return r == SFS_PASS ? sys_call3(SYS_close_range, first, last, flags) : r;
}

WRAPPER int w_close_range(unsigned first, unsigned last, int flags)
{
	if (likely(!sfs_active()))
		return REAL(close_range)(first, last, flags);
	return (int)pl_ret(pl_close_range_raw(first, last, (unsigned)flags));
}
EXPORT(close_range, w_close_range);

WRAPPER void w_closefrom(int first)
{
	if (!sfs_active() || sfs_close_range(first < 0 ? 0 : (unsigned)first, ~0u, 0) == SFS_PASS)
		REAL_AS(void (*)(int), closefrom)(first);
}
EXPORT(closefrom, w_closefrom);

WRAPPER int w_dup(int fd)
{
	int r;

	if (likely(!sfs_ours(fd)))
		return REAL(dup)(fd);
	r = sfs_dup(fd);
	return pl_new_fd(r == SFS_PASS ? REAL(dup)(fd) : (int)pl_ret(r));
}
EXPORT(dup, w_dup);

static int dup_served(int oldfd, int newfd, int flags)
{
	int r = 0;

	if (sfs_ours(oldfd) && pl_stdio_marked(newfd))
		r = pl_hand_over(oldfd);
	if (r < 0)
		return (int)pl_ret(r);
	r = sfs_dup3(oldfd, newfd, flags);
	if (r == SFS_PASS)
		r = flags ? REAL(dup3)(oldfd, newfd, flags) : REAL(dup2)(oldfd, newfd);
	else
		r = (int)pl_ret(r);
	return pl_new_fd(r);
}

/*
 * Any descriptors: newfd may be a file of ours, or one of the core's own. A negative newfd means "any" to the core, and two
 * equal numbers are an error for dup3 only: both are for the real call.
 */
WRAPPER int w_dup2(int oldfd, int newfd)
{
	if (likely(!sfs_active()) || newfd < 0 || oldfd == newfd)
		return REAL(dup2)(oldfd, newfd);
	return dup_served(oldfd, newfd, 0);
}
EXPORT(dup2, w_dup2);
EXPORT(__dup2, w_dup2);

WRAPPER int w_dup3(int oldfd, int newfd, int flags)
{
	if (likely(!sfs_active()) || newfd < 0 || oldfd == newfd)
		return REAL(dup3)(oldfd, newfd, flags);
	return dup_served(oldfd, newfd, flags);
}
EXPORT(dup3, w_dup3);

/* Locks are where processes agree on what a file holds: it is true before one is taken or released, and read anew after. */
static int fcntl_lock(int fd, int cmd, long arg)
{
	TRUE_THEN(fd, REAL(fcntl)(fd, cmd, arg));
}

WRAPPER int w_fcntl(int fd, int cmd, long arg)
{
	int r;

	if (likely(!sfs_ours(fd)))
		return REAL(fcntl)(fd, cmd, arg);
	switch (cmd) {
	case F_SETLK:
	case F_SETLKW:
	case F_GETLK:
	case F_OFD_SETLK:
	case F_OFD_SETLKW:
	case F_OFD_GETLK:
	case F_SETLEASE:
		return fcntl_lock(fd, cmd, arg);
	case F_GETFD:
	case F_SETFD:
		return REAL(fcntl)(fd, cmd, arg);
	default:
		r = sfs_fcntl(fd, cmd, arg);
	}
	r = r == SFS_PASS ? REAL(fcntl)(fd, cmd, arg) : (int)pl_ret(r);
	return cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC ? pl_new_fd(r) : r;
}
EXPORT(fcntl, w_fcntl);
EXPORT(fcntl64, w_fcntl);
EXPORT(__fcntl, w_fcntl);
