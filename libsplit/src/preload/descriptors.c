/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors: closing and duplicating them, fcntl, and those that are no files. */
#include "preload.h"

#include <sched.h>

#define UNSHARE (1u << 1) /* CLOSE_RANGE_UNSHARE */

/* The core is asked about every descriptor: a program that closes all numbers must not close the library's own. */
long do_close(const struct request *q)
{
	long r;

	if (q->named)
		pl_cancel_point();
	r = sfs_close(pl_fd(q));
	r = r == SFS_PASS ? pl_make(q) : r;
	sfs_numbers_closed();
	return r;
}

/*
 * With a table of descriptors for each thread the same number would mean different files, and the library can't tell
 * them apart. So CLONE_FILES is refused while there are several threads. With one thread it changes nothing.
 */
long do_unshare(const struct request *q)
{
	const long flags = q->a[0];

	if (!(flags & CLONE_FILES))
		return pl_make(q);
	if (!sfs_one_thread())
		return -EOPNOTSUPP;
	return flags & ~CLONE_FILES ? sys_call1(SYS_unshare, flags & ~CLONE_FILES) : 0;
}

long do_close_range(const struct request *q)
{
	const unsigned first = (unsigned)q->a[0], last = (unsigned)q->a[1], flags = (unsigned)q->a[2] & ~UNSHARE;
	long r;

	if ((q->a[2] & UNSHARE) && !sfs_one_thread())
		return -EOPNOTSUPP;
	r = sfs_close_range(first, last, flags);
	r = r == SFS_PASS ? sys_call3(SYS_close_range, first, last, flags) : r;
	sfs_numbers_closed();
	return r;
}

long do_closefrom(const struct request *q)
{
	const int first = (int)q->a[0];

	return sfs_close_range(first < 0 ? 0 : (unsigned)first, ~0u, 0) == SFS_PASS ? pl_make(q) : 0;
}

long do_dup(const struct request *q)
{
	if (unlikely(pl_hidden(q)))
		return -EBADF;
	return sfs_ours(pl_fd(q)) ? pl_new_fd(sfs_dup(pl_fd(q))) : pl_make_new(q);
}

/*
 * dup2 and dup3. The core is asked about any descriptors: the second may be a file of ours, or the library's own. The
 * real call judges a negative number, which would mean "any" to the core, and two equal ones.
 */
long do_dup2(const struct request *q)
{
	const int fd = (int)q->a[0], newfd = (int)q->a[1], flags = q->call == PL_dup3 ? (int)q->a[2] : 0;
	int err;

	if (unlikely(pl_hidden(q)))
		return -EBADF;
	if (newfd < 0 || fd == newfd)
		return pl_make(q);
	err = sfs_ours(fd) && pl_stdio_marked(newfd) ? pl_hand_over(fd) : 0;
	return err < 0 ? err : pl_new_fd(sfs_dup3(fd, newfd, flags));
}

/* A lock is where processes agree on what a file holds: the file is true before the call, and read anew after it. */
long do_fcntl(const struct request *q)
{
	const int fd = pl_fd(q), cmd = (int)q->a[1];
	long r;

	if (!sfs_ours(fd)) {
		if (unlikely(pl_hidden(q)))
			return -EBADF;
		return cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC ? pl_make_new(q) : pl_make(q);
	}
	switch (cmd) {
	case F_SETLK:
	case F_SETLKW:
	case F_GETLK:
	case F_OFD_SETLK:
	case F_OFD_SETLKW:
	case F_OFD_GETLK:
		return do_lock_then(q);
	case F_SETLEASE:
		return sfs_setlease(fd, (int)q->a[2]);
	case F_GETFD:
	case F_SETFD:
	case F_GETOWN: /* the C library makes another call of it */
		return pl_make(q);
	default:
		r = sfs_fcntl(fd, cmd, q->a[2]);
		return cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC ? pl_new_fd(r) : r;
	}
}

/*
 * Sockets and their like need nothing done, but what was known of their number is void: a file of ours under it may
 * have been closed by a call that the library did not see. The note "no file of ours" also saves a look at first use.
 */
static void foreign(int fd)
{
	if (fd >= sfs_fds_len)
		return;
	if (unlikely(sfs_ours(fd)))
		sfs_forget(fd);
	__atomic_store_n(&sfs_fds[fd], (struct sfs_ofd *)1, __ATOMIC_RELEASE); /* "no file of ours": core.h */
}

long do_foreign(const struct request *q)
{
	const long fd = pl_make_new(q);

	if (fd >= 0)
		foreign((int)fd);
	return fd;
}

/* In its row FD(n) is the place of an array of two descriptors. */
long do_foreign_two(const struct request *q)
{
	const int *fds = (const int *)q->a[pl_rows[q->call].fd - 1];
	const long r = pl_make_new(q);

	if (r >= 0) {
		foreign(fds[0]);
		foreign(fds[1]);
	}
	return r;
}

/* It keeps its descriptor to itself. */
long do_new(const struct request *q)
{
	return pl_make_new(q);
}
