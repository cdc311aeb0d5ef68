/* SPDX-License-Identifier: Apache-2.0 */
/* The stat family: the kernel answers, and size and times are corrected while bytes are staged. */
#include "preload.h"

#include <ftw.h>

#define CORRECTED(call, st)                                                                                                    \
	do {                                                                                                                   \
		int r_;                                                                                                        \
                                                                                                                               \
		if (likely(!sfs_active()))                                                                                     \
			return call;                                                                                           \
		r_ = (call);                                                                                                   \
		if (r_ == 0)                                                                                                   \
			sfs_fix_stat(st);                                                                                      \
		return r_;                                                                                                     \
	} while (0)

/* An inherited descriptor that nobody has used yet: another process may have staged data of its file, and is asked now. */
static void look(int fd)
{
	if (sfs_active())
		sfs_ours(fd);
}

WRAPPER int w_stat(const char *path, struct stat *st)
{
	CORRECTED(REAL(stat)(path, st), st);
}
EXPORT(stat, w_stat);
EXPORT(stat64, w_stat);

WRAPPER int w_fstat(int fd, struct stat *st)
{
	look(fd);
	CORRECTED(REAL(fstat)(fd, st), st);
}
EXPORT(fstat, w_fstat);
EXPORT(fstat64, w_fstat);

WRAPPER int w_lstat(const char *path, struct stat *st)
{
	CORRECTED(REAL(lstat)(path, st), st);
}
EXPORT(lstat, w_lstat);
EXPORT(lstat64, w_lstat);

WRAPPER int w_fstatat(int dirfd, const char *path, struct stat *st, int flags)
{
	if (flags & AT_EMPTY_PATH)
		look(dirfd);
	CORRECTED(REAL(fstatat)(dirfd, path, st, flags), st);
}
EXPORT(fstatat, w_fstatat);
EXPORT(fstatat64, w_fstatat);

/* Names of binaries built before glibc 2.33. */
WRAPPER int w_xstat(int ver, const char *path, struct stat *st)
{
	CORRECTED(REAL_AS(int (*)(int, const char *, struct stat *), __xstat)(ver, path, st), st);
}
EXPORT(__xstat, w_xstat);
EXPORT(__xstat64, w_xstat);

WRAPPER int w_fxstat(int ver, int fd, struct stat *st)
{
	look(fd);
	CORRECTED(REAL_AS(int (*)(int, int, struct stat *), __fxstat)(ver, fd, st), st);
}
EXPORT(__fxstat, w_fxstat);
EXPORT(__fxstat64, w_fxstat);

WRAPPER int w_lxstat(int ver, const char *path, struct stat *st)
{
	CORRECTED(REAL_AS(int (*)(int, const char *, struct stat *), __lxstat)(ver, path, st), st);
}
EXPORT(__lxstat, w_lxstat);
EXPORT(__lxstat64, w_lxstat);

WRAPPER int w_fxstatat(int ver, int dirfd, const char *path, struct stat *st, int flags)
{
	CORRECTED(REAL_AS(int (*)(int, int, const char *, struct stat *, int), __fxstatat)(ver, dirfd, path, st, flags), st);
}
EXPORT(__fxstatat, w_fxstatat);
EXPORT(__fxstatat64, w_fxstatat);

WRAPPER int w_statx(int dirfd, const char *path, int flags, unsigned mask, struct statx *stx)
{
	int r;

	if (flags & AT_EMPTY_PATH)
		look(dirfd);
	r = REAL(statx)(dirfd, path, flags, mask, stx);
	if (r == 0 && sfs_active())
		sfs_fix_statx(stx);
	return r;
}
EXPORT(statx, w_statx);

/* The C library walks the tree and calls its own stat. */
WRAPPER int w_nftw(const char *dir, void *fn, int nopen, int flags)
{
	if (sfs_active())
		sfs_all_true();
	return REAL_AS(int (*)(const char *, void *, int, int), nftw)(dir, fn, nopen, flags);
}
EXPORT(nftw, w_nftw);
EXPORT(nftw64, w_nftw);

WRAPPER int w_ftw(const char *dir, void *fn, int nopen)
{
	if (sfs_active())
		sfs_all_true();
	return REAL_AS(int (*)(const char *, void *, int), ftw)(dir, fn, nopen);
}
EXPORT(ftw, w_ftw);
EXPORT(ftw64, w_ftw);

WRAPPER void *w_fts_open(char *const *paths, int options, void *compare)
{
	if (sfs_active())
		sfs_all_true();
	return REAL_AS(void *(*)(char *const *, int, void *), fts_open)(paths, options, compare);
}
EXPORT(fts_open, w_fts_open);

/* Not the same function as fts_open: FTSENT differs. */
WRAPPER void *w_fts64_open(char *const *paths, int options, void *compare)
{
	if (sfs_active())
		sfs_all_true();
	return REAL_AS(void *(*)(char *const *, int, void *), fts64_open)(paths, options, compare);
}
EXPORT(fts64_open, w_fts64_open);
