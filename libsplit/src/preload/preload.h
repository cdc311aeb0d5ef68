/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every wrapper needs. A wrapper is a static function, exported under one or more names of the C library; calls.txt lists
 * every name with its policy, and libsplit.map exports exactly those.
 *
 * Rules: errno is set only on failure; a descriptor that is not ours goes to the real function; nothing here allocates, locks
 * or prints. A call that we do not serve finds the kernel's view made true first (sfs_make_true), and is followed by
 * sfs_changed.
 */
#ifndef SFS_PRELOAD_H
#define SFS_PRELOAD_H

#ifndef _GNU_SOURCE
#error "compile with -D_GNU_SOURCE"
#endif

#include "../base/sys.h"
#include "calls/calls.h"
#include "numbers.h"
#include "real.h"

#include <errno.h>

/*
 * Exported names are assembler aliases of static functions: no clash with the types in headers (struct stat64, variadic
 * prototypes), and one function under all its names. Visibility is default; the version script decides.
 */
#define WRAPPER		   static __attribute__((used, noinline, noclone))
#define EXPORT(name, impl) __asm__(".globl " #name "\n\t.type " #name ", @function\n\t.set " #name ", " #impl)

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* The kernel's convention for results turned into the C library's. */
static inline long pl_ret(long r)
{
	extern int *__errno_location(void) __attribute__((weak));

	if (likely((unsigned long)r < -4095ul))
		return r;
	if (__errno_location)
		*__errno_location() = (int)-r;
	return -1;
}

/*
 * Calls that POSIX makes cancellation points stay that when we serve them. Nothing is checked until the program has called
 * pthread_cancel once.
 */
extern int pl_cancel_used __attribute__((visibility("hidden")));
void pl_test_cancel(void) __attribute__((visibility("hidden"), cold));

/* signals.c: of handlers that are there already. */
void pl_signals_start(void) __attribute__((visibility("hidden"), cold));

/* faults.c: SIGSEGV and SIGBUS, whose handler is ours. */
struct sigaction;
void pl_faults_start(void) __attribute__((visibility("hidden"), cold));
/* Is the signal one of them, and the handler there? Then the program's action is kept by pl_fault_action(), which is sigaction(2) for it. */
bool pl_fault_signal(int sig) __attribute__((visibility("hidden")));
int pl_fault_action(int sig, const struct sigaction *act, struct sigaction *old) __attribute__((visibility("hidden")));

static inline void pl_cancel_point(void)
{
	if (unlikely(__atomic_load_n(&pl_cancel_used, __ATOMIC_RELAXED)))
		pl_test_cancel();
}

/*
 * Addresses that no program has memory at: NULL and its neighbours, and the kernel's half. Other bad buffers end the program
 * where the kernel would say EFAULT (docs/interception.md); to know would take a system call per access.
 */
static inline bool pl_bad_buffer(const void *buf, size_t n)
{
	return sfs_user_never(buf, n);
}

/*
 * Serve fd with `serve`; when it is not ours or the core passes, make the call `pass`. Both are expressions, `pass` sets errno
 * itself.
 */
#define SERVE(fd, serve, pass)                                                                                                 \
	do {                                                                                                                   \
		long r_;                                                                                                       \
                                                                                                                               \
		if (likely(!sfs_ours(fd)))                                                                                     \
			return pass;                                                                                           \
		pl_cancel_point();                                                                                             \
		r_ = (serve);                                                                                                  \
		if (likely(r_ != SFS_PASS))                                                                                    \
			return (__typeof__(pass))pl_ret(r_);                                                                   \
		r_ = (long)(pass);                                                                                             \
		sfs_changed(fd);                                                                                               \
		return (__typeof__(pass))r_;                                                                                   \
	} while (0)

/* Make fd true, make the call, tell the core. fd may be anybody's. */
#define TRUE_THEN(fd, pass)                                                                                                    \
	do {                                                                                                                   \
		long r_;                                                                                                       \
                                                                                                                               \
		if (likely(!sfs_ours(fd)))                                                                                     \
			return pass;                                                                                           \
		r_ = sfs_make_true(fd, false);                                                                                 \
		if (r_ < 0)                                                                                                    \
			return (__typeof__(pass))pl_ret(r_);                                                                   \
		r_ = (long)(pass);                                                                                             \
		sfs_changed(fd);                                                                                               \
		return (__typeof__(pass))r_;                                                                                   \
	} while (0)

/*
 * Descriptors that the C library writes to without our seeing it: the standard streams' 0, 1 and 2, and whatever is under a
 * FILE. A file that gets such a number is the kernel's from then on (stdio.c).
 */
void pl_stdio_mark(int fd) __attribute__((visibility("hidden")));
void pl_stdio_unmark(int fd) __attribute__((visibility("hidden")));
bool pl_stdio_marked(int fd) __attribute__((visibility("hidden")));

/* A metadata call by number, and what makes it durable; SFS_PASS when it is none. The result is the kernel's. */
long pl_meta_by_number(long n, const long a[6]) __attribute__((visibility("hidden")));

/* By number, with the kernel's convention for results. */
long pl_ioctl_raw(int fd, unsigned long request, void *arg) __attribute__((visibility("hidden")));
struct open_how;
long pl_openat2_raw(int dirfd, const char *path, const struct open_how *how, size_t size) __attribute__((visibility("hidden")));
/* sendmsg, sendmmsg, recvmsg and recvmmsg. */
long pl_msg_by_number(long n, const long a[6]) __attribute__((visibility("hidden")));
long pl_unshare_raw(int flags) __attribute__((visibility("hidden")));
long pl_close_range_raw(unsigned first, unsigned last, unsigned flags) __attribute__((visibility("hidden")));

/*
 * A descriptor for the regular file of ours at path, opened for writing; negative when there is none, or it may not be written.
 * pl_release closes it.
 */
int pl_take_over(const char *path) __attribute__((visibility("hidden")));
long pl_truncate(const char *path, off_t len) __attribute__((visibility("hidden")));
/* Before the C library truncates the file at path: true, and the kernel's from then on. */
int pl_give_up(const char *path) __attribute__((visibility("hidden")));
void pl_release(int fd) __attribute__((visibility("hidden")));

/* The file of fd, ours, is the kernel's from now on: it will be written to without our seeing it. */
static inline int pl_hand_over(int fd)
{
	int err = sfs_write_through(fd);

	return err < 0 ? err : sfs_make_true(fd, true);
}

/*
 * Another process is about to share all open file descriptions: what it writes to a file must be the kernel's to order. For standard output
 * that holds even where the other process has no library and writes at the same time as this one, which shells' children do.
 */
static inline void pl_share(void)
{
	if (sfs_ours(1))
		pl_hand_over(1); /* an error is the next write's */
	sfs_write_through_all();
}

/*
 * fd has just come into being as a descriptor of ours (open, dup, ...); a negative errno value is let through. When its file
 * cannot be made true the descriptor is of no use.
 */
static inline int pl_new_fd_raw(int fd)
{
	int err;

	if (fd < 0 || likely(!pl_stdio_marked(fd)) || !sfs_ours(fd))
		return fd;
	err = pl_hand_over(fd);
	if (unlikely(err < 0)) {
		pl_release(fd);
		return err;
	}
	return fd;
}

/* The same in the C library's convention: -1 when the call has failed already. */
static inline int pl_new_fd(int fd)
{
	return fd < 0 ? fd : (int)pl_ret(pl_new_fd_raw(fd));
}

/* The same for a descriptor the core has not seen yet. */
static inline int pl_adopt(int fd)
{
	if (fd < 0 || !sfs_active())
		return fd;
	sfs_adopt(fd);
	return pl_new_fd(fd);
}

/* The same for a file that the call may have created or truncated: that is durable, or the descriptor is of no use. */
static inline int pl_adopt_created_raw(int fd)
{
	int err = fd >= 0 && sfs_active() ? sfs_fd_durable(fd) : 0;

	if (fd < 0 || !sfs_active())
		return fd;
	sfs_adopt(fd);
	if (err >= 0)
		return pl_new_fd_raw(fd);
	pl_release(fd);
	return err;
}

static inline int pl_adopt_created(int fd)
{
	return fd < 0 ? fd : (int)pl_ret(pl_adopt_created_raw(fd));
}

/*
 * The file at path made true. Only what stands for lost data stops the call that follows; a path that does not exist is for
 * the real call to report.
 */
static inline int pl_path_true(int dirfd, const char *path, int at_flags)
{
	int err = sfs_make_path_true(dirfd, path, at_flags);

	return err == -EIO || err == -ENOSPC || err == -EDQUOT ? err : 0;
}

#endif
