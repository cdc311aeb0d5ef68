/* SPDX-License-Identifier: Apache-2.0 */
/*
 * On persistent memory most of a file that was written from its beginning to its end can be mapped by pages of 2 MiB, however often it was
 * forced meanwhile.
 */
#include "check.h"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/stat.h>
#include <sys/ioctl.h>

enum { BLOCK = 4096, UNIT = 2 << 20, BLOCKS = 12 * 1024, EXTENTS = 500 };

static const char block[BLOCK] = "x";

static union {
	struct fiemap map;
	char room[sizeof(struct fiemap) + EXTENTS * sizeof(struct fiemap_extent)];
} u;

/* Units of the file that lie in one piece and aligned on the device. */
static unsigned units(int fd)
{
	uint64_t begin = 0, end = 0, shift = 0;
	unsigned n = 0;

	u.map.fm_length = FIEMAP_MAX_OFFSET;
	u.map.fm_extent_count = EXTENTS;
	CHECK(ioctl(fd, FS_IOC_FIEMAP, &u.map) == 0 && u.map.fm_mapped_extents < EXTENTS);
	for (unsigned i = 0; i <= u.map.fm_mapped_extents; i++) {
		const struct fiemap_extent *e = &u.map.fm_extents[i];

		if (i < u.map.fm_mapped_extents && i > 0 && e->fe_logical == end && e->fe_physical - e->fe_logical == shift) {
			end += e->fe_length;
			continue;
		}
		for (uint64_t at = (begin + UNIT - 1) / UNIT * UNIT; shift % UNIT == 0 && at + UNIT <= end; at += UNIT)
			n++;
		begin = e->fe_logical;
		end = begin + e->fe_length;
		shift = e->fe_physical - e->fe_logical;
	}
	return n;
}

int main(void)
{
	struct statx st;
	int fd, other;

	fd = open("one", O_RDWR | O_CREAT | O_TRUNC, 0600);
	other = open("other", O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(fd >= 0 && other >= 0);
	if (statx(fd, "", AT_EMPTY_PATH, 0, &st) < 0 || !(st.stx_attributes & STATX_ATTR_DAX))
		SKIP("no persistent memory");
	if (!getenv("LD_PRELOAD"))
		SKIP("where the kernel lays a file is the kernel's");
	for (int i = 0; i < BLOCKS; i++) {
		CHECK(write(fd, block, BLOCK) == BLOCK);
		if (i % 50 == 49)
			CHECK(fsync(fd) == 0);
		if (i % 500 == 0)
			CHECK(pwrite(other, block, 100, 0) == 100);
	}
	CHECK(fsync(fd) == 0 && close(fd) == 0);
	fd = open("one", O_RDONLY);
	printf("%u of %u units\n", units(fd), BLOCKS * (BLOCK / 1024) / (UNIT / 1024));
	fflush(stdout);
	CHECK(units(fd) * 2 > BLOCKS * (BLOCK / 1024) / (UNIT / 1024));
	return 0;
}
