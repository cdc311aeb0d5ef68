/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls without libc: the preloaded object must load into programs of any C library, must not be caught by its own
 * wrappers and must leave errno alone. Every function returns the kernel's result: non-negative, or a negative errno value.
 */
#ifndef SFS_SYS_H
#define SFS_SYS_H

#include "base/arch.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#ifdef PM_RECORD
/* The recording build (pm/pm.h): crash exploration puts a kernel of its own under the library. NULL: the machine's. */
extern long (*sys_hook)(long n, long a, long b, long c, long d, long e, long f);

static inline long sys_call6(long n, long a, long b, long c, long d, long e, long f)
{
	return sys_hook ? sys_hook(n, a, b, c, d, e, f) : sys_trap6(n, a, b, c, d, e, f);
}
#else
#define sys_call6(n, a, b, c, d, e, f) sys_trap6(n, a, b, c, d, e, f)
#endif

#define sys_call5(n, a, b, c, d, e) sys_call6(n, a, b, c, d, e, 0)
#define sys_call4(n, a, b, c, d)    sys_call6(n, a, b, c, d, 0, 0)
#define sys_call3(n, a, b, c)	    sys_call6(n, a, b, c, 0, 0, 0)
#define sys_call2(n, a, b)	    sys_call6(n, a, b, 0, 0, 0, 0)
#define sys_call1(n, a)		    sys_call6(n, a, 0, 0, 0, 0, 0)
#define sys_call0(n)		    sys_call6(n, 0, 0, 0, 0, 0, 0)

static inline int sys_openat(int dirfd, const char *path, int flags, unsigned mode)
{
	return (int)sys_call4(SYS_openat, dirfd, (long)path, flags, mode);
}
static inline int sys_close(int fd)
{
	return (int)sys_call1(SYS_close, fd);
}
static inline ssize_t sys_read(int fd, void *buf, size_t n)
{
	return sys_call3(SYS_read, fd, (long)buf, (long)n);
}
static inline ssize_t sys_write(int fd, const void *buf, size_t n)
{
	return sys_call3(SYS_write, fd, (long)buf, (long)n);
}
static inline ssize_t sys_pread(int fd, void *buf, size_t n, off_t off)
{
	return sys_call4(SYS_pread64, fd, (long)buf, (long)n, off);
}
static inline ssize_t sys_pwrite(int fd, const void *buf, size_t n, off_t off)
{
	return sys_call4(SYS_pwrite64, fd, (long)buf, (long)n, off);
}
/* off -1: at the file offset. */
ssize_t sys_preadv2(int fd, const struct iovec *iov, int cnt, off_t off, int flags);
ssize_t sys_pwritev2(int fd, const struct iovec *iov, int cnt, off_t off, int flags);
static inline off_t sys_lseek(int fd, off_t off, int whence)
{
	return sys_call3(SYS_lseek, fd, off, whence);
}
static inline int sys_fstat(int fd, struct stat *st)
{
	return (int)sys_call2(SYS_fstat, fd, (long)st);
}
static inline int sys_fstatat(int dirfd, const char *path, struct stat *st, int flags)
{
	return (int)sys_call4(SYS_newfstatat, dirfd, (long)path, (long)st, flags);
}
static inline int sys_ftruncate(int fd, off_t len)
{
	return (int)sys_call2(SYS_ftruncate, fd, len);
}
static inline int sys_fallocate(int fd, int mode, off_t off, off_t len)
{
	return (int)sys_call4(SYS_fallocate, fd, mode, off, len);
}
/* ns: below a second. A signal ends it early. */
static inline void sys_nap(long ns)
{
	const struct timespec t = {0, ns};

	sys_call2(SYS_nanosleep, (long)&t, 0);
}
/* The i-th wait for another thread, which is about to be done: the first `yields` of them only let it run. */
static inline void sys_back_off(int i, int yields)
{
	if (i < yields)
		sys_call0(SYS_sched_yield);
	else
		sys_nap(50000);
}
/* ns since some moment before the process began; it never goes back. */
static inline int64_t sys_now_ns(void)
{
	struct timespec t = {0, 0};

	sys_call2(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}
static inline int64_t sys_now_s(void)
{
	return sys_now_ns() / 1000000000;
}
static inline int sys_fsync(int fd)
{
	return (int)sys_call1(SYS_fsync, fd);
}
static inline int sys_fdatasync(int fd)
{
	return (int)sys_call1(SYS_fdatasync, fd);
}
static inline int sys_fcntl(int fd, int cmd, long arg)
{
	return (int)sys_call3(SYS_fcntl, fd, cmd, arg);
}
/*
 * Would the kernel give a lease of this type now? Not one for writing (F_WRLCK) while anybody else has the file open or mapped, in whatever process,
 * nor one for reading (F_RDLCK) while anybody may write to it so. fd: the caller's own; of the asker's other descriptors each counts. In
 * doubt it would not. A program that asks ignores SIGIO, or nobody can come in between.
 */
static inline bool sys_may_lease(int fd, int type)
{
	if (sys_fcntl(fd, F_SETLEASE, type) < 0)
		return false;
	sys_fcntl(fd, F_SETLEASE, F_UNLCK);
	return true;
}
static inline int sys_ioctl(int fd, unsigned long req, void *arg)
{
	return (int)sys_call3(SYS_ioctl, fd, (long)req, (long)arg);
}
/* A pointer, or a negative errno value cast to one: test with sys_is_err(). */
static inline void *sys_mmap(void *addr, size_t n, int prot, int flags, int fd, off_t off)
{
	return (void *)sys_call6(SYS_mmap, (long)addr, (long)n, prot, flags, fd, off);
}
static inline int sys_is_err(const void *p)
{
	return (unsigned long)p > -4096ul;
}
static inline int sys_munmap(void *addr, size_t n)
{
	return (int)sys_call2(SYS_munmap, (long)addr, (long)n);
}
static inline int sys_madvise(void *addr, size_t n, int advice)
{
	return (int)sys_call3(SYS_madvise, (long)addr, (long)n, advice);
}
static inline int sys_unlinkat(int dirfd, const char *path, int flags)
{
	return (int)sys_call3(SYS_unlinkat, dirfd, (long)path, flags);
}
static inline ssize_t sys_readlinkat(int dirfd, const char *path, char *buf, size_t n)
{
	return sys_call4(SYS_readlinkat, dirfd, (long)path, (long)buf, (long)n);
}
/* The kernel's signal masks have 64 bits. set or old may be NULL. */
static inline int sys_sigmask(int how, const uint64_t *set, uint64_t *old)
{
	return (int)sys_call4(SYS_rt_sigprocmask, how, (long)set, (long)old, sizeof(*set));
}

/*
 * May the page of p be read? A bad address given to a call is an error, and not the end of the program. The cheapest call that reads memory
 * and does nothing: a change of the signal mask that is none.
 */
static inline bool sys_readable(const void *p)
{
	return sys_sigmask(-1, (const uint64_t *)((uintptr_t)p & ~(uintptr_t)7), NULL) == -22 /* EINVAL */;
}

/* The same of n bytes. */
static inline bool sys_readable_all(const void *p, size_t n)
{
	const uintptr_t page = 4096, end = (uintptr_t)p + n;

	for (uintptr_t at = (uintptr_t)p; at < end; at = (at / page + 1) * page)
		if (!sys_readable((const void *)at))
			return false;
	return end >= (uintptr_t)p;
}
static inline int sys_getpid(void)
{
	return (int)sys_call0(SYS_getpid);
}

#endif
