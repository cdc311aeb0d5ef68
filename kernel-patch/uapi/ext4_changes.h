/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) */
/*
 * EXT4_IOC_CHANGES: say which ranges of a file may have changed.
 *
 * The ioctl is made on a descriptor of a regular file, by who has
 * CAP_SYS_ADMIN.  START begins to note changes in a map with one bit for each
 * unit of the file, TAKE copies the map out and clears it, STOP ends it; so does
 * the last close of the open file that has begun it.
 *
 * What TAKE returns has no gap only if the file system is frozen and the file
 * has been written back since (sync_file_range(2)), so that no page of it can be
 * stored to without a fault: what changes afterwards is in the next map.
 *
 * ext4_changes.md describes the call in full.
 */
#ifndef _UAPI_LINUX_EXT4_CHANGES_H
#define _UAPI_LINUX_EXT4_CHANGES_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define EXT4_CHANGES_VERSION	1

#define EXT4_CHANGES_START	1
#define EXT4_CHANGES_TAKE	2
#define EXT4_CHANGES_STOP	3

struct ext4_changes {
	__u32	version;	/* in: EXT4_CHANGES_VERSION */
	__u32	operation;	/* in: EXT4_CHANGES_* */
	/*
	 * out, START and TAKE: bytes of a unit, a power of two, and how many
	 * units there are; what lies behind them counts as changed
	 */
	__u64	unit;
	__u64	units;
	__u64	marked;		/* out, TAKE: how many of them may have changed */
	/*
	 * in, TAKE: address of the map, and its bytes: 8 for each 64 units, the
	 * last of which need not be all there; unit n is bit n % 8 of byte n / 8
	 */
	__u64	map;
	__u64	map_bytes;
	__u64	reserved[2];	/* in: 0 */
};

#define EXT4_IOC_CHANGES	_IOWR('f', 122, struct ext4_changes)

#endif /* _UAPI_LINUX_EXT4_CHANGES_H */
