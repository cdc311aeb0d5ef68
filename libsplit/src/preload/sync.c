/* SPDX-License-Identifier: Apache-2.0 */
/* Making files durable, and changing their length. */
#include "preload.h"

#include <unistd.h>

WRAPPER int w_fsync(int fd)
{
	SERVE(fd, sfs_fsync(fd, false), REAL(fsync)(fd));
}
EXPORT(fsync, w_fsync);

WRAPPER int w_fdatasync(int fd)
{
	SERVE(fd, sfs_fsync(fd, true), REAL(fdatasync)(fd));
}
EXPORT(fdatasync, w_fdatasync);

WRAPPER void w_sync(void)
{
	if (sfs_active())
		sfs_sync_all();
	REAL(sync)();
}
EXPORT(sync, w_sync);

WRAPPER int w_syncfs(int fd)
{
	if (sfs_active())
		sfs_sync_all();
	return REAL(syncfs)(fd);
}
EXPORT(syncfs, w_syncfs);

WRAPPER int w_sync_file_range(int fd, off_t off, off_t len, unsigned flags)
{
	TRUE_THEN(fd, REAL(sync_file_range)(fd, off, len, flags));
}
EXPORT(sync_file_range, w_sync_file_range);

WRAPPER int w_ftruncate(int fd, off_t len)
{
	SERVE(fd, sfs_ftruncate(fd, len), REAL(ftruncate)(fd, len));
}
EXPORT(ftruncate, w_ftruncate);
EXPORT(ftruncate64, w_ftruncate);

/* Whoever has the file staged hands it over first; the rest is ftruncate. */
WRAPPER int w_truncate(const char *path, off_t len)
{
	int r;

	if (likely(!sfs_active()))
		return REAL(truncate)(path, len);
	pl_cancel_point();
	r = (int)pl_truncate(path, len);
	if (r != SFS_PASS)
		return (int)pl_ret(r);
	r = REAL(truncate)(path, len);
	return r == 0 ? (int)pl_ret(sfs_attr_durable(AT_FDCWD, path, 0)) : r;
}
EXPORT(truncate, w_truncate);
EXPORT(truncate64, w_truncate);

WRAPPER int w_fallocate(int fd, int mode, off_t off, off_t len)
{
	SERVE(fd, sfs_fallocate(fd, mode, off, len), REAL(fallocate)(fd, mode, off, len));
}
EXPORT(fallocate, w_fallocate);
EXPORT(fallocate64, w_fallocate);

/* Returns the error number. Where the file system cannot, the C library writes the blocks itself, behind our back. */
WRAPPER int w_posix_fallocate(int fd, off_t off, off_t len)
{
	int r;

	if (likely(!sfs_ours(fd)))
		return REAL(posix_fallocate)(fd, off, len);
	r = sfs_fallocate(fd, 0, off, len);
	if (r != SFS_PASS && r != -EOPNOTSUPP)
		return -r;
	r = sfs_make_true(fd, false);
	if (r < 0)
		return -r;
	r = REAL(posix_fallocate)(fd, off, len);
	sfs_changed(fd);
	return r == 0 ? -sfs_fd_durable(fd) : r;
}
EXPORT(posix_fallocate, w_posix_fallocate);
EXPORT(posix_fallocate64, w_posix_fallocate);
