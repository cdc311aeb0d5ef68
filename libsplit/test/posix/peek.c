/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot is what pread would give, at any alignment, past the end and over holes; where the library serves the
 * file it is the file's own memory. A store to it is SIGSEGV. Pieces come as an iovec. Both ways at once with read
 * and write.
 */
#include "peek.h"

static void ranges(int fd, size_t size)
{
	const struct {
		off_t off;
		size_t len, got;
	} r[] = {
		{0, size, size},
		{0, 1, 1},
		{1, BLOCK, BLOCK},
		{BLOCK - 1, 2, 2},
		{12345, 54321, 54321},
		{(off_t)size - 7, 100, 7},
		{(off_t)size, 10, 0},
		{(off_t)size + 100000, 10, 0},
		{100, 0, 0},
		{3, SSIZE_MAX, size - 3},
		{INT64_MAX - 10, 100, 0},
	};

	for (size_t i = 0; i < sizeof(r) / sizeof(r[0]); i++) {
		size_t got = 99;
		const void *p = splitfs_peek(fd, r[i].off, r[i].len, &got);
		struct iovec iov[2];
		int n;

		CHECK(p && got == r[i].got);
		expect_snapshot(p, 1, r[i].off, got);
		if (served() && got)
			CHECK(in_file(p, fd));
		if (got)
			CHECK(store_faults(p) == SIGSEGV && store_faults((const char *)p + got - 1) == SIGSEGV);
		n = splitfs_peekv(fd, r[i].off, r[i].len, iov, 2, &got);
		CHECK(n == (r[i].got > 0) && got == r[i].got);
		if (n)
			expect_snapshot(iov[0].iov_base, 1, r[i].off, iov[0].iov_len);
		if (n)
			CHECK(iov[0].iov_len == got && splitfs_unpeek(iov[0].iov_base) == 0);
		CHECK(splitfs_unpeek(p) == 0);
	}
}

static void holes(void)
{
	int fd = open("holes", O_RDWR | O_CREAT, 0600);
	const char *p;
	size_t got;

	put(fd, 2, 1 << 20, 5000);
	CHECK(ftruncate(fd, 2 << 20) == 0);
	p = splitfs_peek(fd, (1 << 20) - 5000, 20000, &got);
	CHECK(p && got == 20000);
	for (int i = 0; i < 5000; i++)
		CHECK(p[i] == 0 && p[10000 + i] == 0);
	expect_snapshot(p + 5000, 2, 1 << 20, 5000);
	CHECK(store_faults(p) == SIGSEGV);
	CHECK(splitfs_unpeek(p) == 0);
	CHECK(close(fd) == 0);
}

/* What was written a moment ago, also at the end of the file in the middle of a block. */
static void fresh(void)
{
	int fd = open("fresh", O_RDWR | O_CREAT | O_APPEND, 0600);
	const void *p[50];
	off_t size = 0;

	for (int i = 0; i < 50; i++) {
		put(fd, 3, size, 777);
		size += 777;
		p[i] = snapshot(fd, 3, 0, (size_t)size);
	}
	for (int i = 0; i < 50; i++) {
		expect_snapshot(p[i], 3, 0, (size_t)(i + 1) * 777);
		CHECK(splitfs_unpeek(p[i]) == 0);
	}
	expect(fd, 3, 0, (size_t)size);
	CHECK(close(fd) == 0);
}

int main(void)
{
	const size_t size = 3 * 100000;
	int fd = open("file", O_RDWR | O_CREAT, 0600), again;

	CHECK(fd >= 0 && splitfs_flags(served() ? 0 : SPLITFS_COPY) == 0);
	put(fd, 1, 0, size);
	ranges(fd, size);
	again = open("file", O_RDONLY);
	CHECK(again >= 0);
	ranges(again, size);
	CHECK(close(again) == 0 && close(fd) == 0);
	fd = open("file", O_RDONLY);
	ranges(fd, size);
	holes();
	fresh();
	return 0;
}
