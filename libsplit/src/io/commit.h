/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a staged write: records, block table, size. */
#ifndef SFS_COMMIT_H
#define SFS_COMMIT_H

#include "io/attempt.h"

/*
 * a->st has been placed; inode.lock held from here to sfs_commit_end(). Everything that may fail or be in the way: does the place hold, slots for
 * the records, what the blocks hold around the new bytes. Before bytes go to a block that is staged already, which readers and a relink may
 * see. 0; SFS_AGAIN: the place does not hold any more; -EAGAIN: the log is full; another negative errno value.
 */
int sfs_commit_begin(struct sfs_attempt *a);
/* The bytes are there: the records, and the write is part of the file. The bytes written, less than a->n only where there was less room. */
ssize_t sfs_commit_end(struct sfs_attempt *a);
/*
 * A write at `pos`, behind the end, makes what lies between part of the file: zeros, also in the staged last block. inode.lock held.
 */
void sfs_commit_gap(struct sfs_inode *in, uint64_t pos);
/*
 * Bytes that were copied come before the record or the size that names them, for every other thread: on arm64 another thread's fence would not
 * wait for what this one has written back, when it commits the record. On x86 the lock sees to it.
 */
void sfs_bytes_first(void);

#endif
