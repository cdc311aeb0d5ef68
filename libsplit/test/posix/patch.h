/* SPDX-License-Identifier: Apache-2.0 */
/* For programs of splitfs_patch(3). On the plain kernel buffers are copied. */
#ifndef SFS_TEST_POSIX_PATCH_H
#define SFS_TEST_POSIX_PATCH_H

#include "peek.h"

/* A pool of the volume that the working directory is on. */
static inline int pool_here(size_t size)
{
	const int dir = open(".", O_RDONLY | O_DIRECTORY);
	const int pool = splitfs_pool_create(dir, size);

	CHECK(dir >= 0 && pool >= 0 && close(dir) == 0);
	return pool;
}

/* A buffer with pattern `seed` of [off, off + n). */
static inline void *filled(int pool, unsigned seed, off_t off, size_t n)
{
	unsigned char *p = splitfs_alloc(pool, off, n);

	CHECK(p && ((uintptr_t)p ^ (uintptr_t)off) % BLOCK == 0);
	fill(p, n, seed, (uint64_t)off);
	return p;
}

/* The file has pattern `seed` at [off, off + n) by a patch. Returns the buffer. */
static inline void *patched(int pool, int fd, unsigned seed, off_t off, size_t n)
{
	void *p = filled(pool, seed, off, n);

	CHECK(splitfs_patch(fd, p, n, off) == (ssize_t)n);
	expect_snapshot(p, seed, off, n);
	return p;
}

#endif
