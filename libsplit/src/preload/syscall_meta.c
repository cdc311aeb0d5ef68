/* SPDX-License-Identifier: Apache-2.0 */
/* syscall(2) with the number of a metadata call: what path.c and times.c do for the named ones. */
#include "preload.h"

#include <stdio.h>

/* Calls of newer kernels than the headers. */
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef SYS_setxattrat
#define SYS_setxattrat 463
#endif
#ifndef SYS_removexattrat
#define SYS_removexattrat 466
#endif

#define NOFOLLOW AT_SYMLINK_NOFOLLOW
#define FLAGS	 (-1) /* the call has at_flags, as its argument `flags` */

enum what { NAME, ATTR, OPEN_FILE };

/* Which arguments say what is changed; dirfd -1: the call has none. */
static const struct call {
	short number;
	signed char what, dirfd, path, flags;
	short at_flags;
} calls[] = {
	{SYS_mkdir, NAME, -1, 0, 0, 0},
	{SYS_mkdirat, NAME, 0, 1, 0, 0},
	{SYS_rmdir, NAME, -1, 0, 0, 0},
	{SYS_symlink, NAME, -1, 1, 0, 0},
	{SYS_symlinkat, NAME, 1, 2, 0, 0},
	{SYS_mknod, NAME, -1, 0, 0, 0},
	{SYS_mknodat, NAME, 0, 1, 0, 0},
	{SYS_chmod, ATTR, -1, 0, 0, 0},
	{SYS_fchmodat, ATTR, 0, 1, 0, 0},
	{SYS_fchmodat2, ATTR, 0, 1, 3, FLAGS},
	{SYS_fchmod, OPEN_FILE, 0, 0, 0, 0},
	{SYS_chown, ATTR, -1, 0, 0, 0},
	{SYS_lchown, ATTR, -1, 0, 0, NOFOLLOW},
	{SYS_fchownat, ATTR, 0, 1, 4, FLAGS},
	{SYS_fchown, OPEN_FILE, 0, 0, 0, 0},
	{SYS_setxattr, ATTR, -1, 0, 0, 0},
	{SYS_lsetxattr, ATTR, -1, 0, 0, NOFOLLOW},
	{SYS_fsetxattr, OPEN_FILE, 0, 0, 0, 0},
	{SYS_setxattrat, ATTR, 0, 1, 2, FLAGS},
	{SYS_removexattr, ATTR, -1, 0, 0, 0},
	{SYS_lremovexattr, ATTR, -1, 0, 0, NOFOLLOW},
	{SYS_fremovexattr, OPEN_FILE, 0, 0, 0, 0},
	{SYS_removexattrat, ATTR, 0, 1, 2, FLAGS},
};

static long raw(long n, const long a[6])
{
	return sys_call6(n, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* What is staged for the file at path goes first. */
static long true_then_raw(long n, const long a[6], int dirfd, const char *path, int at_flags)
{
	const long r = pl_path_true(dirfd, path, at_flags);

	return r < 0 ? r : raw(n, a);
}

/* Two names when `to` is given. */
static long names(long n, const long a[6], int fromfd, const char *from, int at_flags, int tofd, const char *to)
{
	const long r = true_then_raw(n, a, fromfd, from, at_flags);

	return r < 0 ? r : to ? sfs_names_durable(fromfd, from, tofd, to) : sfs_name_durable(fromfd, from);
}

static long link_raw(long n, const long a[6], int fromfd, const char *from, int at_flags, int tofd, const char *to)
{
	const long r = true_then_raw(n, a, fromfd, from, at_flags);

	return r < 0 ? r : sfs_name_durable(tofd, to);
}

/* Times: of the file at path, or without one of the descriptor. */
static long times(long n, const long a[6], int fd, const char *path, int at_flags)
{
	long r = path ? pl_path_true(fd, path, at_flags) : sfs_ours(fd) ? sfs_make_true(fd, false) : 0;

	if (r < 0)
		return r;
	r = raw(n, a);
	if (!path)
		sfs_changed(fd);
	return r < 0 ? r : sfs_attr_durable(fd, path, at_flags);
}

static long plain(const struct call *c, const long a[6])
{
	const int dirfd = c->dirfd < 0 ? AT_FDCWD : (int)a[(int)c->dirfd];
	const char *path = (const char *)a[(int)c->path];
	const long r = raw(c->number, a);

	if (r < 0)
		return r;
	switch (c->what) {
	case NAME:
		return sfs_name_durable(dirfd, path);
	case OPEN_FILE:
		return sfs_fd_durable(dirfd);
	default:
		return sfs_attr_durable(dirfd, path, c->at_flags == FLAGS ? (int)a[(int)c->flags] : c->at_flags);
	}
}

long pl_meta_by_number(long n, const long a[6])
{
	const char *path0 = (const char *)a[0], *path1 = (const char *)a[1], *path3 = (const char *)a[3];
	long r;

	switch (n) {
	case SYS_rename:
		return names(n, a, AT_FDCWD, path0, NOFOLLOW, AT_FDCWD, path1);
	case SYS_renameat2:
		r = a[4] & RENAME_EXCHANGE ? pl_path_true((int)a[2], path3, NOFOLLOW) : 0;
		if (r < 0)
			return r;
		/* fall through */
	case SYS_renameat:
		return names(n, a, (int)a[0], path1, NOFOLLOW, (int)a[2], path3);
	case SYS_unlink:
		return names(n, a, AT_FDCWD, path0, NOFOLLOW, 0, NULL);
	case SYS_unlinkat:
		return names(n, a, (int)a[0], path1, NOFOLLOW, 0, NULL);
	case SYS_link:
		return link_raw(n, a, AT_FDCWD, path0, NOFOLLOW, AT_FDCWD, path1);
	case SYS_linkat:
		return link_raw(n, a, (int)a[0], path1, (a[4] & AT_SYMLINK_FOLLOW ? 0 : NOFOLLOW) | ((int)a[4] & AT_EMPTY_PATH),
				(int)a[2], path3);
	case SYS_utime:
	case SYS_utimes:
		return times(n, a, AT_FDCWD, path0, 0);
	case SYS_futimesat:
		return times(n, a, (int)a[0], path1, 0);
	case SYS_utimensat:
		return times(n, a, (int)a[0], path1, (int)a[3]);
	}
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (calls[i].number == n)
			return plain(&calls[i], a);
	return SFS_PASS;
}
