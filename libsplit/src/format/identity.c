/* SPDX-License-Identifier: Apache-2.0 */
#include "format/identity.h"

#include <errno.h>
#include <linux/fs.h>
#include <linux/stat.h>

#include "base/crc32c.h"
#include "base/sys.h"

/* "This file system, or this kernel, does not know that." */
static int unknown(int err)
{
	return err == -ENOTTY || err == -EOPNOTSUPP || err == -EINVAL || err == -ENOSYS;
}

int sfs_generation(int fd, uint32_t *gen)
{
	struct statx stx = {0};
	long version = 0;
	int err;

	/* The number is a long by its ioctl code, and an int by what file systems store. */
	err = sys_ioctl(fd, FS_IOC_GETVERSION, &version);
	if (!err) {
		*gen = (uint32_t)version;
		return 0;
	}
	if (!unknown(err))
		return err;
	err = (int)sys_call5(SYS_statx, fd, (long)"", AT_EMPTY_PATH, STATX_BTIME, (long)&stx);
	if (err && !unknown(err))
		return err;
	*gen = 0;
	if (!err && (stx.stx_mask & STATX_BTIME)) {
		*gen = crc32c(0, &stx.stx_btime.tv_sec, sizeof(stx.stx_btime.tv_sec));
		*gen = crc32c(*gen, &stx.stx_btime.tv_nsec, sizeof(stx.stx_btime.tv_nsec));
	}
	return 0;
}
