/* SPDX-License-Identifier: Apache-2.0 */
/* dup(2), dup3(2) and fcntl(2). */
#include "calls/attach.h"

#include <errno.h>

#include "base/sys.h"
#include "calls/calls.h"
#include "files/kernel_offset.h"

#define SETFL (O_APPEND | O_DIRECT | O_NONBLOCK | O_NOATIME) /* what F_SETFL can change */

/* What is known of a descriptor that is about to be duplicated. */
struct source {
	struct sfs_ofd *ofd;
	uint32_t number;
};

static struct source source_of(int fd)
{
	struct source s = {(unsigned)fd < (unsigned)sfs_fds_len ? load_acquire(&sfs_fds[fd]) : SFS_FOREIGN, 0};

	if (s.ofd > SFS_PRIVATE)
		s.number = load_acquire(&s.ofd->number);
	return s;
}

/* The kernel has duplicated fd, and the description has one descriptor more. False: another thread may have changed what fd leads to before. */
static bool hold(int fd, const struct source *s)
{
	bool same;

	if ((unsigned)fd >= (unsigned)sfs_fds_len)
		return true;
	sfs_mutex_lock(&sfs_files.lock);
	same = !sfs_fds_changing(s->ofd) && load_acquire(&sfs_fds[fd]) == s->ofd &&
	       (s->ofd <= SFS_PRIVATE || load_acquire(&s->ofd->number) == s->number);
	if (same && s->ofd > SFS_PRIVATE)
		s->ofd->refs++;
	sfs_mutex_unlock(&sfs_files.lock);
	/* Both have one offset: the kernel's. */
	if (same && !s->ofd)
		store_release(&sfs_fds_fresh[fd], false);
	return same;
}

/* What is private to us is no file of the program's. */
static struct sfs_ofd *copied(const struct source *s)
{
	return s->ofd == SFS_PRIVATE ? SFS_FOREIGN : s->ofd;
}

/* A duplicate under a number that the kernel chooses. */
static int duplicate(int fd, long call, long a, long b)
{
	struct source s;
	int copy;

	for (;;) {
		sfs_ours(fd);
		s = source_of(fd);
		copy = (int)sys_call3(call, fd, a, b);
		if (sfs_numbers_back(copy, false))
			continue;
		if (copy < 0 || copy >= sfs_fds_len)
			return copy;
		if (hold(fd, &s))
			break;
		sys_close(copy);
	}
	sfs_enter(copy, copied(&s));
	return copy;
}

int sfs_dup(int fd)
{
	return duplicate(fd, SYS_dup, 0, 0);
}

/* *again: fd was changed by another thread, and newfd leads to what it led to before or after. */
static int dup3_once(int fd, int newfd, int flags, bool *again)
{
	const struct source s = source_of(fd);
	struct sfs_ofd *old, *change = sfs_fds_change(newfd, &old), *what = old;
	int r;

	*again = false;
	if (!change)
		return -EBADF;
	if (old > SFS_PRIVATE)
		sfs_kernel_offset_drain(old);
	sfs_fds_written(newfd);
	r = (int)sys_call3(SYS_dup3, fd, newfd, flags);
	if (r >= 0) {
		*again = !hold(fd, &s);
		what = *again ? NULL : copied(&s);
		store_release(&sfs_fds_fresh[newfd], false);
	}
	if (!sfs_fds_changed(newfd, change, what) && what > SFS_PRIVATE)
		sfs_ofd_put(what);
	if (r >= 0 && old > SFS_PRIVATE)
		sfs_ofd_put(old);
	return r;
}

int sfs_dup3(int fd, int newfd, int flags)
{
	uint64_t signals;
	bool again;
	int r;

	if (sfs_fd_is_private(newfd) && !sfs_number_give_up(newfd))
		return -EBADF;
	if (newfd >= sfs_fds_len)
		return (int)sys_call3(SYS_dup3, fd, newfd, flags);
	do {
		sfs_ours(fd);
		signals = sfs_signals_block();
		r = dup3_once(fd, newfd, flags, &again);
		sfs_signals_restore(signals);
	} while (again);
	return r;
}

int sfs_fcntl(int fd, int cmd, long arg)
{
	struct sfs_ofd *ofd = sfs_ofd_of(fd);
	struct sfs_locking locking;
	int r;

	if (cmd == F_SETLK || cmd == F_SETLKW || cmd == F_OFD_SETLK || cmd == F_OFD_SETLKW) {
		r = sfs_true_to_lock(fd, &locking); /* a lock is where another process looks */
		if (r == 0) {
			r = sys_fcntl(fd, cmd, arg);
			sfs_lock_over(fd, &locking);
		}
		return r;
	}
	if (cmd == F_SETLEASE)
		return sfs_setlease(fd, (int)arg);
	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
		return duplicate(fd, SYS_fcntl, cmd, arg);
	r = sys_fcntl(fd, cmd, arg);
	if (r >= 0 && cmd == F_SETFL && ofd)
		ofd->flags = (ofd->flags & ~SETFL) | (int)(arg & SETFL);
	return r;
}
