/* SPDX-License-Identifier: Apache-2.0 */
/* What is staged of a file goes into it. */
#ifndef SFS_BRING_H
#define SFS_BRING_H

#include "io/io.h"

/*
 * Relink all that is staged, in the order of the file. inode.lock held, what was staged is written back. 0, or a negative errno value: what
 * could not be brought in stays staged. What the records name may be in both places afterwards (in->counted.relinked).
 */
int sfs_bring_in(struct sfs_inode *in);
/* The journal commits what was brought in. */
int sfs_settle(const struct sfs_inode *in);

#endif
