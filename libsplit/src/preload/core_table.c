/* SPDX-License-Identifier: Apache-2.0 */
/* What libsplitfs.so finds of us. */
#include "preload.h"
#include "splitfs.h"
#include "splitfs_core.h"

_Static_assert(SPLITFS_CORE_COPY == SFS_PEEK_COPY, "one number under two names");
_Static_assert(SPLITFS_CORE_POOLS_END == SFS_POOL_NUMBERS, "one number under two names");

#define SAME(field)                                                                                                    \
	_Static_assert(offsetof(struct splitfs_range, field) == offsetof(struct sfs_range, field),                     \
		       "one struct, two names")
SAME(fd);
SAME(off);
SAME(buf);
SAME(len);

static int write_atomic(const struct splitfs_range *ranges, int n)
{
	return sfs_write_atomic((const struct sfs_range *)ranges, n);
}

extern const struct splitfs_core splitfs_core;
const struct splitfs_core splitfs_core __attribute__((visibility("default"))) = {
	.entries = SPLITFS_CORE_SWAP,
	.peek = sfs_peek,
	.unpeek = sfs_unpeek,
	.pool_create = sfs_pool_create,
	.pool_destroy = sfs_pool_destroy,
	.alloc = sfs_alloc,
	.free = sfs_free,
	.patch = sfs_patch,
	.write_atomic = write_atomic,
	.swap = sfs_swap,
};
