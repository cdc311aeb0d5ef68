/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in for a function that the program's C library does not have; for real.c only. */
#ifndef SFS_PRELOAD_REAL_FALLBACK_H
#define SFS_PRELOAD_REAL_FALLBACK_H

#include "preload.h"

#include <sys/time.h>
#include <sys/types.h>

#define PL_LOCAL __attribute__((visibility("hidden")))

/* Not there: -1 and ENOSYS; NULL and ENOSYS; ENOSYS as the result; -ENOSYS as the result; nothing at all. */
PL_LOCAL long pl_fb_nosys(void);
PL_LOCAL void *pl_fb_null(void);
PL_LOCAL int pl_fb_enosys(void);
PL_LOCAL int pl_fb_raw_enosys(void);
PL_LOCAL void pl_fb_nothing(void);
PL_LOCAL void pl_fb_abort(void);

PL_LOCAL ssize_t pl_fb_preadv2(int fd, const struct iovec *iov, int cnt, off_t off, int flags);
PL_LOCAL ssize_t pl_fb_pwritev2(int fd, const struct iovec *iov, int cnt, off_t off, int flags);
PL_LOCAL void pl_fb_closefrom(int first);
PL_LOCAL int pl_fb_xstat(int ver, const char *path, struct stat *st);
PL_LOCAL int pl_fb_fxstat(int ver, int fd, struct stat *st);
PL_LOCAL int pl_fb_lxstat(int ver, const char *path, struct stat *st);
PL_LOCAL int pl_fb_fxstatat(int ver, int dirfd, const char *path, struct stat *st, int flags);
PL_LOCAL int pl_fb_xmknod(int ver, const char *path, mode_t mode, dev_t *dev);
PL_LOCAL int pl_fb_xmknodat(int ver, int dirfd, const char *path, mode_t mode, dev_t *dev);
PL_LOCAL int pl_fb_posix_fallocate(int fd, off_t off, off_t len);
PL_LOCAL int pl_fb_remove(const char *path);
PL_LOCAL int pl_fb_fchmodat(int dirfd, const char *path, mode_t mode, int flags);
PL_LOCAL int pl_fb_futimens(int fd, const struct timespec ts[2]);
PL_LOCAL int pl_fb_execv(const char *path, char *const argv[]);
PL_LOCAL int pl_fb_fexecve(int fd, char *const argv[], char *const envp[]);
PL_LOCAL int pl_fb_io_submit(void *ctx, long nr, void *iocbs);

/* By path or in the old form, for which newer architectures have no system call. */
PL_LOCAL int pl_fb_open(const char *path, int flags, mode_t mode);
PL_LOCAL int pl_fb_creat(const char *path, mode_t mode);
PL_LOCAL int pl_fb_dup2(int oldfd, int newfd);
PL_LOCAL int pl_fb_stat(const char *path, struct stat *st);
PL_LOCAL int pl_fb_lstat(const char *path, struct stat *st);
PL_LOCAL int pl_fb_rename(const char *from, const char *to);
PL_LOCAL int pl_fb_link(const char *from, const char *to);
PL_LOCAL int pl_fb_unlink(const char *path);
PL_LOCAL int pl_fb_rmdir(const char *path);
PL_LOCAL int pl_fb_symlink(const char *target, const char *path);
PL_LOCAL int pl_fb_mkdir(const char *path, mode_t mode);
PL_LOCAL int pl_fb_mknod(const char *path, mode_t mode, dev_t dev);
PL_LOCAL int pl_fb_chmod(const char *path, mode_t mode);
PL_LOCAL int pl_fb_chown(const char *path, uid_t uid, gid_t gid);
PL_LOCAL int pl_fb_lchown(const char *path, uid_t uid, gid_t gid);
PL_LOCAL int pl_fb_utime(const char *path, const long t[2]);
PL_LOCAL int pl_fb_utimes(const char *path, const struct timeval t[2]);
PL_LOCAL int pl_fb_futimesat(int dirfd, const char *path, const struct timeval t[2]);
PL_LOCAL pid_t pl_fb_fork(void);
PL_LOCAL int pl_fb_pipe(int fds[2]);
PL_LOCAL int pl_fb_epoll_create(int size);
PL_LOCAL int pl_fb_inotify_init(void);

#endif
