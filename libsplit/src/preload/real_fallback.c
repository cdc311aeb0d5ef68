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

/* Binaries of old C libraries pass the version of struct stat; 0 and 1 are the kernel's layout on x86-64. */
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
