/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A buffer becomes a part of a file, at any offset and of any length: reads see it, the size is right, what is around it is as
 * it was. It can't be stored to any more, and stays what it is, whatever becomes of the file, until it is freed.
 */
#include "patch.h"

static int pool;

/* Of a file with pattern 1. */
static void at(off_t off, size_t n, off_t size, int synced)
{
	const off_t end = off + (off_t)n > size ? off + (off_t)n : size;
	const int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
	const void *p;

	if (size > 0)
		put(fd, 1, 0, (size_t)size);
	if (synced)
		CHECK(fsync(fd) == 0);
	p = patched(pool, fd, 2, off, n);
	CHECK(size_of(fd) == end);
	CHECK(store_faults(p) == SIGSEGV && store_faults((const char *)p + n - 1) == SIGSEGV);
	for (int round = 0; round < 2; round++) {
		expect(fd, 2, off, n);
		if (size > 0 && off > 0)
			expect(fd, 1, 0, (size_t)(off < size ? off : size));
		if (off > size)
			expect_zeros(fd, size, (size_t)(off - size));
		if (end > off + (off_t)n)
			expect(fd, 1, off + (off_t)n, (size_t)(end - off) - n);
		expect_snapshot(p, 2, off, n);
		CHECK(fsync(fd) == 0);
		CHECK(unseen_size(fd) == end);
	}
	/* What is written next is not in the buffer. */
	put(fd, 3, 0, (size_t)end);
	put(fd, 3, end, 300);
	expect_snapshot(p, 2, off, n);
	CHECK(ftruncate(fd, 5) == 0 && fsync(fd) == 0);
	expect_snapshot(p, 2, off, n);
	expect(fd, 3, 0, 5);
	CHECK(close(fd) == 0 && unlink("file") == 0);
	expect_snapshot(p, 2, off, n);
	CHECK(store_faults(p) == SIGSEGV);
	CHECK(splitfs_free((void *)p) == 0);
}

/* Many, one after the other: the pool's space comes back. */
static void again_and_again(void)
{
	const int fd = open("many", O_RDWR | O_CREAT, 0600);
	enum { N = 64 * BLOCK, ROUNDS = 400 };

	for (int i = 0; i < ROUNDS; i++) {
		const off_t off = (off_t)(i % 7) * N + i % 3 * 100;
		void *p = patched(pool, fd, (unsigned)i, off, N);

		CHECK(splitfs_free(p) == 0);
		expect(fd, (unsigned)i, off, N);
		if (i % 16 == 0)
			CHECK(fsync(fd) == 0);
	}
	CHECK(close(fd) == 0);
}

/* Small ones, and appends by write between them. */
static void mixed(void)
{
	const int fd = open("mixed", O_RDWR | O_CREAT, 0600);
	off_t end = 0;

	for (int i = 0; i < 120; i++) {
		const size_t n = (size_t)(i * 977 % 9000 + 1);

		if (i % 3 == 0) {
			CHECK(lseek(fd, 0, SEEK_END) == end);
			put(fd, 5, end, n % 200 + 1);
			end += (off_t)(n % 200) + 1;
			continue;
		}
		CHECK(splitfs_free(patched(pool, fd, 5, end, n)) == 0);
		end += (off_t)n;
		CHECK(size_of(fd) == end);
	}
	expect(fd, 5, 0, (size_t)end);
	CHECK(close(fd) == 0);
}

int main(void)
{
	static const off_t offs[] = {0, 1, BLOCK, 3 * BLOCK, 3 * BLOCK + 5, 20 * BLOCK, 23 * BLOCK + 77};
	static const size_t lens[] = {1, 100, BLOCK, BLOCK + 1, 5 * BLOCK, 5 * BLOCK + 3000, 12 * BLOCK - 5};
	static const off_t sizes[] = {0, 9 * BLOCK, 10 * BLOCK + 99};

	splitfs_flags(served() ? 0 : SPLITFS_COPY);
	pool = pool_here(8 << 20);
	for (size_t i = 0; i < sizeof(offs) / sizeof(*offs); i++)
		for (size_t k = 0; k < sizeof(lens) / sizeof(*lens); k++)
			for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
				at(offs[i], lens[k], sizes[s], (i + k + s) % 2);
	again_and_again();
	mixed();
	CHECK(splitfs_pool_destroy(pool) == 0);
	return 0;
}
