/* SPDX-License-Identifier: Apache-2.0 */
/* Where a file lies on its device: only what is aligned there to 2 MiB, as it is in the file, can be mapped by 2 MiB. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "volume/store.h"

#define EXTENTS 64
#define UNKNOWN (FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_NOT_ALIGNED)

/* Whole units in an extent that lies at `physical`. */
static uint64_t units_in(uint64_t logical, uint64_t physical, uint64_t length)
{
	const uint64_t skip = -logical & (SFS_CHUNK_ALIGN - 1);

	if ((logical ^ physical) & (SFS_CHUNK_ALIGN - 1) || length < skip)
		return 0;
	return (length - skip) / SFS_CHUNK_ALIGN;
}

int64_t sfs_huge_units(int fd, uint64_t bytes)
{
	union {
		struct fiemap map;
		char room[sizeof(struct fiemap) + EXTENTS * sizeof(struct fiemap_extent)];
	} u;
	/* The extent so far: neighbours that continue it on the device are one. */
	uint64_t logical = 0, physical = 0, length = 0, units = 0, at = 0;
	bool last = false;

	while (!last && at < bytes) {
		memset(&u.map, 0, sizeof(u.map));
		u.map.fm_start = at;
		u.map.fm_length = bytes - at;
		u.map.fm_extent_count = EXTENTS;
		if (ioctl(fd, FS_IOC_FIEMAP, &u.map) < 0)
			return -errno;
		if (u.map.fm_mapped_extents == 0)
			break;
		for (uint32_t i = 0; i < u.map.fm_mapped_extents; i++) {
			const struct fiemap_extent *e = &u.map.fm_extents[i];

			if (length && e->fe_logical == logical + length && e->fe_physical == physical + length) {
				length += e->fe_length;
			} else {
				units += units_in(logical, physical, length);
				logical = e->fe_logical;
				physical = e->fe_physical;
				length = e->fe_flags & UNKNOWN ? 0 : e->fe_length;
			}
			at = e->fe_logical + e->fe_length;
			last = last || (e->fe_flags & FIEMAP_EXTENT_LAST);
		}
	}
	return (int64_t)(units + units_in(logical, physical, length));
}

int sfs_allocate_huge(int fd, uint64_t bytes)
{
	const int64_t all = (int64_t)(bytes / SFS_CHUNK_ALIGN);
	int64_t units;

	if (fallocate(fd, 0, 0, (off_t)bytes) < 0)
		return -errno;
	units = sfs_huge_units(fd, bytes);
	if (units == all || units == -EOPNOTSUPP)
		return 0;
	if (units < 0)
		return (int)units;
	/*
	 * No piece of that size is free and aligned. Asked for 2 MiB at a time, the allocators of ext4 and XFS find what there is of
	 * such pieces.
	 */
	if (ftruncate(fd, 0) < 0)
		return -errno;
	for (uint64_t at = 0; at < bytes; at += SFS_CHUNK_ALIGN)
		if (fallocate(fd, 0, (off_t)at, SFS_CHUNK_ALIGN) < 0)
			return -errno;
	return 0;
}
