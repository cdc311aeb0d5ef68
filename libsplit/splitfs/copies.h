/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots that are copies, in memory of their own. Any thread, also in a signal handler and in the child of a fork:
 * nothing is locked.
 */
#ifndef SPLITFS_COPIES_H
#define SPLITFS_COPIES_H

#include <stddef.h>
#include <sys/types.h>

/* A copy of the range, or NULL with errno. Where *got is 0 it is an address all the same. */
const void *splitfs_copy_peek(int fd, off_t off, size_t len, size_t *got);
/* What an empty snapshot is; it is given back as any other. */
const void *splitfs_copy_empty(void);
/* 0, or -1 with EINVAL. */
int splitfs_copy_unpeek(const void *p);

#endif
