/* SPDX-License-Identifier: Apache-2.0 */
#include "pm/huge.h"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <string.h>

#include "base/sys.h"
#include "format/layout.h"

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

struct sfs_layout sfs_layout_of(int fd, uint64_t bytes, uint32_t calls)
{
	union {
		struct fiemap map;
		char room[sizeof(struct fiemap) + EXTENTS * sizeof(struct fiemap_extent)];
	} u;
	/* The extent so far: neighbours that continue it on the device are one. */
	uint64_t logical = 0, physical = 0, length = 0;
	struct sfs_layout l = {0};
	bool last = false;

	for (; !last && l.looked < bytes && calls > 0; calls--) {
		memset(&u.map, 0, sizeof(u.map));
		u.map.fm_start = l.looked;
		u.map.fm_length = bytes - l.looked;
		u.map.fm_extent_count = EXTENTS;
		l.err = sys_ioctl(fd, FS_IOC_FIEMAP, &u.map);
		if (l.err < 0)
			return l;
		last = u.map.fm_mapped_extents == 0;
		for (uint32_t i = 0; i < u.map.fm_mapped_extents; i++) {
			const struct fiemap_extent *e = &u.map.fm_extents[i];

			if (length && e->fe_logical == logical + length && e->fe_physical == physical + length) {
				length += e->fe_length;
			} else {
				l.units += units_in(logical, physical, length);
				logical = e->fe_logical;
				physical = e->fe_physical;
				length = e->fe_flags & UNKNOWN ? 0 : e->fe_length;
			}
			l.unwritten |= (e->fe_flags & (UNKNOWN | FIEMAP_EXTENT_UNWRITTEN)) != 0;
			l.looked = e->fe_logical + e->fe_length;
			last = last || (e->fe_flags & FIEMAP_EXTENT_LAST);
		}
	}
	l.units += units_in(logical, physical, length);
	if (last || l.looked > bytes)
		l.looked = bytes;
	return l;
}
