/* SPDX-License-Identifier: Apache-2.0 */
/* What libsplitfs.so finds of us. */
#include "preload.h"
#include "splitfs_core.h"

_Static_assert(SPLITFS_CORE_COPY == SFS_PEEK_COPY, "one number under two names");

extern const struct splitfs_core splitfs_core;
const struct splitfs_core splitfs_core __attribute__((visibility("default"))) = {
	.entries = SPLITFS_CORE_PEEK,
	.peek = sfs_peek,
	.unpeek = sfs_unpeek,
};
