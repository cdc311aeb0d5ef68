/* SPDX-License-Identifier: Apache-2.0 */
/* Where a file lies on its device: only what is aligned there to 2 MiB, as it is in the file, can be mapped by 2 MiB. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/fsmap.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/store.h"

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

/*
 * A group of blocks that ext4 has not looked into since the mount is passed over when it searches for aligned pieces, and it takes the
 * next best, unaligned ones of the groups it knows. Asking where the whole volume has free space makes it look everywhere; what it
 * knows then stays until the volume is unmounted, so once is enough. True when it was asked now.
 */
static bool make_free_space_known(int fd)
{
	static uint64_t known; /* device number */
	struct fsmap_head head = {
		.fmh_keys[1] = {.fmr_device = UINT32_MAX,
				.fmr_flags = UINT32_MAX,
				.fmr_physical = UINT64_MAX,
				.fmr_owner = UINT64_MAX,
				.fmr_offset = UINT64_MAX},
	};
	struct stat st;

	if (fstat(fd, &st) < 0 || __atomic_exchange_n(&known, st.st_dev, __ATOMIC_RELAXED) == st.st_dev)
		return false;
	/* Room for no records: only counted. A file system that has no such call has to do with what it knows. */
	return ioctl(fd, FS_IOC_GETFSMAP, &head) == 0;
}

/* Allocate an empty file in pieces; 1 when every unit of it can be mapped by one huge page, or nobody can tell. */
static int allocate_by(int fd, uint64_t bytes, uint64_t piece)
{
	int64_t units;

	for (uint64_t at = 0; at < bytes; at += piece)
		if (fallocate(fd, 0, (off_t)at, (off_t)piece) < 0)
			return -errno;
	units = sfs_huge_units(fd, bytes);
	if (units < 0)
		return units == -EOPNOTSUPP ? 1 : (int)units;
	return units == (int64_t)(bytes / SFS_CHUNK_ALIGN);
}

int sfs_allocate_huge(int fd, uint64_t bytes)
{
	int done = allocate_by(fd, bytes, bytes);

	if (done)
		return done < 0 ? done : 0;
	if (make_free_space_known(fd)) {
		if (ftruncate(fd, 0) < 0)
			return -errno;
		done = allocate_by(fd, bytes, bytes);
		if (done)
			return done < 0 ? done : 0;
	}
	/* No piece of that size is free and aligned: 2 MiB at a time the allocators of ext4 and XFS find what there is of such. */
	if (ftruncate(fd, 0) < 0)
		return -errno;
	done = allocate_by(fd, bytes, SFS_CHUNK_ALIGN);
	return done < 0 ? done : 0;
}
