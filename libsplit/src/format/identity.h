/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who a file is, across rename and across the reuse of its inode number: inode number and a generation.
 *
 * The generation is the file system's own inode generation (FS_IOC_GETVERSION: ext4, xfs, btrfs); where there is no such call
 * (tmpfs) it is the CRC32C of the birth time (statx, seconds then nanoseconds), and 0 where there is neither. The kernel's file
 * handle holds the same number, but seccomp profiles of container runtimes refuse name_to_handle_at: library and agent must find
 * the same value, so only calls that no profile takes away are used.
 */
#ifndef SFS_IDENTITY_H
#define SFS_IDENTITY_H

#include <stdint.h>

/* Generation of the open file `fd` into *gen. Returns 0 or a negative errno value. */
int sfs_generation(int fd, uint32_t *gen);

#endif
