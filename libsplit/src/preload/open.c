/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that open a file. The variadic ones are defined with all their arguments: the ABIs of x86-64 and arm64 pass both the same way. */
#include "preload.h"

#include <linux/openat2.h>
#include <stdlib.h>
#include <unistd.h>

static mode_t mode_of(int flags, mode_t mode)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? mode : 0;
}

static int open_in_volume(int dirfd, const char *path, int flags, mode_t mode)
{
	int fd;

	pl_cancel_point();
	fd = sfs_openat(dirfd, path, flags, mode);
	if (fd == SFS_PASS)
		return pl_adopt(REAL(openat)(dirfd, path, flags, mode));
	return pl_new_fd((int)pl_ret(fd));
}

WRAPPER int w_open(const char *path, int flags, mode_t mode)
{
	mode = mode_of(flags, mode);
	if (likely(!sfs_active()))
		return REAL(open)(path, flags, mode);
	return open_in_volume(AT_FDCWD, path, flags, mode);
}
EXPORT(open, w_open);
EXPORT(open64, w_open);
EXPORT(__open, w_open);
EXPORT(__open64, w_open);

WRAPPER int w_openat(int dirfd, const char *path, int flags, mode_t mode)
{
	mode = mode_of(flags, mode);
	if (likely(!sfs_active()))
		return REAL(openat)(dirfd, path, flags, mode);
	return open_in_volume(dirfd, path, flags, mode);
}
EXPORT(openat, w_openat);
EXPORT(openat64, w_openat);

WRAPPER int w_creat(const char *path, mode_t mode)
{
	if (likely(!sfs_active()))
		return REAL(creat)(path, mode);
	return open_in_volume(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
EXPORT(creat, w_creat);
EXPORT(creat64, w_creat);

/* Fortified forms, for calls without a mode: when the flags need one, the C library ends the program. */
WRAPPER int w_open_2(const char *path, int flags)
{
	if (likely(!sfs_active()) || flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE)
		return REAL_AS(int (*)(const char *, int), __open_2)(path, flags);
	return open_in_volume(AT_FDCWD, path, flags, 0);
}
EXPORT(__open_2, w_open_2);
EXPORT(__open64_2, w_open_2);

WRAPPER int w_openat_2(int dirfd, const char *path, int flags)
{
	if (likely(!sfs_active()) || flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE)
		return REAL_AS(int (*)(int, const char *, int), __openat_2)(dirfd, path, flags);
	return open_in_volume(dirfd, path, flags, 0);
}
EXPORT(__openat_2, w_openat_2);
EXPORT(__openat64_2, w_openat_2);

/*
 * openat2(2): the kernel knows its rules for paths. Like sfs_openat(), it opens a file that it is to truncate as it is; that is truncated when
 * whoever has staged data of it has handed it over.
 */
long pl_openat2_raw(int dirfd, const char *path, const struct open_how *how, size_t size)
{
	const uint64_t flags = how && size == sizeof(*how) ? how->flags : 0;
	const bool truncate = (flags & O_TRUNC) && !(flags & O_PATH) && (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL);
	struct open_how as_it_is;
	struct stat st;
	long fd, err;

	if (!truncate) {
		fd = sys_call4(SYS_openat2, dirfd, (long)path, (long)how, (long)size);
		if (fd >= 0)
			sfs_adopt((int)fd);
		return flags & O_CREAT ? pl_adopt_created_raw((int)fd) : pl_new_fd_raw((int)fd);
	}
	as_it_is = *how;
	as_it_is.flags &= ~(uint64_t)O_TRUNC;
	fd = sys_call4(SYS_openat2, dirfd, (long)path, (long)&as_it_is, (long)size);
	if (fd < 0)
		return fd;
	err = sys_fstat((int)fd, &st);
	if (err >= 0 && S_ISDIR(st.st_mode))
		err = -EISDIR;
	if (err >= 0 && S_ISREG(st.st_mode)) {
		sfs_adopt((int)fd);
		err = sfs_truncate_open((int)fd, (int)flags);
	}
	if (err >= 0)
		return pl_adopt_created_raw((int)fd);
	pl_release((int)fd);
	return err;
}

WRAPPER int w_openat2(int dirfd, const char *path, const struct open_how *how, size_t size)
{
	if (likely(!sfs_active()))
		return REAL_AS(int (*)(int, const char *, const void *, size_t), openat2)(dirfd, path, how, size);
	pl_cancel_point();
	return (int)pl_ret(pl_openat2_raw(dirfd, path, how, size));
}
EXPORT(openat2, w_openat2);

WRAPPER int w_open_by_handle_at(int mount_fd, struct file_handle *handle, int flags)
{
	if (!(flags & O_TRUNC))
		return pl_adopt(REAL(open_by_handle_at)(mount_fd, handle, flags));
	if (sfs_active())
		sfs_all_true();
	return pl_adopt_created(REAL(open_by_handle_at)(mount_fd, handle, flags));
}
EXPORT(open_by_handle_at, w_open_by_handle_at);

/* The C library chooses the name and opens the file itself. */
WRAPPER int w_mkstemp(char *template)
{
	return pl_adopt_created(REAL(mkstemp)(template));
}
EXPORT(mkstemp, w_mkstemp);
EXPORT(mkstemp64, w_mkstemp);

WRAPPER int w_mkostemp(char *template, int flags)
{
	return pl_adopt_created(REAL(mkostemp)(template, flags));
}
EXPORT(mkostemp, w_mkostemp);
EXPORT(mkostemp64, w_mkostemp);

WRAPPER int w_mkstemps(char *template, int suffix)
{
	return pl_adopt_created(REAL(mkstemps)(template, suffix));
}
EXPORT(mkstemps, w_mkstemps);
EXPORT(mkstemps64, w_mkstemps);

WRAPPER int w_mkostemps(char *template, int suffix, int flags)
{
	return pl_adopt_created(REAL(mkostemps)(template, suffix, flags));
}
EXPORT(mkostemps, w_mkostemps);
EXPORT(mkostemps64, w_mkostemps);
