/* SPDX-License-Identifier: Apache-2.0 */
/* What libsplitfs.so finds of us. */
#include "preload.h"
#include "splitfs_core.h"

_Static_assert(SPLITFS_CORE_COPY == SFS_PEEK_COPY, "one number under two names");
_Static_assert(SPLITFS_CORE_POOLS_END == SFS_POOL_NUMBERS, "one number under two names");

extern const struct splitfs_core splitfs_core;
const struct splitfs_core splitfs_core __attribute__((visibility("default"))) = {
	.entries = SPLITFS_CORE_PATCH,
	.peek = sfs_peek,
	.unpeek = sfs_unpeek,
	.pool_create = sfs_pool_create,
	.pool_destroy = sfs_pool_destroy,
	.alloc = sfs_alloc,
	.free = sfs_free,
	.patch = sfs_patch,
};
