/* SPDX-License-Identifier: Apache-2.0 */
/*
 * syscall(2): programs that make file calls by number (allocators, Rust, xfstests, fio) get what the named call would do.
 * Defined with all its arguments, like the other variadic calls; what is not about our files goes to the kernel as it is.
 */
#include "preload.h"

#include <linux/aio_abi.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>

#ifndef SYS_openat2
#error "kernel headers of Linux 5.6 or newer are needed"
#endif

/* struct clone_args of clone3(2) begins with its flags. */
struct clone_flags {
	uint64_t flags;
};

static long raw(long n, long a, long b, long c, long d, long e, long f)
{
	return sys_call6(n, a, b, c, d, e, f);
}

static long fork_raw(long n, long a, long b, long c, long d, long e, long f)
{
	long pid;

	pl_share();
	sfs_fork_prepare();
	pid = raw(n, a, b, c, d, e, f);
	if (pid == 0)
		sfs_fork_child();
	else
		sfs_fork_parent();
	return pid;
}

static int give(int fd, bool forever)
{
	return sfs_ours(fd) ? sfs_make_true(fd, forever) : 0;
}

/* As in pl_new_fd, with the kernel's convention for results. */
static long adopted(long fd)
{
	if (fd >= 0)
		sfs_adopt((int)fd);
	return pl_new_fd_raw((int)fd);
}

static long dup_raw(int oldfd, int newfd, int flags)
{
	long r = 0;

	if (newfd < 0 || oldfd == newfd)
		return SFS_PASS;
	if (sfs_ours(oldfd) && pl_stdio_marked(newfd))
		r = pl_hand_over(oldfd);
	if (r < 0)
		return r;
	r = sfs_dup3(oldfd, newfd, flags);
	return r == SFS_PASS ? r : pl_new_fd_raw((int)r);
}

/* Calls whose first argument is a descriptor that they may move or change, when they were passed on. */
static bool touches_file(long n)
{
	switch (n) {
	case SYS_read:
	case SYS_write:
	case SYS_pread64:
	case SYS_pwrite64:
	case SYS_readv:
	case SYS_writev:
	case SYS_preadv:
	case SYS_pwritev:
	case SYS_preadv2:
	case SYS_pwritev2:
	case SYS_lseek:
	case SYS_ftruncate:
	case SYS_fallocate:
	case SYS_fcntl:
	case SYS_flock:
		return true;
	default:
		return false;
	}
}

/* Calls about one open file that the core serves; anything else is SFS_PASS. */
static long serve(long n, int fd, long b, long c, long d, long e, long f)
{
	void *buf = (void *)b;
	const struct iovec *iov = (const struct iovec *)b;

	if (!sfs_ours(fd))
		return SFS_PASS;
	switch (n) {
	case SYS_read:
		return sfs_read(fd, buf, (size_t)c, -1);
	case SYS_write:
		return sfs_write(fd, buf, (size_t)c, -1);
	case SYS_pread64:
		return d < 0 ? SFS_PASS : sfs_read(fd, buf, (size_t)c, d);
	case SYS_pwrite64:
		return d < 0 ? SFS_PASS : sfs_write(fd, buf, (size_t)c, d);
	case SYS_readv:
		return sfs_readv(fd, iov, (int)c, -1, 0);
	case SYS_writev:
		return sfs_writev(fd, iov, (int)c, -1, 0);
	case SYS_preadv:
		return d < 0 ? SFS_PASS : sfs_readv(fd, iov, (int)c, d, 0);
	case SYS_pwritev:
		return d < 0 ? SFS_PASS : sfs_writev(fd, iov, (int)c, d, 0);
	case SYS_preadv2:
		return d < -1 ? SFS_PASS : sfs_readv(fd, iov, (int)c, d, (int)f);
	case SYS_pwritev2:
		return d < -1 ? SFS_PASS : sfs_writev(fd, iov, (int)c, d, (int)f);
	case SYS_lseek:
		return sfs_lseek(fd, b, (int)c);
	case SYS_fsync:
	case SYS_fdatasync:
		return sfs_fsync(fd, n == SYS_fdatasync);
	case SYS_ftruncate:
		return sfs_ftruncate(fd, b);
	case SYS_fallocate:
		return sfs_fallocate(fd, (int)b, c, d);
	case SYS_dup:
		return pl_new_fd_raw(sfs_dup(fd));
	case SYS_fcntl:
		switch (b) {
		case F_SETLK:
		case F_SETLKW:
		case F_OFD_SETLK:
		case F_OFD_SETLKW:
		case F_SETLEASE:
			break;
		default:
			return sfs_fcntl(fd, (int)b, c);
		}
		/* fall through */
	case SYS_flock:
	case SYS_sync_file_range: {
		int err = sfs_make_true(fd, false);

		return err < 0 ? err : SFS_PASS;
	}
	}
	(void)e;
	return SFS_PASS;
}

/* The kernel moves data between two descriptors. */
static long copy_raw(long n, int in, int out, const long a[6])
{
	long r = give(in, false);

	if (r >= 0)
		r = give(out, false);
	if (r < 0)
		return r;
	r = raw(n, a[0], a[1], a[2], a[3], a[4], a[5]);
	sfs_changed(in);
	sfs_changed(out);
	return r;
}

static long stat_raw(long n, struct stat *st, const long a[6])
{
	long r = raw(n, a[0], a[1], a[2], a[3], a[4], a[5]);

	if (r == 0)
		sfs_fix_stat(st);
	return r;
}

static long open_raw(int dirfd, const char *path, int flags, mode_t mode)
{
	long fd = sfs_openat(dirfd, path, flags, mode);

	if (fd == SFS_PASS)
		return adopted(sys_openat(dirfd, path, flags, mode));
	return pl_new_fd_raw((int)fd);
}

static long truncate_raw(const char *path, off_t len)
{
	long r = pl_truncate(path, len);

	if (r != SFS_PASS)
		return r;
	r = sys_call2(SYS_truncate, (long)path, len);
	return r < 0 ? r : sfs_attr_durable(AT_FDCWD, path, 0);
}

static long aio_submit_raw(const long a[6])
{
	struct iocb **list = (struct iocb **)a[2];

	for (long i = 0; i < a[1]; i++) {
		int err = give((int)list[i]->aio_fildes, true);

		if (err < 0)
			return err;
	}
	return raw(SYS_io_submit, a[0], a[1], a[2], 0, 0, 0);
}

/* With volumes: every call that can reach a file. The result is the kernel's. */
static long dispatch(long n, const long a[6])
{
	const char *path0 = (const char *)a[0], *path1 = (const char *)a[1];
	long r;

	switch (n) {
	case SYS_open:
		return open_raw(AT_FDCWD, path0, (int)a[1], (mode_t)a[2]);
	case SYS_creat:
		return open_raw(AT_FDCWD, path0, O_CREAT | O_WRONLY | O_TRUNC, (mode_t)a[1]);
	case SYS_openat:
		return open_raw((int)a[0], path1, (int)a[2], (mode_t)a[3]);
	case SYS_openat2:
		return pl_openat2_raw((int)a[0], path1, (const struct open_how *)a[2], (size_t)a[3]);
#ifdef SYS_pidfd_getfd
	case SYS_pidfd_getfd:
#endif
	case SYS_open_by_handle_at:
		sfs_all_true();
		return adopted(raw(n, a[0], a[1], a[2], a[3], a[4], a[5]));
	case SYS_close:
		r = sfs_close((int)a[0]);
		break;
	case SYS_dup2:
		r = dup_raw((int)a[0], (int)a[1], 0);
		break;
	case SYS_dup3:
		r = dup_raw((int)a[0], (int)a[1], (int)a[2]);
		break;
	case SYS_close_range:
		return pl_close_range_raw((unsigned)a[0], (unsigned)a[1], (unsigned)a[2]);
	case SYS_unshare:
		return pl_unshare_raw((int)a[0]);
	case SYS_ioctl:
		return pl_ioctl_raw((int)a[0], (unsigned long)a[1], (void *)a[2]);
	case SYS_truncate:
		return truncate_raw(path0, a[1]);
	case SYS_stat:
	case SYS_lstat:
	case SYS_fstat:
		return stat_raw(n, (struct stat *)a[1], a);
	case SYS_newfstatat:
		return stat_raw(n, (struct stat *)a[2], a);
	case SYS_statx:
		r = raw(n, a[0], a[1], a[2], a[3], a[4], a[5]);
		if (r == 0)
			sfs_fix_statx((struct statx *)a[4]);
		return r;
	case SYS_sync:
	case SYS_syncfs:
		sfs_sync_all();
		r = SFS_PASS;
		break;
	case SYS_mmap:
		r = a[3] & 0x20 ? 0 : give((int)a[4], true); /* MAP_ANONYMOUS */
		if (r >= 0 && !(a[3] & 0x20))
			r = sfs_mapped((int)a[4]);
		r = r < 0 ? r : SFS_PASS;
		break;
	case SYS_copy_file_range:
	case SYS_splice:
		return copy_raw(n, (int)a[0], (int)a[2], a);
	case SYS_sendfile:
		return copy_raw(n, (int)a[1], (int)a[0], a);
	case SYS_fork:
	case SYS_vfork:
		return fork_raw(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
	case SYS_clone:
		if (!(a[0] & CLONE_VM) && !a[1])
			return fork_raw(n, a[0], a[1], a[2], a[3], a[4], a[5]);
		r = SFS_PASS;
		break;
	case SYS_clone3:
		if (a[0] && !(((const struct clone_flags *)a[0])->flags & CLONE_VM))
			return fork_raw(n, a[0], a[1], a[2], a[3], a[4], a[5]);
		r = SFS_PASS;
		break;
	case SYS_execve:
	case SYS_execveat:
		pl_share();
		sfs_exec_prepare();
		r = SFS_PASS;
		break;
	case SYS_exit:
		if (!sfs_one_thread()) {
			r = SFS_PASS;
			break;
		}
		/* Our own thread would go on alone. */
		n = SYS_exit_group;
		/* fall through */
	case SYS_exit_group:
		sfs_exit();
		r = SFS_PASS;
		break;
	case SYS_rt_sigaction:
		sfs_handler_installed();
		r = SFS_PASS;
		break;
	case SYS_setrlimit:
	case SYS_prlimit64:
		r = raw(n, a[0], a[1], a[2], a[3], a[4], a[5]);
		sfs_limits_changed();
		return r;
	case SYS_sendmsg:
	case SYS_sendmmsg:
	case SYS_recvmsg:
	case SYS_recvmmsg:
		return pl_msg_by_number(n, a);
	case SYS_io_submit:
		return aio_submit_raw(a);
	case SYS_io_uring_setup:
		sfs_stop_staging();
		r = SFS_PASS;
		break;
	default:
		r = serve(n, (int)a[0], a[1], a[2], a[3], a[4], a[5]);
		if (r == SFS_PASS)
			r = pl_meta_by_number(n, a);
		if (r != SFS_PASS)
			return r;
		r = raw(n, a[0], a[1], a[2], a[3], a[4], a[5]);
		if (sfs_ours((int)a[0]) && touches_file(n))
			sfs_changed((int)a[0]);
		return r;
	}
	return r != SFS_PASS ? r : raw(n, a[0], a[1], a[2], a[3], a[4], a[5]);
}

WRAPPER long w_syscall(long n, long a, long b, long c, long d, long e, long f)
{
	if (likely(!sfs_active()) || n < 0)
		return pl_ret(raw(n, a, b, c, d, e, f));
	return pl_ret(dispatch(n, (const long[6]){a, b, c, d, e, f}));
}
EXPORT(syscall, w_syscall);
