/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that open a file, or truncate it by its name. */
#include "preload.h"

#include <linux/openat2.h>

void pl_release(int fd)
{
	if (sfs_close(fd) == SFS_PASS)
		sys_close(fd);
}

long pl_new_fd(long fd)
{
	int err;

	if (fd < 0 || likely(!pl_stdio_marked((int)fd)) || !sfs_ours((int)fd))
		return fd;
	err = pl_hand_over((int)fd);
	if (likely(err >= 0))
		return fd;
	pl_release((int)fd);
	return err;
}

long pl_adopt(long fd)
{
	if (fd >= 0)
		sfs_adopt((int)fd);
	return pl_new_fd(fd);
}

long pl_adopt_created(long fd)
{
	const int err = fd >= 0 ? sfs_fd_durable((int)fd) : 0;

	if (err >= 0)
		return pl_adopt(fd);
	pl_release((int)fd);
	return err;
}

/*
 * The arguments of the variadic ones lie where those of others do. Without O_CREAT or O_TMPFILE the mode is not looked
 * at.
 */
static long open_file(const struct request *q, int flags, mode_t mode)
{
	if (q->named)
		pl_cancel_point();
	return pl_new_fd(sfs_openat(pl_fd(q), pl_path(q), flags, mode));
}

long do_open(const struct request *q)
{
	const unsigned char next = pl_rows[q->call].path;

	if (q->call == PL_creat)
		return open_file(q, O_CREAT | O_WRONLY | O_TRUNC, (mode_t)q->a[next]);
	return open_file(q, (int)q->a[next], (mode_t)q->a[next + 1]);
}

/* Fortified forms, for calls without a mode: when the flags need one, the C library ends the program. */
long do_open_2(const struct request *q)
{
	const int flags = (int)pl_next(q);

	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? pl_make(q) : open_file(q, flags, 0);
}

/* Where no number is left it is made again when we have given one back. */
static long openat2_new(const struct request *q, long how, long size)
{
	long fd;

	do
		fd = sys_call4(SYS_openat2, q->a[0], q->a[1], how, size);
	while (sfs_numbers_back(fd, true));
	return fd;
}

/*
 * The kernel knows its rules for paths. Like sfs_openat(), it opens a file that it is to truncate as it is; that is
 * truncated when whoever has staged data of it has handed it over.
 */
static long open_then_truncate(const struct request *q, struct open_how how)
{
	const int flags = (int)how.flags;
	struct stat st;
	long fd, err;

	how.flags &= ~(uint64_t)O_TRUNC;
	fd = openat2_new(q, (long)&how, sizeof(how));
	if (fd < 0)
		return fd;
	err = sys_fstat((int)fd, &st);
	if (err >= 0 && S_ISDIR(st.st_mode))
		err = -EISDIR;
	if (err >= 0 && S_ISREG(st.st_mode)) {
		sfs_adopt((int)fd);
		err = sfs_truncate_open((int)fd, flags);
	}
	if (err >= 0)
		return pl_adopt_created(fd);
	pl_release((int)fd);
	return err;
}

long do_openat2(const struct request *q)
{
	const struct open_how *how = (const struct open_how *)q->a[2];
	const bool known = (size_t)q->a[3] == sizeof(*how) && sys_readable_all(how, sizeof(*how));
	const uint64_t flags = known ? how->flags : 0;
	long fd;

	if (q->named)
		pl_cancel_point();
	if ((flags & O_TRUNC) && !(flags & O_PATH) && (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL))
		return open_then_truncate(q, *how);
	fd = openat2_new(q, q->a[2], q->a[3]);
	return flags & O_CREAT ? pl_adopt_created(fd) : pl_adopt(fd);
}

/* The descriptor may be another process's, and the file one that it has staged. */
long do_handle(const struct request *q)
{
	if (q->call != PL_open_by_handle_at || !(q->a[2] & O_TRUNC)) {
		if (q->call != PL_open_by_handle_at)
			sfs_all_true();
		return pl_adopt(pl_make_new(q));
	}
	sfs_all_true();
	return pl_adopt_created(pl_make_new(q));
}

/* The C library chooses the name and opens the file itself. */
long do_created(const struct request *q)
{
	return pl_adopt_created(pl_make_new(q));
}

/*
 * A descriptor for the regular file of ours at path, opened for writing, which is how the core asks the other processes
 * for it; negative when there is none, or it may not be written. pl_release() closes it: only of a file that is not
 * open here. As truncate does, it waits for the end of a lease with the file open for writing.
 */
static int take_over(const char *path)
{
	const int fd = sfs_openat(AT_FDCWD, path, O_WRONLY | O_CLOEXEC | O_NOCTTY, 0);

	if (fd < 0 || sfs_ours(fd))
		return fd;
	pl_release(fd);
	return -1;
}

/* Opening anything but a regular file may block, or be noticed at its other end. */
static bool regular(const char *path, struct stat *st)
{
	return sys_fstatat(AT_FDCWD, path, st, 0) == 0 && S_ISREG(st->st_mode);
}

/* What any process has staged for the file must have gone to the kernel first, or it would come back later. */
long do_truncate(const struct request *q)
{
	const char *path = pl_path(q);
	const off_t len = q->a[1];
	struct stat st;
	long r;
	int fd;

	if (q->named)
		pl_cancel_point();
	r = len >= 0 && regular(path, &st) ? sfs_truncate_known(st.st_dev, st.st_ino, len) : SFS_PASS;
	if (r == SFS_UNKNOWN) {
		fd = take_over(path);
		r = fd == -EINTR ? fd : fd < 0 ? SFS_PASS : sfs_ftruncate(fd, len);
		if (fd >= 0)
			pl_release(fd);
	}
	if (r != SFS_PASS)
		return r;
	r = pl_make(q);
	return r < 0 ? r : sfs_attr_durable(AT_FDCWD, path, 0);
}

int pl_give_up(const char *path)
{
	struct stat st;
	int fd, err;

	if (!regular(path, &st))
		return 0; /* not there yet, or no file */
	err = sfs_give_up_known(st.st_dev, st.st_ino);
	if (err != SFS_UNKNOWN)
		return err;
	fd = take_over(path);
	if (fd < 0)
		return 0; /* not ours, or not to be written: the caller will say so */
	err = sfs_make_true(fd, true);
	pl_release(fd);
	return err;
}
