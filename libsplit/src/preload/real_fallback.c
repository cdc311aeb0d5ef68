/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that a C library may lack and that are more than a system call of the same arguments. */
#include "real_fallback.h"

#include <signal.h>

extern char **environ __attribute__((weak));

long pl_fb_nosys(void)
{
	return pl_ret(-ENOSYS);
}

void *pl_fb_null(void)
{
	pl_ret(-ENOSYS);
	return NULL;
}

int pl_fb_enosys(void)
{
	return ENOSYS;
}

int pl_fb_raw_enosys(void)
{
	return -ENOSYS;
}

void pl_fb_nothing(void)
{
}

/* abort(), and a fortified call whose buffer is too small: end the process the way the C library does. */
void pl_fb_abort(void)
{
	sys_call2(SYS_kill, sys_getpid(), SIGABRT);
	sys_call1(SYS_exit_group, 127);
	__builtin_unreachable();
}

ssize_t pl_fb_preadv2(int fd, const struct iovec *iov, int cnt, off_t off, int flags)
{
	return pl_ret(sys_call6(SYS_preadv2, fd, (long)iov, cnt, off, 0, flags));
}

ssize_t pl_fb_pwritev2(int fd, const struct iovec *iov, int cnt, off_t off, int flags)
{
	return pl_ret(sys_call6(SYS_pwritev2, fd, (long)iov, cnt, off, 0, flags));
}

void pl_fb_closefrom(int first)
{
	sys_call3(SYS_close_range, first < 0 ? 0 : first, ~0u, 0);
}

/* Binaries of old C libraries pass the version of struct stat; 0, on x86-64 also 1, is the kernel's layout. */
int pl_fb_fxstatat(int ver, int dirfd, const char *path, struct stat *st, int flags)
{
	if (ver != 0 && ver != 1)
		return (int)pl_ret(-EINVAL);
	return (int)pl_ret(sys_fstatat(dirfd, path, st, flags));
}

int pl_fb_xstat(int ver, const char *path, struct stat *st)
{
	return pl_fb_fxstatat(ver, AT_FDCWD, path, st, 0);
}

int pl_fb_lxstat(int ver, const char *path, struct stat *st)
{
	return pl_fb_fxstatat(ver, AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}

int pl_fb_fxstat(int ver, int fd, struct stat *st)
{
	if (ver != 0 && ver != 1)
		return (int)pl_ret(-EINVAL);
	return (int)pl_ret(sys_fstat(fd, st));
}

int pl_fb_xmknodat(int ver, int dirfd, const char *path, mode_t mode, dev_t *dev)
{
	if (ver != 0)
		return (int)pl_ret(-EINVAL);
	return (int)pl_ret(sys_call4(SYS_mknodat, dirfd, (long)path, mode, (long)*dev));
}

int pl_fb_xmknod(int ver, const char *path, mode_t mode, dev_t *dev)
{
	return pl_fb_xmknodat(ver, AT_FDCWD, path, mode, dev);
}

int pl_fb_posix_fallocate(int fd, off_t off, off_t len)
{
	return -sys_fallocate(fd, 0, off, len);
}

int pl_fb_remove(const char *path)
{
	int err = sys_unlinkat(AT_FDCWD, path, 0);

	if (err == -EISDIR)
		err = sys_unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
	return (int)pl_ret(err);
}

int pl_fb_fchmodat(int dirfd, const char *path, mode_t mode, int flags)
{
	if (flags)
		return (int)pl_ret(-EOPNOTSUPP);
	return (int)pl_ret(sys_call3(SYS_fchmodat, dirfd, (long)path, mode));
}

int pl_fb_futimens(int fd, const struct timespec ts[2])
{
	if (fd < 0)
		return (int)pl_ret(-EBADF);
	return (int)pl_ret(sys_call4(SYS_utimensat, fd, 0, (long)ts, 0));
}

int pl_fb_execv(const char *path, char *const argv[])
{
	return (int)pl_ret(sys_call3(SYS_execve, (long)path, (long)argv, &environ ? (long)environ : 0));
}

int pl_fb_fexecve(int fd, char *const argv[], char *const envp[])
{
	return (int)pl_ret(sys_call5(SYS_execveat, fd, (long)"", (long)argv, (long)envp, AT_EMPTY_PATH));
}

/* libaio returns negative errno values and leaves errno alone. */
int pl_fb_io_submit(void *ctx, long nr, void *iocbs)
{
	return (int)sys_call3(SYS_io_submit, (long)ctx, nr, (long)iocbs);
}

int pl_fb_open(const char *path, int flags, mode_t mode)
{
	return (int)pl_ret(sys_openat(AT_FDCWD, path, flags, mode));
}

int pl_fb_creat(const char *path, mode_t mode)
{
	return pl_fb_open(path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

/* To dup3 two equal numbers are an error. */
int pl_fb_dup2(int oldfd, int newfd)
{
	int err;

	if (oldfd != newfd)
		return (int)pl_ret(sys_call3(SYS_dup3, oldfd, newfd, 0));
	err = sys_fcntl(oldfd, F_GETFD, 0);
	return err < 0 ? (int)pl_ret(err) : newfd;
}

int pl_fb_stat(const char *path, struct stat *st)
{
	return (int)pl_ret(sys_fstatat(AT_FDCWD, path, st, 0));
}

int pl_fb_lstat(const char *path, struct stat *st)
{
	return (int)pl_ret(sys_fstatat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW));
}

int pl_fb_rename(const char *from, const char *to)
{
	return (int)pl_ret(sys_call5(SYS_renameat2, AT_FDCWD, (long)from, AT_FDCWD, (long)to, 0));
}

int pl_fb_link(const char *from, const char *to)
{
	return (int)pl_ret(sys_call5(SYS_linkat, AT_FDCWD, (long)from, AT_FDCWD, (long)to, 0));
}

int pl_fb_unlink(const char *path)
{
	return (int)pl_ret(sys_unlinkat(AT_FDCWD, path, 0));
}

int pl_fb_rmdir(const char *path)
{
	return (int)pl_ret(sys_unlinkat(AT_FDCWD, path, AT_REMOVEDIR));
}

int pl_fb_symlink(const char *target, const char *path)
{
	return (int)pl_ret(sys_call3(SYS_symlinkat, (long)target, AT_FDCWD, (long)path));
}

int pl_fb_mkdir(const char *path, mode_t mode)
{
	return (int)pl_ret(sys_call3(SYS_mkdirat, AT_FDCWD, (long)path, mode));
}

int pl_fb_mknod(const char *path, mode_t mode, dev_t dev)
{
	return (int)pl_ret(sys_call4(SYS_mknodat, AT_FDCWD, (long)path, mode, (long)dev));
}

int pl_fb_chmod(const char *path, mode_t mode)
{
	return (int)pl_ret(sys_call3(SYS_fchmodat, AT_FDCWD, (long)path, mode));
}

int pl_fb_chown(const char *path, uid_t uid, gid_t gid)
{
	return (int)pl_ret(sys_call5(SYS_fchownat, AT_FDCWD, (long)path, uid, gid, 0));
}

int pl_fb_lchown(const char *path, uid_t uid, gid_t gid)
{
	return (int)pl_ret(sys_call5(SYS_fchownat, AT_FDCWD, (long)path, uid, gid, AT_SYMLINK_NOFOLLOW));
}

/* struct utimbuf: two numbers of seconds. */
int pl_fb_utime(const char *path, const long t[2])
{
	const struct timespec ts[2] = {{t ? t[0] : 0, 0}, {t ? t[1] : 0, 0}};

	return (int)pl_ret(sys_call4(SYS_utimensat, AT_FDCWD, (long)path, t ? (long)ts : 0, 0));
}

int pl_fb_futimesat(int dirfd, const char *path, const struct timeval t[2])
{
	struct timespec ts[2];

	for (int i = 0; t && i < 2; i++) {
		if (t[i].tv_usec < 0 || t[i].tv_usec >= 1000000)
			return (int)pl_ret(-EINVAL);
		ts[i] = (struct timespec){t[i].tv_sec, t[i].tv_usec * 1000};
	}
	return (int)pl_ret(sys_call4(SYS_utimensat, dirfd, (long)path, t ? (long)ts : 0, 0));
}

int pl_fb_utimes(const char *path, const struct timeval t[2])
{
	return pl_fb_futimesat(AT_FDCWD, path, t);
}

pid_t pl_fb_fork(void)
{
	return (pid_t)pl_ret(sys_call5(SYS_clone, SIGCHLD, 0, 0, 0, 0));
}

int pl_fb_pipe(int fds[2])
{
	return (int)pl_ret(sys_call2(SYS_pipe2, (long)fds, 0));
}

int pl_fb_epoll_create(int size)
{
	return (int)pl_ret(size > 0 ? sys_call1(SYS_epoll_create1, 0) : -EINVAL);
}

int pl_fb_inotify_init(void)
{
	return (int)pl_ret(sys_call1(SYS_inotify_init1, 0));
}
