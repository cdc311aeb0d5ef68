/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors whose bytes will reach the kernel without our seeing it: standard streams, and what other processes get by fork, exec
 * or a message. Where the mode promises that a completed write survives a power loss, the kernel has to keep that promise: the open
 * file description gets O_DSYNC. fcntl(2) can't set it, so the file is opened once more, through /proc, under the same numbers.
 *
 * Only while the description is this process's alone: nobody else may be left behind with the old one and its offset. And not
 * while this process has locks on the file, which closing any descriptor of it would drop. So would exec, which keeps them, with our
 * own descriptor of the file.
 */
#include <errno.h>

#include "base/sys.h"
#include "calls/calls.h"
#include "files/scarce.h"
#include "io/io.h"

/* Has the process a lock on it? One by fcntl(2) is the process's, through whichever descriptor. */
static bool inode_locked(const struct sfs_inode *in, bool posix)
{
	for (int fd = 0; fd <= load_acquire(&sfs_fdt.fd_max); fd++) {
		struct sfs_ofd *ofd = load_acquire(&sfs_fds[fd]);

		if (ofd > SFS_PRIVATE && ofd->inode == in && sfs_fd_locked(fd, posix))
			return true;
	}
	return false;
}

/* Would closing a descriptor of the file drop a lock of the process? It may have one from before an exec, through a descriptor not used since. */
static bool kept_by_lock(const struct sfs_inode *in, int fd)
{
	return inode_locked(in, false) || sfs_locked_before(fd);
}

bool sfs_wants_dsync(int fd)
{
	const struct sfs_ofd *ofd = sfs_ofd_of(fd);

	return ofd && sfs_volume_durable(ofd->inode->vol) && !kept_by_lock(ofd->inode, fd);
}

/* ofd.lock held: every descriptor of the description becomes one of a new description of the same file. */
static int reopen(struct sfs_ofd *ofd, int fd, int flags)
{
	char path[32];
	int again, r = 0;

	sfs_fd_path(path, fd);
	again = sys_openat(AT_FDCWD, path,
			   (flags & (O_ACCMODE | O_APPEND | O_DIRECT | O_NONBLOCK | O_NOATIME)) | O_DSYNC | O_CLOEXEC, 0);
	if (again < 0)
		return again;
	sys_lseek(again, ofd->off, SEEK_SET);
	for (int i = 0; i <= load_acquire(&sfs_fdt.fd_max) && r >= 0; i++) {
		struct sfs_ofd *change;
		int cloexec;

		/* One that another thread is closing is not waited for, with the lock held, and not opened again. */
		if (load_acquire(&sfs_fds[i]) != ofd || !(change = sfs_fds_change_from(i, ofd)))
			continue;
		cloexec = sys_fcntl(i, F_GETFD, 0);
		if (cloexec >= 0)
			r = (int)sys_call3(SYS_dup3, again, i, cloexec & FD_CLOEXEC ? O_CLOEXEC : 0);
		sfs_fds_changed(i, change, ofd);
	}
	sys_close(again);
	return r < 0 ? r : 0;
}

/* 0 also where it can't be done: docs/data-path.md says what holds then. */
static int write_through(struct sfs_ofd *ofd, int fd)
{
	struct sfs_inode *in = ofd->inode;
	uint64_t signals;
	int flags, r = 0;

	/* An open would break the program's own lease. */
	if (!sfs_may_write(ofd->flags) || !sfs_volume_durable(in->vol) || sfs_server_is_leased(&in->server))
		return 0;
	signals = sfs_signals_block(); /* a handler may use the lock */
	sfs_mutex_lock(&ofd->lock);
	flags = sys_fcntl(fd, F_GETFL, 0);
	if (flags >= 0 && !(flags & O_DSYNC) && !ofd->kernel_off && load_acquire(&sfs_fds[fd]) == ofd && !kept_by_lock(in, fd))
		r = reopen(ofd, fd, flags);
	sfs_mutex_unlock(&ofd->lock);
	sfs_signals_restore(signals);
	/* Whom the file no longer lets in keeps what he has. */
	return r == -EACCES || r == -EPERM || r == -ENOENT || r == -ETXTBSY || r == -ENXIO ? 0 : r;
}

/* arg: stay open over exec? The program has the lock through a descriptor of its own that does so, or loses it with that one. */
static int keep_own(struct sfs_inode *in, void *arg)
{
	const bool stays = *(bool *)arg;
	enum sfs_lockers who;
	uint64_t *op;

	if (!sfs_op_begin(in, &op))
		return 0;
	sfs_inode_take(in);
	who = in->fd >= 0 ? sfs_lockers(in->fd) : LOCKED_BY_NOBODY;
	/* A lock from before we had a descriptor of the file was noticed then (sfs_inode_own()). */
	if (who == LOCKED_HERE || (who == LOCKED_BY_SOMEBODY && inode_locked(in, true))) {
		sys_fcntl(in->fd, F_SETFD, stays ? 0 : FD_CLOEXEC);
		if (in->fd_readonly >= 0)
			sys_fcntl(in->fd_readonly, F_SETFD, stays ? 0 : FD_CLOEXEC);
	}
	sfs_inode_drop(in);
	sfs_op_end(op);
	return 0;
}

void sfs_exec_keep_locks(bool keep)
{
	for (int i = 0; i < sfs.nvolumes; i++)
		sfs_inodes_each(&sfs.volumes[i], keep_own, &keep);
}

int sfs_write_through(int fd)
{
	struct sfs_ofd *ofd = sfs_ofd_of(fd);

	return ofd ? write_through(ofd, fd) : 0;
}

void sfs_write_through_all(void)
{
	bool any = false;

	sfs_check_fork();
	for (int i = 0; i < sfs.nvolumes; i++)
		any = any || sfs_volume_durable(&sfs.volumes[i]);
	for (int fd = 0; any && fd <= load_acquire(&sfs_fdt.fd_max); fd++)
		if (load_acquire(&sfs_fds[fd]) != SFS_PRIVATE)
			sfs_write_through(fd);
}
