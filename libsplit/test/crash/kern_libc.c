/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery and the volume's files call the C library. The linker leads these calls here (--wrap), and while the explorer's
 * kernel is on they are its system calls.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/sys.h"
#include "crash/kern.h"
#include "harness.h"

#define SITE __builtin_return_address(0)

static long ret(long r)
{
	if (r >= 0)
		return r;
	errno = (int)-r;
	return -1;
}

#define CALL(n, a, b, c, d) ret(kern_call(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0, SITE))

#define WRAP(type, name, params, args, call)                                                                                   \
	type __real_##name params;                                                                                             \
	type __wrap_##name params;                                                                                             \
	type __wrap_##name params                                                                                              \
	{                                                                                                                      \
		return kern_on ? (type)(call) : __real_##name args;                                                            \
	}

WRAP(ssize_t, pread, (int fd, void *p, size_t n, off_t off), (fd, p, n, off), CALL(SYS_pread64, fd, p, n, off))
WRAP(ssize_t, pwrite, (int fd, const void *p, size_t n, off_t off), (fd, p, n, off), CALL(SYS_pwrite64, fd, p, n, off))
WRAP(ssize_t, read, (int fd, void *p, size_t n), (fd, p, n), CALL(SYS_read, fd, p, n, 0))
WRAP(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n), CALL(SYS_write, fd, p, n, 0))
WRAP(int, close, (int fd), (fd), CALL(SYS_close, fd, 0, 0, 0))
WRAP(off_t, lseek, (int fd, off_t off, int whence), (fd, off, whence), CALL(SYS_lseek, fd, off, whence, 0))
WRAP(int, fstat, (int fd, struct stat *st), (fd, st), CALL(SYS_fstat, fd, st, 0, 0))
WRAP(int, fstatat, (int fd, const char *p, struct stat *st, int f), (fd, p, st, f), CALL(SYS_newfstatat, fd, p, st, f))
WRAP(int, fstatfs, (int fd, struct statfs *sf), (fd, sf), CALL(SYS_fstatfs, fd, sf, 0, 0))
WRAP(int, ftruncate, (int fd, off_t n), (fd, n), CALL(SYS_ftruncate, fd, n, 0, 0))
WRAP(int, fallocate, (int fd, int mode, off_t off, off_t n), (fd, mode, off, n), CALL(SYS_fallocate, fd, mode, off, n))
WRAP(int, fsync, (int fd), (fd), CALL(SYS_fsync, fd, 0, 0, 0))
WRAP(int, fdatasync, (int fd), (fd), CALL(SYS_fdatasync, fd, 0, 0, 0))
WRAP(int, syncfs, (int fd), (fd), CALL(SYS_syncfs, fd, 0, 0, 0))
WRAP(int, fchmod, (int fd, mode_t mode), (fd, mode), CALL(SYS_fchmod, fd, mode, 0, 0))
WRAP(int, fchown, (int fd, uid_t u, gid_t g), (fd, u, g), 0)
WRAP(int, unlinkat, (int fd, const char *p, int f), (fd, p, f), CALL(SYS_unlinkat, fd, p, f, 0))
WRAP(int, mkdirat, (int fd, const char *p, mode_t m), (fd, p, m), CALL(SYS_mkdirat, fd, p, m, 0))
WRAP(int, renameat, (int a, const char *p, int b, const char *q), (a, p, b, q), CALL(SYS_renameat2, a, p, b, q))
WRAP(int, linkat, (int a, const char *p, int b, const char *q, int f), (a, p, b, q, f), CALL(SYS_linkat, a, p, b, q))

/* The argument that is there only with O_CREAT. */
static mode_t mode_of(int flags, va_list ap)
{
	return flags & O_CREAT ? va_arg(ap, mode_t) : 0;
}

int __real_openat(int dirfd, const char *path, int flags, ...);
int __wrap_openat(int dirfd, const char *path, int flags, ...);
int __wrap_openat(int dirfd, const char *path, int flags, ...)
{
	mode_t mode;
	va_list ap;

	va_start(ap, flags);
	mode = mode_of(flags, ap);
	va_end(ap);
	return kern_on ? (int)CALL(SYS_openat, dirfd, path, flags, mode) : __real_openat(dirfd, path, flags, mode);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
	mode_t mode;
	va_list ap;

	va_start(ap, flags);
	mode = mode_of(flags, ap);
	va_end(ap);
	return kern_on ? (int)CALL(SYS_openat, AT_FDCWD, path, flags, mode) : __real_open(path, flags, mode);
}

int __real_fcntl(int fd, int cmd, ...);
int __wrap_fcntl(int fd, int cmd, ...);
int __wrap_fcntl(int fd, int cmd, ...)
{
	va_list ap;
	long arg;

	va_start(ap, cmd);
	arg = va_arg(ap, long);
	va_end(ap);
	return kern_on ? (int)CALL(SYS_fcntl, fd, cmd, arg, 0) : __real_fcntl(fd, cmd, arg);
}

int __real_ioctl(int fd, unsigned long req, ...);
int __wrap_ioctl(int fd, unsigned long req, ...);
int __wrap_ioctl(int fd, unsigned long req, ...)
{
	va_list ap;
	long arg;

	va_start(ap, req);
	arg = va_arg(ap, long);
	va_end(ap);
	return kern_on ? (int)CALL(SYS_ioctl, fd, req, arg, 0) : __real_ioctl(fd, req, arg);
}

/* Of the explorer's files alone: memory of its own is memory. */
void *__real_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off);
void *__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off);
void *__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	if (!kern_on || fd < KERN_FD_BASE)
		return __real_mmap(addr, len, prot, flags, fd, off);
	return (void *)ret(kern_call(SYS_mmap, (long)addr, (long)len, prot, flags, fd, off, SITE));
}

int __real_munmap(void *addr, size_t len);
int __wrap_munmap(void *addr, size_t len);
int __wrap_munmap(void *addr, size_t len)
{
	return kern_on ? (int)CALL(SYS_munmap, addr, len, 0, 0) : __real_munmap(addr, len);
}

/* ---- handles: inode number and generation, as the kernel's file systems make them */

int __real_open_by_handle_at(int mount_fd, struct file_handle *h, int flags);
int __wrap_open_by_handle_at(int mount_fd, struct file_handle *h, int flags);
int __wrap_open_by_handle_at(int mount_fd, struct file_handle *h, int flags)
{
	uint64_t ino = 0;
	uint32_t gen;
	const unsigned n = h->handle_type == 0x81 ? 8 : 4;

	if (!kern_on)
		return __real_open_by_handle_at(mount_fd, h, flags);
	memcpy(&ino, h->f_handle, n);
	memcpy(&gen, h->f_handle + n, 4);
	if (ino >= KERN_INODES || kern.m.inode[ino].type != KERN_FILE || kern.m.inode[ino].gen != gen)
		return (int)ret(-ESTALE);
	return (int)ret(kern_fd_new(KERN_FD_FILE, (uint32_t)ino, flags));
}

/* ---- reading directories */

struct kern_dir {
	int fd;
	unsigned next;
	struct dirent e;
};

DIR *__real_fdopendir(int fd);
DIR *__wrap_fdopendir(int fd);
DIR *__wrap_fdopendir(int fd)
{
	struct kern_dir *d;

	if (!kern_on)
		return __real_fdopendir(fd);
	d = calloc(1, sizeof(*d));
	if (d)
		d->fd = fd;
	return (DIR *)d;
}

struct dirent *__real_readdir(DIR *dir);
struct dirent *__wrap_readdir(DIR *dir);
struct dirent *__wrap_readdir(DIR *dir)
{
	struct kern_dir *d = (struct kern_dir *)dir;
	const uint32_t ino = kern_on ? kern_fd_ino(d->fd) : 0;

	if (!kern_on)
		return __real_readdir(dir);
	while (d->next < KERN_ENTRIES) {
		const struct kern_entry *e = &kern.m.entry[d->next++];

		if (!e->dir || e->dir != ino)
			continue;
		d->e.d_ino = e->ino;
		d->e.d_type = kern.m.inode[e->ino].type == KERN_DIR    ? DT_DIR
			      : kern.m.inode[e->ino].type == KERN_LINK ? DT_LNK
								       : DT_REG;
		memcpy(d->e.d_name, e->name, sizeof(e->name));
		return &d->e;
	}
	return NULL;
}

int __real_closedir(DIR *dir);
int __wrap_closedir(DIR *dir);
int __wrap_closedir(DIR *dir)
{
	if (!kern_on)
		return __real_closedir(dir);
	CALL(SYS_close, ((struct kern_dir *)dir)->fd, 0, 0, 0);
	free(dir);
	return 0;
}
