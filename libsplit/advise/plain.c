/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the wrappers try for speed is never there where nothing is served, and calls that the library would time are like others: here, and in
 * the test of the wrappers by themselves.
 */
#include "calls/calls.h"
#include "record/latency.h"

struct sfs_timer sfs_timers[SFS_TIMER_PLACES];
ssize_t sfs_timed_read(struct sfs_ofd *ofd, int fd, void *buf, size_t n, off_t off)
{
	(void)ofd;
	return sfs_read(fd, buf, n, off);
}
ssize_t sfs_timed_write(struct sfs_ofd *ofd, int fd, const void *buf, size_t n, off_t off)
{
	(void)ofd;
	return sfs_write(fd, buf, n, off);
}
int sfs_timed_fsync(int fd, bool data_only)
{
	return sfs_fsync(fd, data_only);
}

bool sfs_append(struct sfs_ofd *ofd, int fd, const void *buf, size_t n)
{
	(void)ofd, (void)fd, (void)buf, (void)n;
	return false;
}
bool sfs_store(struct sfs_ofd *ofd, int fd, const void *buf, size_t n, off_t off)
{
	(void)ofd, (void)fd, (void)buf, (void)n, (void)off;
	return false;
}

bool sfs_read_window(struct sfs_ofd *ofd, int fd, void *buf, size_t n, off_t off)
{
	(void)ofd, (void)fd, (void)buf, (void)n, (void)off;
	return false;
}
bool sfs_first_read(int fd, void *buf, size_t n, off_t off, ssize_t *r)
{
	(void)fd, (void)buf, (void)n, (void)off, (void)r;
	return false;
}
bool sfs_first_write(int fd, const void *buf, size_t n, off_t off, ssize_t *r)
{
	(void)fd, (void)buf, (void)n, (void)off, (void)r;
	return false;
}
bool sfs_first_fsync(int fd, bool data_only, int *r)
{
	(void)fd, (void)data_only, (void)r;
	return false;
}
bool sfs_first_true(int fd)
{
	(void)fd;
	return false;
}
bool sfs_first_lseek(int fd, off_t off, int whence, off_t *r)
{
	(void)fd, (void)off, (void)whence, (void)r;
	return false;
}
