/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a staged write: records, block table, size. */
#ifndef SFS_COMMIT_H
#define SFS_COMMIT_H

#include "io/attempt.h"

/*
 * a->st has been placed and copied; inode.lock held. The bytes written, less than a->n only where there was less room; SFS_AGAIN: its place does
 * not hold any more; -EAGAIN: the log is full; another negative errno value.
 */
ssize_t sfs_commit_staged(struct sfs_attempt *a);
/*
 * Bytes that were copied come before the record or the size that names them, for every other thread: on arm64 another thread's fence would not
 * wait for what this one has written back, when it commits the record. On x86 the lock sees to it.
 */
void sfs_bytes_first(void);

#endif
