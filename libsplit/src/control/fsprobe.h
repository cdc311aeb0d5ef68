/* SPDX-License-Identifier: Apache-2.0 */
/* What a volume's file system is, found out by trying. */
#ifndef SFS_FSPROBE_H
#define SFS_FSPROBE_H

#include <stdbool.h>

enum sfs_dax {
	SFS_DAX_NONE, /* the page cache */
	/*
	 * DAX, but MAP_SYNC is refused (virtio-pmem, dax over a device that flushes by command): no store is durable by a fence, so the
	 * volume is emulated like any other.
	 */
	SFS_DAX_UNSYNCED,
	SFS_DAX_SYNC, /* persistent memory */
};

/* What a file made in this directory maps. */
enum sfs_dax sfs_probe_dax(int dirfd);
/* The same for an open file that has a block at its start. */
enum sfs_dax sfs_probe_dax_file(int fd);

/* Is this path (absolute, no links) the root of its file system, so that every file of the device lies below it? */
bool sfs_probe_dedicated(const char *path);

/* Is this path inside a volume, by any mount of its file system? *volume: that volume's directory; to be freed. */
bool sfs_probe_inside(const char *path, char **volume);

#endif
