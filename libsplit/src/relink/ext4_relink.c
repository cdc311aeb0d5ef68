/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our own ioctl of ext4 (kernel-patch/): one journal transaction takes blocks out of the donor, puts them into the target and sets
 * the target's size. Blocks that the target has in the range are freed with it, so it needs no hole there, and with
 * EXT4_RELINK_SKIP_HOLES repeating it is harmless: what was moved already is a hole in the donor.
 */
#include <errno.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include "base/sys.h"
#include "ext4_relink.h"
#include "relink/provider.h"

#define NEEDED (EXT4_RELINK_QUERY | EXT4_RELINK_SKIP_HOLES | EXT4_RELINK_PARTIAL | EXT4_RELINK_DATA_PERSISTENT)

/* The ioctl's number means something else on other file systems, so ext4's magic comes first. */
static bool knows(int fd, uint32_t flags)
{
	struct ext4_relink x = {.version = EXT4_RELINK_VERSION, .flags = EXT4_RELINK_QUERY};
	struct statfs fs;

	if (sys_call2(SYS_fstatfs, fd, (long)&fs) < 0 || fs.f_type != EXT4_SUPER_MAGIC)
		return false;
	if (sys_ioctl(fd, EXT4_IOC_RELINK, &x) < 0)
		return false;
	return x.version >= EXT4_RELINK_VERSION && (x.known_flags & flags) == flags;
}

bool relink_has_ext4(int fd)
{
	return knows(fd, NEEDED);
}

bool relink_ext4_can_swap(int fd)
{
	return knows(fd, EXT4_RELINK_EXCHANGE | EXT4_RELINK_KEEP_SIZE);
}

/* One transaction or none: no PARTIAL. What is stored through mappings of others is written back: no DATA_PERSISTENT. */
int relink_ext4_swap(int fd1, uint64_t off1, int fd2, uint64_t off2, uint64_t len)
{
	struct ext4_relink x = {
		.version = EXT4_RELINK_VERSION,
		.flags = EXT4_RELINK_EXCHANGE | EXT4_RELINK_KEEP_SIZE,
		.donor_fd = fd1,
		.donor_offset = off1,
		.target_offset = off2,
		.length = len,
	};
	int err;

	if (!relink_ext4_can_swap(fd2))
		return -EOPNOTSUPP;
	do
		err = sys_ioctl(fd2, EXT4_IOC_RELINK, &x);
	while (err == -EINTR);
	return err == -EAGAIN ? -EOPNOTSUPP : err; /* pages are pinned for who knows how long: the caller copies */
}

int relink_ext4(const struct relink_range *r, uint64_t at, uint64_t n, uint64_t *moved, uint32_t *extents)
{
	uint64_t part = n;
	int err = 0;

	*moved = 0;
	*extents = 0;
	while (*moved < n) {
		const uint64_t here = at + *moved, left = n - *moved, end = r->target_off + here + (left < part ? left : part);
		struct ext4_relink x = {
			.version = EXT4_RELINK_VERSION,
			.flags = EXT4_RELINK_SKIP_HOLES | EXT4_RELINK_PARTIAL |
				 (r->persistent ? EXT4_RELINK_DATA_PERSISTENT : 0),
			.donor_fd = r->donor,
			.donor_offset = r->donor_off + here,
			.target_offset = r->target_off + here,
			.length = left < part ? left : part,
			/* Only the call that moves the end of the range may be the one that moves the end of the file. */
			.new_size = left <= part && r->size > end ? r->size : end,
		};

		err = sys_ioctl(r->target, EXT4_IOC_RELINK, &x);
		if (err == -EINTR)
			continue;
		/* Even its beginning was too much for a transaction: the kernel's own search gave up, so halve. */
		if (err == -E2BIG && x.length > RELINK_BLOCK) {
			part = (x.length / 2 + RELINK_BLOCK - 1) & ~(uint64_t)(RELINK_BLOCK - 1);
			continue;
		}
		/* Somebody's input and output keeps pages pinned, for who knows how long: the caller copies. */
		if (err == -EAGAIN)
			return -EOPNOTSUPP;
		if (err)
			break;
		if (x.moved == 0 || x.moved > x.length)
			return -EIO; /* not our interface after all: never go round for ever */
		*moved += x.moved;
		*extents += x.extents_moved;
	}
	return err;
}
