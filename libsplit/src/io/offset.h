/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file offset of a write that is made at it. It moves when the write ends; but at once where the bytes are the file's from the moment they
 * are stored, and where other processes move it: then it is reserved.
 */
#ifndef SFS_OFFSET_H
#define SFS_OFFSET_H

#include "io/attempt.h"

/* The offset, wherever it is kept. */
off_t sfs_offset_now(const struct sfs_attempt *a);
/* Unless the description was closed meanwhile. */
void sfs_offset_set(const struct sfs_attempt *a, off_t to);
/* The kernel has written at its own offset, which becomes ours: that of the last call where several threads make such calls. Returns it. */
off_t sfs_offset_adopt(const struct sfs_attempt *a);
/* a->pos becomes it, and it is reserved where others move it; nothing of an append. 0, or a negative errno value. */
int sfs_attempt_offset(struct sfs_attempt *a);
/* It moves behind the bytes that are about to be written. Not of an append: where that goes only its end tells. */
void sfs_attempt_reserve(struct sfs_attempt *a);
/* The operation has ended with r, as sfs_attempt() says it: what the offset was advanced by too much is taken back. */
void sfs_attempt_settle(struct sfs_attempt *a, ssize_t r);

#endif
