/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and attributes. The kernel does all of it; a file whose name changes is true before, so that whoever finds it under
 * its new name finds all of it, and the change is durable after where the mode asks for that.
 */
#include "preload.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

/* A metadata call that returns 0, and what makes it durable. */
#define META(call, durable)                                                                                                    \
	do {                                                                                                                   \
		int r_;                                                                                                        \
                                                                                                                               \
		if (likely(!sfs_active()))                                                                                     \
			return call;                                                                                           \
		r_ = (call);                                                                                                   \
		return r_ == 0 ? (int)pl_ret(durable) : r_;                                                                    \
	} while (0)

/* The same for a call that a file's staged bytes must precede. */
#define TRUE_META(fromfd, from, at_flags, call, durable)                                                                       \
	do {                                                                                                                   \
		int r_;                                                                                                        \
                                                                                                                               \
		if (likely(!sfs_active()))                                                                                     \
			return call;                                                                                           \
		r_ = pl_path_true(fromfd, from, at_flags);                                                                     \
		if (unlikely(r_ < 0))                                                                                          \
			return (int)pl_ret(r_);                                                                                \
		r_ = (call);                                                                                                   \
		return r_ == 0 ? (int)pl_ret(durable) : r_;                                                                    \
	} while (0)

WRAPPER int w_renameat2(int fromfd, const char *from, int tofd, const char *to, unsigned flags)
{
	if (flags & RENAME_EXCHANGE && sfs_active()) {
		int err = pl_path_true(tofd, to, AT_SYMLINK_NOFOLLOW);

		if (unlikely(err < 0))
			return (int)pl_ret(err);
	}
	TRUE_META(fromfd, from, AT_SYMLINK_NOFOLLOW, REAL(renameat2)(fromfd, from, tofd, to, flags),
		  sfs_names_durable(fromfd, from, tofd, to));
}
EXPORT(renameat2, w_renameat2);

WRAPPER int w_renameat(int fromfd, const char *from, int tofd, const char *to)
{
	TRUE_META(fromfd, from, AT_SYMLINK_NOFOLLOW, REAL(renameat)(fromfd, from, tofd, to),
		  sfs_names_durable(fromfd, from, tofd, to));
}
EXPORT(renameat, w_renameat);

WRAPPER int w_rename(const char *from, const char *to)
{
	TRUE_META(AT_FDCWD, from, AT_SYMLINK_NOFOLLOW, REAL(rename)(from, to), sfs_names_durable(AT_FDCWD, from, AT_FDCWD, to));
}
EXPORT(rename, w_rename);

WRAPPER int w_link(const char *from, const char *to)
{
	TRUE_META(AT_FDCWD, from, AT_SYMLINK_NOFOLLOW, REAL(link)(from, to), sfs_name_durable(AT_FDCWD, to));
}
EXPORT(link, w_link);

/* AT_EMPTY_PATH and /proc/self/fd/N name an open file, mostly one of O_TMPFILE that gets its first name here. */
WRAPPER int w_linkat(int fromfd, const char *from, int tofd, const char *to, int flags)
{
	int look = flags & AT_SYMLINK_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW;

	TRUE_META(fromfd, from, look | (flags & AT_EMPTY_PATH), REAL(linkat)(fromfd, from, tofd, to, flags),
		  sfs_name_durable(tofd, to));
}
EXPORT(linkat, w_linkat);

WRAPPER int w_unlink(const char *path)
{
	TRUE_META(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, REAL(unlink)(path), sfs_name_durable(AT_FDCWD, path));
}
EXPORT(unlink, w_unlink);

WRAPPER int w_unlinkat(int dirfd, const char *path, int flags)
{
	TRUE_META(dirfd, path, AT_SYMLINK_NOFOLLOW, REAL(unlinkat)(dirfd, path, flags), sfs_name_durable(dirfd, path));
}
EXPORT(unlinkat, w_unlinkat);

WRAPPER int w_remove(const char *path)
{
	TRUE_META(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, REAL(remove)(path), sfs_name_durable(AT_FDCWD, path));
}
EXPORT(remove, w_remove);

WRAPPER int w_rmdir(const char *path)
{
	META(REAL(rmdir)(path), sfs_name_durable(AT_FDCWD, path));
}
EXPORT(rmdir, w_rmdir);

WRAPPER int w_symlink(const char *target, const char *path)
{
	META(REAL(symlink)(target, path), sfs_name_durable(AT_FDCWD, path));
}
EXPORT(symlink, w_symlink);

WRAPPER int w_symlinkat(const char *target, int dirfd, const char *path)
{
	META(REAL(symlinkat)(target, dirfd, path), sfs_name_durable(dirfd, path));
}
EXPORT(symlinkat, w_symlinkat);

WRAPPER int w_mkdir(const char *path, mode_t mode)
{
	META(REAL(mkdir)(path, mode), sfs_name_durable(AT_FDCWD, path));
}
EXPORT(mkdir, w_mkdir);

WRAPPER int w_mkdirat(int dirfd, const char *path, mode_t mode)
{
	META(REAL(mkdirat)(dirfd, path, mode), sfs_name_durable(dirfd, path));
}
EXPORT(mkdirat, w_mkdirat);

WRAPPER char *w_mkdtemp(char *template)
{
	char *r = REAL(mkdtemp)(template);

	if (r && sfs_active() && pl_ret(sfs_name_durable(AT_FDCWD, r)) < 0)
		return NULL;
	return r;
}
EXPORT(mkdtemp, w_mkdtemp);

WRAPPER int w_mknod(const char *path, mode_t mode, dev_t dev)
{
	META(REAL(mknod)(path, mode, dev), sfs_name_durable(AT_FDCWD, path));
}
EXPORT(mknod, w_mknod);

WRAPPER int w_mknodat(int dirfd, const char *path, mode_t mode, dev_t dev)
{
	META(REAL(mknodat)(dirfd, path, mode, dev), sfs_name_durable(dirfd, path));
}
EXPORT(mknodat, w_mknodat);

WRAPPER int w_xmknod(int ver, const char *path, mode_t mode, dev_t *dev)
{
	META(REAL_AS(int (*)(int, const char *, mode_t, dev_t *), __xmknod)(ver, path, mode, dev),
	     sfs_name_durable(AT_FDCWD, path));
}
EXPORT(__xmknod, w_xmknod);

WRAPPER int w_xmknodat(int ver, int dirfd, const char *path, mode_t mode, dev_t *dev)
{
	META(REAL_AS(int (*)(int, int, const char *, mode_t, dev_t *), __xmknodat)(ver, dirfd, path, mode, dev),
	     sfs_name_durable(dirfd, path));
}
EXPORT(__xmknodat, w_xmknodat);

WRAPPER int w_mkfifo(const char *path, mode_t mode)
{
	META(REAL(mkfifo)(path, mode), sfs_name_durable(AT_FDCWD, path));
}
EXPORT(mkfifo, w_mkfifo);

WRAPPER int w_mkfifoat(int dirfd, const char *path, mode_t mode)
{
	META(REAL(mkfifoat)(dirfd, path, mode), sfs_name_durable(dirfd, path));
}
EXPORT(mkfifoat, w_mkfifoat);

/*
 * Set-ID bits or capabilities are given to what the file holds now: what is staged goes first, as relinking it later is a write, which may
 * take them away, and the next write is to end them.
 */
#define GIVES(given, dirfd, path, at_flags, call, durable)                                                                     \
	do {                                                                                                                   \
		int r_;                                                                                                        \
                                                                                                                               \
		if (likely(!sfs_active()))                                                                                     \
			return call;                                                                                           \
		if (given) {                                                                                                   \
			r_ = path_or_fd_true(dirfd, path, at_flags);                                                           \
			if (r_ < 0)                                                                                            \
				return (int)pl_ret(r_);                                                                        \
		}                                                                                                              \
		r_ = (call);                                                                                                   \
		if (r_ == 0 && (given))                                                                                        \
			sfs_privileges_given(dirfd, path, at_flags);                                                           \
		return r_ == 0 ? (int)pl_ret(durable) : r_;                                                                    \
	} while (0)

static int path_or_fd_true(int dirfd, const char *path, int at_flags)
{
	return path ? pl_path_true(dirfd, path, at_flags) : sfs_ours(dirfd) ? sfs_make_true(dirfd, false) : 0;
}

static bool gives_mode(mode_t mode)
{
	return mode & (S_ISUID | S_ISGID);
}

static bool gives_xattr(const char *name)
{
	static const char capability[] = "security.capability";
	size_t i = 0;

	while (i < sizeof(capability) && sys_readable(name + i) && name[i] == capability[i])
		i++;
	return i == sizeof(capability);
}

WRAPPER int w_chmod(const char *path, mode_t mode)
{
	GIVES(gives_mode(mode), AT_FDCWD, path, 0, REAL(chmod)(path, mode), sfs_attr_durable(AT_FDCWD, path, 0));
}
EXPORT(chmod, w_chmod);

WRAPPER int w_lchmod(const char *path, mode_t mode)
{
	GIVES(gives_mode(mode), AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, REAL(lchmod)(path, mode),
	      sfs_attr_durable(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW));
}
EXPORT(lchmod, w_lchmod);

WRAPPER int w_fchmod(int fd, mode_t mode)
{
	GIVES(gives_mode(mode), fd, NULL, 0, REAL(fchmod)(fd, mode), sfs_fd_durable(fd));
}
EXPORT(fchmod, w_fchmod);

WRAPPER int w_fchmodat(int dirfd, const char *path, mode_t mode, int flags)
{
	GIVES(gives_mode(mode), dirfd, path, flags, REAL(fchmodat)(dirfd, path, mode, flags),
	      sfs_attr_durable(dirfd, path, flags));
}
EXPORT(fchmodat, w_fchmodat);

WRAPPER int w_chown(const char *path, uid_t uid, gid_t gid)
{
	META(REAL(chown)(path, uid, gid), sfs_attr_durable(AT_FDCWD, path, 0));
}
EXPORT(chown, w_chown);

WRAPPER int w_lchown(const char *path, uid_t uid, gid_t gid)
{
	META(REAL(lchown)(path, uid, gid), sfs_attr_durable(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW));
}
EXPORT(lchown, w_lchown);

WRAPPER int w_fchown(int fd, uid_t uid, gid_t gid)
{
	META(REAL(fchown)(fd, uid, gid), sfs_fd_durable(fd));
}
EXPORT(fchown, w_fchown);

WRAPPER int w_fchownat(int dirfd, const char *path, uid_t uid, gid_t gid, int flags)
{
	META(REAL(fchownat)(dirfd, path, uid, gid, flags), sfs_attr_durable(dirfd, path, flags));
}
EXPORT(fchownat, w_fchownat);

WRAPPER int w_setxattr(const char *path, const char *name, const void *value, size_t n, int flags)
{
	GIVES(gives_xattr(name), AT_FDCWD, path, 0, REAL(setxattr)(path, name, value, n, flags),
	      sfs_attr_durable(AT_FDCWD, path, 0));
}
EXPORT(setxattr, w_setxattr);

WRAPPER int w_lsetxattr(const char *path, const char *name, const void *value, size_t n, int flags)
{
	GIVES(gives_xattr(name), AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, REAL(lsetxattr)(path, name, value, n, flags),
	      sfs_attr_durable(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW));
}
EXPORT(lsetxattr, w_lsetxattr);

WRAPPER int w_fsetxattr(int fd, const char *name, const void *value, size_t n, int flags)
{
	GIVES(gives_xattr(name), fd, NULL, 0, REAL(fsetxattr)(fd, name, value, n, flags), sfs_fd_durable(fd));
}
EXPORT(fsetxattr, w_fsetxattr);

WRAPPER int w_removexattr(const char *path, const char *name)
{
	META(REAL(removexattr)(path, name), sfs_attr_durable(AT_FDCWD, path, 0));
}
EXPORT(removexattr, w_removexattr);

WRAPPER int w_lremovexattr(const char *path, const char *name)
{
	META(REAL(lremovexattr)(path, name), sfs_attr_durable(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW));
}
EXPORT(lremovexattr, w_lremovexattr);

WRAPPER int w_fremovexattr(int fd, const char *name)
{
	META(REAL(fremovexattr)(fd, name), sfs_fd_durable(fd));
}
EXPORT(fremovexattr, w_fremovexattr);
