/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that the library would serve, made and counted; and those by which a file becomes the kernel's. */
#include "core.h"

#include <errno.h>

/*
 * A request for the kernel to keep a file says not why. These are set around the two whys that the wrappers of one kind of call have; with
 * several threads at that in one moment a file may get the other's reason.
 */
extern uint32_t adv_sending, adv_asynchronous;

#define TIMED(io, fd, writes, off, rwf, call)                                                                                  \
	do {                                                                                                                   \
		uint64_t from_;                                                                                                \
		ssize_t r_;                                                                                                    \
                                                                                                                               \
		adv_io_begin(&(io), fd, writes, off, rwf);                                                                     \
		from_ = adv_ticks();                                                                                           \
		r_ = (call);                                                                                                   \
		adv_io_end(&(io), fd, r_, adv_since(from_));                                                                   \
		return r_;                                                                                                     \
	} while (0)

ssize_t sfs_read(int fd, void *buf, size_t n, off_t off)
{
	struct adv_io io;

	TIMED(io, fd, false, off, 0, off < 0 ? sys_read(fd, buf, n) : sys_pread(fd, buf, n, off));
}

ssize_t sfs_write(int fd, const void *buf, size_t n, off_t off)
{
	struct adv_io io;

	TIMED(io, fd, true, off, 0, off < 0 ? sys_write(fd, buf, n) : sys_pwrite(fd, buf, n, off));
}

ssize_t sfs_readv(int fd, const struct iovec *iov, int cnt, off_t off, int flags)
{
	struct adv_io io;

	TIMED(io, fd, false, off, flags, sys_call6(SYS_preadv2, fd, (long)iov, cnt, off, 0, flags));
}

ssize_t sfs_writev(int fd, const struct iovec *iov, int cnt, off_t off, int flags)
{
	struct adv_io io;

	TIMED(io, fd, true, off, flags, sys_call6(SYS_pwritev2, fd, (long)iov, cnt, off, 0, flags));
}

int sfs_fsync(int fd, bool data_only)
{
	struct sfs_ofd *ofd = sfs_known(fd);
	const uint64_t began = adv_clock(CLOCK_MONOTONIC), from = adv_cpu();
	const int r = data_only ? sys_fdatasync(fd) : sys_fsync(fd);
	const uint64_t cpu = adv_cpu() - from;

	if (ofd && r == 0 && sfs_known(fd) == ofd)
		adv_forced(ofd->file, cpu, adv_clock(CLOCK_MONOTONIC) - began);
	return r;
}

off_t sfs_lseek(int fd, off_t off, int whence)
{
	(void)fd, (void)off, (void)whence;
	return SFS_PASS;
}

/* The kernel changes the file. */
static int changes(int fd)
{
	struct sfs_ofd *ofd = sfs_known(fd);

	if (ofd)
		adv_changed(ofd->file);
	return SFS_PASS;
}

int sfs_ftruncate(int fd, off_t len)
{
	(void)len;
	return changes(fd);
}

int sfs_fallocate(int fd, int mode, off_t off, off_t len)
{
	(void)mode, (void)off, (void)len;
	return changes(fd);
}

int sfs_truncate_open(int fd, int flags)
{
	(void)flags;
	return sys_ftruncate(fd, 0);
}

int sfs_true_to_change(int fd, struct sfs_change *c)
{
	*c = (struct sfs_change){0};
	changes(fd);
	return 0;
}

int sfs_make_true(int fd, bool forever)
{
	if (!forever)
		changes(fd);
	else
		adv_hand_over(fd, __atomic_load_n(&adv_sending, __ATOMIC_RELAXED)	 ? ADV_SENT
				  : __atomic_load_n(&adv_asynchronous, __ATOMIC_RELAXED) ? ADV_ASYNC
											 : ADV_STREAM);
	return 0;
}

int sfs_mapped(int fd)
{
	struct sfs_ofd *ofd = sfs_known(fd);

	if (ofd)
		ofd->file->mapped = true;
	adv_hand_over(fd, ADV_MAPPED);
	return 0;
}

/* Before rename, link, unlink and the like. The file's own name, not what a link leads to. */
int sfs_make_path_true(int dirfd, const char *path, int at_flags)
{
	(void)dirfd, (void)path, (void)at_flags;
	return 0;
}

int sfs_unlink_begin(int dirfd, const char *path, struct sfs_unlink *u)
{
	*u = (struct sfs_unlink){0};
	return sfs_make_path_true(dirfd, path, AT_SYMLINK_NOFOLLOW);
}

void sfs_unlink_end(const struct sfs_unlink *u, bool gone)
{
	(void)u, (void)gone;
}
