/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SFS_PATCH_H
#define SFS_PATCH_H

#include "io/attempt.h"

/*
 * What sfs_staged_place() is for a write from a buffer: the whole blocks where they are, the parts of blocks at either end in
 * blocks of the file's region. Errors are the same.
 */
int sfs_patch_place(struct sfs_attempt *a);

#endif
