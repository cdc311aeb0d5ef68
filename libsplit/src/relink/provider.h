/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the providers have in common. `struct relink_range` is the caller's; a provider works on a part of it, given by the
 * offset `at` of the part in the range and its length n, both such that whole 4 KiB blocks are meant (copy takes any bytes).
 */
#ifndef SFS_RELINK_PROVIDER_H
#define SFS_RELINK_PROVIDER_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "relink/relink.h"

#define RELINK_BLOCK 4096u

/* Copy the bytes; the donor keeps its blocks. */
int relink_copy(const struct relink_range *r, uint64_t at, uint64_t n);
/* Share the blocks with the target. */
int relink_share(const struct relink_range *r, uint64_t at, uint64_t n);
/* Take them out of the donor. After an error any of them may be out of it. */
int relink_unshare(const struct relink_range *r, uint64_t at, uint64_t n);
/* Swap the blocks; the target's must be holes and inside its size. After an error nothing has been swapped. */
int relink_xfs_exchange(const struct relink_range *r, uint64_t at, uint64_t n);
/*
 * The donor has the hole then. Unless somebody who does not know of us wrote to the target's hole at this very moment: what he wrote goes, as if
 * he had been first. Whatever comes of that the target has the blocks.
 */
int relink_xfs_exchanged(const struct relink_range *r, uint64_t at, uint64_t n);
/*
 * Move the blocks and set the size, in as many transactions as the range needs: *moved says how many bytes of the part are done,
 * also after an error, *extents how many extents the target got (none where the donor had only holes). The part may end within a block
 * when the target ends there too; else -EINVAL.
 */
int relink_ext4(const struct relink_range *r, uint64_t at, uint64_t n, uint64_t *moved, uint32_t *extents);
/* Is there an ext4 that knows the call? */
bool relink_has_ext4(int fd);
/* relink_can_swap() and relink_swap() of an ext4 with the call. */
bool relink_ext4_can_swap(int fd);
int relink_ext4_swap(int fd1, uint64_t off1, int fd2, uint64_t off2, uint64_t len);
/* Is this an XFS (the numbers of ioctls mean something else elsewhere)? */
bool relink_is_xfs(int fd);

/* Make the file at least `size` bytes long, never shorter, also when another process extends it meanwhile. */
int relink_grow(int fd, uint64_t size);

#endif
