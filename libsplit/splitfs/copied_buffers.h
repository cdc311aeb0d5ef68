/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools and buffers where there is no volume: memory of the process, and a patch is a pwrite(2). Functions return negative errno
 * values; -EINVAL for what is none of these. Any thread, also in a signal handler: nothing is locked. A child of a fork has none.
 */
#ifndef SPLITFS_COPIED_BUFFERS_H
#define SPLITFS_COPIED_BUFFERS_H

#include <stddef.h>
#include <sys/types.h>

int splitfs_copied_pool(size_t size);
int splitfs_copied_pool_end(int pool);
int splitfs_copied_alloc(int pool, off_t off, size_t len, void **p);
int splitfs_copied_free(void *buf);
ssize_t splitfs_copied_patch(int fd, void *buf, size_t len, off_t off);

#endif
