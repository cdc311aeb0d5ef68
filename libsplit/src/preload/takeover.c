/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Before a file is truncated by its name: what any process has staged for it must have gone to the kernel, or it would come
 * back later. A descriptor of our own is how the core asks the other processes.
 */
#include "preload.h"

/* "w" truncates the file inside the C library. Of a file that is open here no descriptor is closed, as below. */
int pl_give_up(const char *path)
{
	struct stat st;
	int fd, err;

	if (sys_fstatat(AT_FDCWD, path, &st, 0) < 0 || !S_ISREG(st.st_mode))
		return 0; /* not there yet, or no file */
	err = sfs_give_up_known(st.st_dev, st.st_ino);
	if (err != SFS_UNKNOWN)
		return err;
	fd = pl_take_over(path);
	if (fd < 0)
		return 0; /* not ours, or not to be written: the caller will say so */
	err = sfs_make_true(fd, true);
	pl_release(fd);
	return err;
}

int pl_take_over(const char *path)
{
	struct stat st;
	int fd;

	/* Opening something else may block, or be noticed at its other end. */
	if (sys_fstatat(AT_FDCWD, path, &st, 0) < 0 || !S_ISREG(st.st_mode))
		return -1;
	fd = sfs_openat(AT_FDCWD, path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0);
	if (fd < 0 || sfs_ours(fd))
		return fd;
	pl_release(fd);
	return -1;
}

/*
 * Of a file that is open here no descriptor is closed: that would drop the process's locks on it. SFS_PASS: the real call.
 */
long pl_truncate(const char *path, off_t len)
{
	struct stat st;
	long r;
	int fd;

	if (len < 0 || sys_fstatat(AT_FDCWD, path, &st, 0) < 0 || !S_ISREG(st.st_mode))
		return SFS_PASS;
	r = sfs_truncate_known(st.st_dev, st.st_ino, len);
	if (r != SFS_UNKNOWN)
		return r;
	fd = pl_take_over(path);
	if (fd < 0)
		return SFS_PASS;
	r = sfs_ftruncate(fd, len);
	pl_release(fd);
	return r;
}

void pl_release(int fd)
{
	if (sfs_close(fd) == SFS_PASS)
		sys_close(fd);
}
