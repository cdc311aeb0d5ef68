/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where ext4 has our call, splitfs_swap(3) of whole blocks exchanges them: each file has the other's, and more than what would be copied
 * goes, too. Elsewhere it may be copied, and then so much is E2BIG.
 */
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>

#include "../../../kernel-patch/uapi/ext4_relink.h"
#include "peek.h"

#define MIB   (1ul << 20)
#define LARGE (80 * MIB) /* more than is copied */

static int exchanges(int fd)
{
	struct ext4_relink x = {.version = EXT4_RELINK_VERSION, .flags = EXT4_RELINK_QUERY};
	struct statfs fs;

	CHECK(fstatfs(fd, &fs) == 0);
	return fs.f_type == EXT4_SUPER_MAGIC && ioctl(fd, EXT4_IOC_RELINK, &x) == 0 && x.known_flags & EXT4_RELINK_EXCHANGE;
}

/* Where the file's block at `off` is on the device. */
static uint64_t block_of(int fd, uint64_t off)
{
	struct {
		struct fiemap map;
		struct fiemap_extent extent;
	} f = {.map = {.fm_start = off, .fm_length = BLOCK, .fm_flags = FIEMAP_FLAG_SYNC, .fm_extent_count = 1}};

	CHECK(ioctl(fd, FS_IOC_FIEMAP, &f) == 0 && f.map.fm_mapped_extents == 1 && f.extent.fe_logical <= off);
	return f.extent.fe_physical + (off - f.extent.fe_logical);
}

static void expect_blocks(int a, int b)
{
	const uint64_t of_a[] = {block_of(a, 0), block_of(a, 2 * BLOCK)}, of_b[] = {block_of(b, 0), block_of(b, 5 * BLOCK)};

	CHECK(splitfs_swap(a, 2 * BLOCK, b, 5 * BLOCK, 2 * BLOCK) == 0);
	CHECK(block_of(a, 0) == of_a[0] && block_of(b, 0) == of_b[0]);
	CHECK(block_of(a, 2 * BLOCK) == of_b[1] && block_of(b, 5 * BLOCK) == of_a[1]);
}

/* What is staged goes along, and what is written afterwards is where it belongs. */
static void staged_too(int a, int b)
{
	const off_t end = size_of(a);

	put(a, 7, end, 3 * BLOCK);
	CHECK(splitfs_swap(a, end, b, BLOCK, 3 * BLOCK) == 0);
	put(a, 8, end + BLOCK, BLOCK);
	put(b, 9, 2 * BLOCK, BLOCK);
	CHECK(fsync(a) == 0 && fsync(b) == 0);
	expect(a, 8, end + BLOCK, BLOCK);
	expect(b, 9, 2 * BLOCK, BLOCK);
	for (int i = 0; i < 3; i += 2) {
		unsigned char was[BLOCK], is[BLOCK];

		fill(was, BLOCK, 7, (uint64_t)end + (uint64_t)i * BLOCK);
		CHECK(pread(b, is, BLOCK, (i + 1) * BLOCK) == BLOCK && memcmp(was, is, BLOCK) == 0);
		fill(was, BLOCK, 2, (uint64_t)(i + 1) * BLOCK);
		CHECK(pread(a, is, BLOCK, end + i * BLOCK) == BLOCK && memcmp(was, is, BLOCK) == 0);
	}
	CHECK(ftruncate(a, end) == 0);
}

int main(void)
{
	const int a = open("a", O_RDWR | O_CREAT, 0600), b = open("b", O_RDWR | O_CREAT, 0600);

	if (!served()) {
		FAILS(splitfs_swap(a, 0, b, 0, 0), ENOTSUP);
		return 0;
	}
	put(a, 1, 0, 16 * BLOCK);
	put(b, 2, 0, 16 * BLOCK);
	CHECK(fsync(a) == 0 && fsync(b) == 0);
	staged_too(a, b);
	if (fallocate(a, 0, 0, LARGE) < 0 || fallocate(b, 0, 0, LARGE) < 0)
		SKIP("no room for two files of 80 MiB");
	put(a, 3, 0, 16 * BLOCK);
	put(b, 4, 0, 16 * BLOCK);
	put(a, 3, LARGE - BLOCK, BLOCK);
	CHECK(fsync(a) == 0 && fsync(b) == 0);
	if (exchanges(a))
		expect_blocks(a, b);
	put(a, 3, 0, 16 * BLOCK);
	put(b, 4, 0, 16 * BLOCK);
	if (splitfs_swap(a, 0, b, 0, LARGE) < 0) {
		CHECK(errno == E2BIG && !exchanges(a));
		expect(a, 3, 0, 16 * BLOCK);
		expect(b, 4, 0, 16 * BLOCK);
		return 0;
	}
	expect(b, 3, 0, 16 * BLOCK);
	expect(b, 3, LARGE - BLOCK, BLOCK);
	expect(a, 4, 0, 16 * BLOCK);
	expect_zeros(a, LARGE - BLOCK, BLOCK);
	return 0;
}
