/* SPDX-License-Identifier: Apache-2.0 */
/* What a volume's file system is, found out by trying. */
#ifndef SFS_FSPROBE_H
#define SFS_FSPROBE_H

#include <stdbool.h>

/* Does a file made in this directory map persistent memory (MAP_SYNC works and statx says DAX)? */
bool sfs_probe_dax(int dirfd);

/* Is this path (absolute, no links) the root of its file system, so that every file of the device lies below it? */
bool sfs_probe_dedicated(const char *path);

#endif
