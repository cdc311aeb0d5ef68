/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who a file is, across rename and across the reuse of its inode number: inode number and a generation. The generation is the
 * CRC32C of the kernel's file handle (name_to_handle_at: handle type, then handle bytes), which contains the file system's own
 * inode generation; where the file system has no handles it is the CRC32C of the birth time (statx, seconds then
 * nanoseconds), and 0 where it has neither.
 */
#ifndef SFS_IDENTITY_H
#define SFS_IDENTITY_H

#include <stdint.h>

/* Generation of the open file `fd` into *gen. Returns 0 or a negative errno value. */
int sfs_generation(int fd, uint32_t *gen);

#endif
