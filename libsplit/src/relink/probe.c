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

/* Does `provider` move the second block of the donor into the first of the target, with its content, and leave a hole? */
static int works(enum relink_provider provider, int donor, int target)
{
	struct relink_range r = {.donor = donor, .target = target, .donor_off = RELINK_BLOCK, .len = RELINK_BLOCK};
	uint64_t from = RELINK_BLOCK, to;
	char block[RELINK_BLOCK];
	int err, flags;

	for (unsigned i = 0; i < RELINK_BLOCK; i++)
		block[i] = MARK;
	for (int i = 0; i < 2; i++) {
		err = (int)sys_pwrite(donor, block, RELINK_BLOCK, (off_t)i * RELINK_BLOCK);
		if (err != (int)RELINK_BLOCK)
			return err < 0 ? err : -ENOSPC;
	}
	err = sys_ftruncate(target, 0);
	if (err)
		return err;
	r.size = RELINK_BLOCK;
	flags = relink(provider, &r, NULL);
	if (flags < 0)
		return relink_unsupported(flags) ? 0 : flags;
	if (flags & RELINK_DONOR_KEEPS)
		return 0; /* it fell back to copying */
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

/* Exchange falls back to reflink inside relink(): try the call itself on two holes of a file each. */
static int exchange_works(int donor, int target)
{
	struct relink_range r = {.donor = donor, .target = target, .len = RELINK_BLOCK};
	int err;

	if (!relink_is_xfs(donor))
		return 0;
	err = sys_ftruncate(target, RELINK_BLOCK);
	if (!err)
		err = sys_ftruncate(donor, 2 * RELINK_BLOCK);
	if (!err)
		err = relink_xfs_exchange(&r, 0, RELINK_BLOCK);
	if (relink_unsupported(err))
		return 0;
	return err ? err : works(RELINK_XFS_EXCHANGE, donor, target);
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
	ret = works(RELINK_REFLINK, donor, target);
	if (ret > 0) {
		ret = RELINK_REFLINK;
	} else if (ret == 0) {
		ret = exchange_works(donor, target);
		if (ret >= 0)
			ret = ret ? RELINK_XFS_EXCHANGE : RELINK_COPY;
	}
	sys_close(target);
	sys_close(donor);
	return ret;
}
