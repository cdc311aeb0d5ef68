/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a file has data, for who drops what it has not. For blocks that are allocated and were never written the kernel looks at the
 * extents first and at the pages in memory after that: what is written back and dropped from memory between the two is taken for a hole
 * (ext4 and XFS, seen on Linux 6.18). Its extent says data from then on, so nothing is a hole before it was called one twice.
 */
#ifndef SFS_HOLES_H
#define SFS_HOLES_H

#include <sys/types.h>

/* As lseek(SEEK_DATA) and lseek(SEEK_HOLE); errors are negative errno values, -ENXIO: there is none. */
off_t sfs_seek_data(int fd, off_t at);
/* A hole behind data may be reported too early; what SEEK_DATA says about it is right. One at `at` itself is there. */
off_t sfs_seek_hole(int fd, off_t at);

#endif
