/* SPDX-License-Identifier: Apache-2.0 */
/* dup(2), dup3(2) and fcntl(2). */
#include "calls/attach.h"

#include <errno.h>

#include "base/sys.h"
#include "calls/calls.h"

#define SETFL (O_APPEND | O_DIRECT | O_NONBLOCK | O_NOATIME) /* what F_SETFL can change */

/* fd `copy` was just made a duplicate of fd by the kernel. */
static void share(int fd, int copy)
{
	struct sfs_ofd *ofd = (unsigned)fd < (unsigned)sfs_fds_len ? load_acquire(&sfs_fds[fd]) : NULL;

	if (copy >= sfs_fds_len)
		return;
	sfs_detach(copy);
	if (ofd > SFS_PRIVATE) {
		sfs_mutex_lock(&sfs_files.lock);
		ofd->refs++;
		sfs_mutex_unlock(&sfs_files.lock);
	}
	sfs_fds_enter(copy, ofd);
}

int sfs_dup(int fd)
{
	int copy;

	sfs_ours(fd);
	do
		copy = (int)sys_call1(SYS_dup, fd);
	while (sfs_numbers_back(copy));
	if (copy >= 0)
		share(fd, copy);
	return copy;
}

int sfs_dup3(int fd, int newfd, int flags)
{
	int r;

	sfs_ours(fd);
	if (sfs_fd_is_private(newfd) && !sfs_number_give_up(newfd))
		return -EBADF;
	r = (int)sys_call3(SYS_dup3, fd, newfd, flags);
	if (r >= 0)
		share(fd, newfd);
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
	do
		r = sys_fcntl(fd, cmd, arg);
	while ((cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC) && sfs_numbers_back(r));
	if (r < 0)
		return r;
	switch (cmd) {
	case F_DUPFD:
	case F_DUPFD_CLOEXEC:
		share(fd, r);
		break;
	case F_SETFL:
		if (ofd)
			ofd->flags = (ofd->flags & ~SETFL) | (int)(arg & SETFL);
		break;
	}
	return r;
}
