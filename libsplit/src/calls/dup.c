/* SPDX-License-Identifier: Apache-2.0 */
/* dup(2), dup3(2) and fcntl(2). */
#include "calls/attach.h"

#include <errno.h>

#include "base/sys.h"
#include "calls/calls.h"
#include "lease/ask.h"

#define AWAIT_NAP_NS 50000
#define AWAIT_NAPS   20000					    /* a second: the kernel may be waiting for a device */
#define SETFL	     (O_APPEND | O_DIRECT | O_NONBLOCK | O_NOATIME) /* what F_SETFL can change */

/* The descriptor `copy`, of which nothing is known, was just made a duplicate of fd by the kernel. */
static void enter_copy(int fd, int copy)
{
	struct sfs_ofd *ofd = (unsigned)fd < (unsigned)sfs_fds_len ? load_acquire(&sfs_fds[fd]) : NULL;

	if (ofd > SFS_PRIVATE) {
		sfs_mutex_lock(&sfs_files.lock);
		ofd->refs++;
		sfs_mutex_unlock(&sfs_files.lock);
	}
	sfs_fds_enter(copy, ofd);
}

static void share(int fd, int copy)
{
	if (copy >= sfs_fds_len)
		return;
	sfs_detach(copy);
	enter_copy(fd, copy);
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

/*
 * Calls that the kernel makes by a descriptor of the file, and that change it, have said so: by a claim, or in in->by_kernel. They look then whether
 * the descriptor is still the file's, so that those which come after its entry has gone from the table need no waiting for.
 */
static void kernel_calls_await(struct sfs_inode *in)
{
	uint64_t *op;
	bool some;

	sfs_claims_await(in->vol, in->ino);
	if (!sfs_op_begin(in, &op))
		return; /* a handler in the middle of one */
	for (int n = 0; n < AWAIT_NAPS; n++) {
		sfs_inode_lock(in);
		some = in->by_kernel > 0;
		sfs_inode_unlock(in);
		if (likely(!some))
			break;
		sys_nap(AWAIT_NAP_NS);
	}
	sfs_op_end(op);
}

/*
 * Other threads may use newfd all the time, as they do when a log is rotated. Nothing is known of it while the kernel's table changes, and who comes
 * to know it waits for the lock: nobody takes the new file for the old one.
 */
static int replace(int fd, int newfd, int flags)
{
	struct sfs_ofd *old;
	uint32_t fresh;
	int r;

	sfs_mutex_lock(&sfs_files.adopt);
	fresh = __atomic_exchange_n(&sfs_fds_fresh[newfd], 0, __ATOMIC_SEQ_CST);
	old = __atomic_exchange_n(&sfs_fds[newfd], NULL, __ATOMIC_SEQ_CST);
	if (old > SFS_PRIVATE)
		kernel_calls_await(old->inode);
	r = (int)sys_call3(SYS_dup3, fd, newfd, flags);
	if (r >= 0) {
		enter_copy(fd, newfd);
	} else {
		store_release(&sfs_fds_fresh[newfd], fresh);
		store_release(&sfs_fds[newfd], old);
	}
	sfs_mutex_unlock(&sfs_files.adopt);
	if (r >= 0 && old > SFS_PRIVATE)
		sfs_ofd_put(old);
	return r;
}

int sfs_dup3(int fd, int newfd, int flags)
{
	sfs_ours(fd);
	if (sfs_fd_is_private(newfd) && !sfs_number_give_up(newfd))
		return -EBADF;
	return (unsigned)newfd < (unsigned)sfs_fds_len ? replace(fd, newfd, flags) : (int)sys_call3(SYS_dup3, fd, newfd, flags);
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
