/* SPDX-License-Identifier: Apache-2.0 */
/* Swapping block mappings: Linux 6.10, XFS with the exchange feature. One journalled operation, finished by log recovery. */
#include <linux/falloc.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>

#include "base/sys.h"
#include "relink/provider.h"

#define XFS_MAGIC 0x58465342

/* The kernel's interface (uapi xfs_fs.h), which the headers of older distributions do not have. */
struct exchange_range {
	int32_t file1_fd; /* the other file is the one the ioctl is called on */
	uint32_t pad;
	uint64_t file1_offset;
	uint64_t file2_offset;
	uint64_t length;
	uint64_t flags;
};
#define IOC_EXCHANGE_RANGE _IOW('X', 129, struct exchange_range)

bool relink_is_xfs(int fd)
{
	struct statfs fs;

	return sys_call2(SYS_fstatfs, fd, (long)&fs) == 0 && fs.f_type == XFS_MAGIC;
}

int relink_xfs_exchange(const struct relink_range *r, uint64_t at, uint64_t n)
{
	struct exchange_range x = {
		.file1_fd = r->donor,
		.file1_offset = r->donor_off + at,
		.file2_offset = r->target_off + at,
		.length = n,
	};
	int err;

	/*
	 * Preallocated blocks read as a hole, but only until somebody reads them: then there are pages of zeros in the page
	 * cache, and SEEK_DATA calls those data. In the donor they would look like staged bytes. So swap real holes only.
	 */
	err = sys_fallocate(r->target, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)x.file2_offset, (off_t)n);
	return err ? err : sys_ioctl(r->target, IOC_EXCHANGE_RANGE, &x);
}

int relink_xfs_exchanged(const struct relink_range *r, uint64_t at, uint64_t n)
{
	uint64_t from = r->donor_off + at, to;

	/* Where the file system does not say whether there is a hole, one is made. */
	return relink_next_data(r->donor, &from, &to, r->donor_off + at + n) ? relink_unshare(r, at, n) : 0;
}

int relink_swap(int fd1, uint64_t off1, int fd2, uint64_t off2, uint64_t len)
{
	struct exchange_range x = {.file1_fd = fd1, .file1_offset = off1, .file2_offset = off2, .length = len};

	return relink_is_xfs(fd2) ? sys_ioctl(fd2, IOC_EXCHANGE_RANGE, &x) : relink_ext4_swap(fd1, off1, fd2, off2, len);
}

bool relink_can_swap(int fd)
{
	return relink_is_xfs(fd) || relink_ext4_can_swap(fd);
}
