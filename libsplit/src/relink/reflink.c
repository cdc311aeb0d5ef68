/* SPDX-License-Identifier: Apache-2.0 */
/* FICLONERANGE shares the donor's blocks with the target, replacing what was there; punching the donor ends the sharing. */
#include <linux/falloc.h>
#include <linux/fs.h>

#include "base/sys.h"
#include "relink/provider.h"

int relink_share(const struct relink_range *r, uint64_t at, uint64_t n)
{
	struct file_clone_range clone = {
		.src_fd = r->donor,
		.src_offset = r->donor_off + at,
		.src_length = n,
		.dest_offset = r->target_off + at,
	};

	return sys_ioctl(r->target, FICLONERANGE, &clone);
}

int relink_unshare(const struct relink_range *r, uint64_t at, uint64_t n)
{
	return sys_fallocate(r->donor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(r->donor_off + at), (off_t)n);
}
