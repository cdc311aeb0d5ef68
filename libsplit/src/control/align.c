/* SPDX-License-Identifier: Apache-2.0 */
/* Staging files that can be mapped by 2 MiB. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/fsmap.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/store.h"
#include "pm/huge.h"
#include "pm/map.h"

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
	struct sfs_layout l;

	for (uint64_t at = 0; at < bytes; at += piece)
		if (fallocate(fd, 0, (off_t)at, (off_t)piece) < 0)
			return -errno;
	l = sfs_layout_of(fd, bytes, UINT32_MAX);
	if (l.err < 0)
		return l.err == -EOPNOTSUPP ? 1 : l.err;
	return l.units == bytes / SFS_CHUNK_ALIGN;
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

bool sfs_write_huge(int fd, uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct sfs_layout l = {.unwritten = true};

	if (p == MAP_FAILED)
		return false;
	if (sfs_map_populate(p, bytes) == 0)
		l = sfs_layout_of(fd, bytes, UINT32_MAX);
	munmap(p, bytes);
	return l.err == 0 && l.looked == bytes && !l.unwritten;
}
