/* SPDX-License-Identifier: Apache-2.0 */
/* Ask the file system by doing it: version numbers and feature flags lie, a moved block does not. */
#include <errno.h>

#include "base/sys.h"
#include "relink/provider.h"

#define MARK 0x5e

/* An unlinked file in dirfd. */
static int scratch(int dirfd)
{
	static const char name[] = ".splitfs-relink-probe";
	int fd, err;

	fd = sys_openat(dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd != -EOPNOTSUPP && fd != -EISDIR && fd != -EINVAL)
		return fd;
	fd = sys_openat(dirfd, name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return fd;
	err = sys_unlinkat(dirfd, name, 0);
	if (err) {
		sys_close(fd);
		return err;
	}
	return fd;
}

/* Does `move` take the second block of the donor into the first of the target, with its content, and leave a hole? */
static int works(int (*move)(const struct relink_range *, uint64_t, uint64_t), int donor, int target)
{
	struct relink_range r = {.donor = donor, .target = target, .donor_off = RELINK_BLOCK, .len = RELINK_BLOCK};
	uint64_t from = RELINK_BLOCK, to;
	char block[RELINK_BLOCK];
	int err;

	for (unsigned i = 0; i < RELINK_BLOCK; i++)
		block[i] = MARK;
	for (int i = 0; i < 2; i++) {
		err = (int)sys_pwrite(donor, block, RELINK_BLOCK, (off_t)i * RELINK_BLOCK);
		if (err != (int)RELINK_BLOCK)
			return err < 0 ? err : -ENOSPC;
	}
	err = sys_ftruncate(target, 0);
	if (!err)
		err = sys_ftruncate(target, RELINK_BLOCK); /* a hole of the right size */
	if (!err)
		err = move(&r, 0, RELINK_BLOCK);
	if (err)
		return relink_unsupported(err) ? 0 : err;
	for (unsigned i = 0; i < RELINK_BLOCK; i++)
		block[i] = 0;
	err = (int)sys_pread(target, block, RELINK_BLOCK, 0);
	if (err < 0)
		return err;
	for (unsigned i = 0; i < RELINK_BLOCK; i++)
		if (block[i] != MARK)
			return 0;
	err = relink_next_data(donor, &from, &to, 2 * RELINK_BLOCK);
	return err < 0 ? err : !err;
}

static int move_ext4(const struct relink_range *r, uint64_t at, uint64_t n)
{
	uint64_t moved;
	uint32_t extents;

	return relink_ext4(r, at, n, &moved, &extents);
}

static int reflink(const struct relink_range *r, uint64_t at, uint64_t n)
{
	const int err = relink_share(r, at, n);

	return err ? err : relink_unshare(r, at, n);
}

static int exchange(const struct relink_range *r, uint64_t at, uint64_t n)
{
	const int err = relink_xfs_exchange(r, at, n);

	return err ? err : relink_xfs_exchanged(r, at, n);
}

/* The first of them that works; a negative errno value when even trying went wrong. */
static int best(int donor, int target)
{
	int ret = relink_has_ext4(donor) ? works(move_ext4, donor, target) : 0;

	if (ret)
		return ret < 0 ? ret : RELINK_EXT4;
	ret = works(reflink, donor, target);
	if (ret)
		return ret < 0 ? ret : RELINK_REFLINK;
	ret = relink_is_xfs(donor) ? works(exchange, donor, target) : 0;
	if (ret)
		return ret < 0 ? ret : RELINK_XFS_EXCHANGE;
	return RELINK_COPY;
}

int relink_probe(int dirfd)
{
	int donor, target, ret;

	donor = scratch(dirfd);
	if (donor < 0)
		return donor;
	target = scratch(dirfd);
	if (target < 0) {
		sys_close(donor);
		return target;
	}
	ret = best(donor, target);
	sys_close(target);
	sys_close(donor);
	return ret;
}
