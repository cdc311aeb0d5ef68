/* SPDX-License-Identifier: Apache-2.0 */
/* Setting a file's times: staged bytes go first, because relinking them later would set the times again. */
#include "preload.h"

#include <sys/stat.h>
#include <sys/time.h>
#include <utime.h>

#define TIMES_AT(dirfd, path, at_flags, call)                                                                                  \
	do {                                                                                                                   \
		int r_;                                                                                                        \
                                                                                                                               \
		if (likely(!sfs_active()))                                                                                     \
			return call;                                                                                           \
		r_ = pl_path_true(dirfd, path, at_flags);                                                                      \
		if (unlikely(r_ < 0))                                                                                          \
			return (int)pl_ret(r_);                                                                                \
		r_ = (call);                                                                                                   \
		return r_ == 0 ? (int)pl_ret(sfs_attr_durable(dirfd, path, at_flags)) : r_;                                    \
	} while (0)

#define TIMES_OF(fd, call)                                                                                                     \
	do {                                                                                                                   \
		int r_ = sfs_ours(fd) ? sfs_make_true(fd, false) : 0;                                                          \
                                                                                                                               \
		if (unlikely(r_ < 0))                                                                                          \
			return (int)pl_ret(r_);                                                                                \
		r_ = (call);                                                                                                   \
		if (sfs_ours(fd))                                                                                              \
			sfs_changed(fd);                                                                                       \
		return r_ == 0 && sfs_active() ? (int)pl_ret(sfs_fd_durable(fd)) : r_;                                         \
	} while (0)

WRAPPER int w_utime(const char *path, const struct utimbuf *t)
{
	TIMES_AT(AT_FDCWD, path, 0, REAL(utime)(path, t));
}
EXPORT(utime, w_utime);

WRAPPER int w_utimes(const char *path, const struct timeval *t)
{
	TIMES_AT(AT_FDCWD, path, 0, REAL(utimes)(path, t));
}
EXPORT(utimes, w_utimes);

WRAPPER int w_lutimes(const char *path, const struct timeval *t)
{
	TIMES_AT(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, REAL(lutimes)(path, t));
}
EXPORT(lutimes, w_lutimes);

/* Without a path both of these mean the descriptor itself; the headers deny that. */
typedef int (*utimensat_fn)(int, const char *, const struct timespec *, int);
typedef int (*futimesat_fn)(int, const char *, const struct timeval *);

WRAPPER int w_utimensat(int dirfd, const char *path, const struct timespec *t, int flags)
{
	if (!path)
		TIMES_OF(dirfd, REAL_AS(utimensat_fn, utimensat)(dirfd, path, t, flags));
	TIMES_AT(dirfd, path, flags, REAL_AS(utimensat_fn, utimensat)(dirfd, path, t, flags));
}
EXPORT(utimensat, w_utimensat);

WRAPPER int w_futimesat(int dirfd, const char *path, const struct timeval *t)
{
	if (!path)
		TIMES_OF(dirfd, REAL_AS(futimesat_fn, futimesat)(dirfd, path, t));
	TIMES_AT(dirfd, path, 0, REAL_AS(futimesat_fn, futimesat)(dirfd, path, t));
}
EXPORT(futimesat, w_futimesat);

WRAPPER int w_futimes(int fd, const struct timeval *t)
{
	TIMES_OF(fd, REAL(futimes)(fd, t));
}
EXPORT(futimes, w_futimes);

WRAPPER int w_futimens(int fd, const struct timespec *t)
{
	TIMES_OF(fd, REAL(futimens)(fd, t));
}
EXPORT(futimens, w_futimens);
