/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong has an errno, and nothing is lost by it. */
#include <sys/mman.h>
#include <sys/resource.h>

#include "patch.h"

#define ALLOC_FAILS(pool, off, len, err)                                                                                       \
	do {                                                                                                                   \
		errno = 0;                                                                                                     \
		CHECK(splitfs_alloc(pool, off, len) == NULL && errno == (err));                                                \
	} while (0)

static void pools(void)
{
	const int dir = open(".", O_RDONLY | O_DIRECTORY), proc = open("/proc/self", O_RDONLY | O_DIRECTORY);
	int pool, other, pipes[2];
	void *p, *q;

	CHECK(dir >= 0 && proc >= 0 && pipe(pipes) == 0);
	FAILS(splitfs_pool_create(-1, BLOCK), EBADF);
	FAILS(splitfs_pool_create(dir, 0), EINVAL);
	FAILS(splitfs_pool_create(dir, (size_t)SSIZE_MAX + 1), EINVAL);
	splitfs_flags(0);
	FAILS(splitfs_pool_create(proc, BLOCK), ENOTSUP);
	FAILS(splitfs_pool_create(pipes[0], BLOCK), ENOTSUP);
	splitfs_flags(served() ? 0 : SPLITFS_COPY);
	pool = splitfs_pool_create(dir, 4 * BLOCK);
	CHECK(pool > 0);
	FAILS(splitfs_pool_destroy(pool + 1), EINVAL);
	FAILS(splitfs_pool_destroy(-1), EINVAL);
	FAILS(splitfs_pool_destroy(0), EINVAL);
	ALLOC_FAILS(pool + 1, 0, 1, EINVAL);
	ALLOC_FAILS(pool, -1, 1, EINVAL);
	ALLOC_FAILS(pool, 0, 0, EINVAL);
	ALLOC_FAILS(pool, 0, (size_t)SSIZE_MAX + 1, EINVAL);
	ALLOC_FAILS(pool, 0, SIZE_MAX, EINVAL);
	ALLOC_FAILS(pool, 0, 4 * BLOCK + 1, ENOSPC);
	/* A byte of a block is a block. */
	ALLOC_FAILS(pool, 1, 4 * BLOCK, ENOSPC);
	p = splitfs_alloc(pool, 4095, 2);
	q = splitfs_alloc(pool, 0, 2 * BLOCK);
	CHECK(p && q);
	ALLOC_FAILS(pool, 0, 1, ENOSPC);
	FAILS(splitfs_pool_destroy(pool), EBUSY);
	FAILS(splitfs_free((char *)p + 1), EINVAL);
	FAILS(splitfs_free(&p), EINVAL);
	FAILS(splitfs_free(NULL), EINVAL);
	CHECK(splitfs_free(q) == 0);
	FAILS(splitfs_free(q), EINVAL);
	CHECK(splitfs_free(p) == 0);
	other = splitfs_pool_create(dir, BLOCK);
	CHECK(other > 0 && other != pool && splitfs_pool_destroy(pool) == 0 && splitfs_pool_destroy(other) == 0);
	FAILS(splitfs_pool_destroy(pool), EINVAL);
	ALLOC_FAILS(pool, 0, 1, EINVAL);
	CHECK(close(dir) == 0 && close(proc) == 0 && close(pipes[0]) == 0 && close(pipes[1]) == 0);
}

/* The descriptor. The buffer stays one to be stored to. */
static void descriptors(int pool)
{
	const int fd = open("file", O_RDWR | O_CREAT, 0600), in = open("file", O_RDONLY), path = open("file", O_PATH),
		  append = open("file", O_WRONLY | O_APPEND), shm = open("/dev/shm", O_RDWR | O_TMPFILE, 0600);
	char *p = filled(pool, 2, 0, 2 * BLOCK);

	put(fd, 1, 0, 3 * BLOCK);
	FAILS(splitfs_patch(-1, p, BLOCK, 0), EBADF);
	FAILS(splitfs_patch(999, p, BLOCK, 0), EBADF);
	FAILS(splitfs_patch(in, p, BLOCK, 0), EBADF);
	FAILS(splitfs_patch(path, p, BLOCK, 0), EBADF);
	FAILS(splitfs_patch(append, p, BLOCK, 0), EINVAL);
	/* Of another volume, or of none. */
	if (served() && shm >= 0)
		FAILS(splitfs_patch(shm, p, BLOCK, 0), EXDEV);
	expect(fd, 1, 0, 3 * BLOCK);
	CHECK(store_faults(p) == 0);
	CHECK(splitfs_free(p) == 0 && close(fd) == 0 && close(in) == 0 && close(path) == 0 && close(append) == 0);
	CHECK(shm < 0 || close(shm) == 0);
}

/* What is to be patched. */
static void buffers(int pool)
{
	const int fd = open("file", O_RDWR);
	char *p = filled(pool, 2, BLOCK + 8, 2 * BLOCK), mine[BLOCK];
	const void *look;

	FAILS(splitfs_patch(fd, mine, 8, BLOCK), EINVAL);
	FAILS(splitfs_patch(fd, NULL, 8, BLOCK), EINVAL);
	FAILS(splitfs_patch(fd, p + 1, 8, BLOCK + 9), EINVAL);
	FAILS(splitfs_patch(fd, p, 2 * BLOCK + 1, BLOCK + 8), EINVAL);
	FAILS(splitfs_patch(fd, p, (size_t)SSIZE_MAX + 1, 8), EINVAL);
	FAILS(splitfs_patch(fd, p, SIZE_MAX, 8), EINVAL);
	FAILS(splitfs_patch(fd, p, 8, 9), EINVAL);
	FAILS(splitfs_patch(fd, p, 8, -BLOCK + 8), EINVAL);
	CHECK(splitfs_patch(fd, p, 0, 8) == 0);
	expect(fd, 1, 0, 3 * BLOCK);
	CHECK(store_faults(p) == 0);
	p[0] = (char)byte_at(2, BLOCK + 8);
	/* A snapshot is no buffer. */
	look = splitfs_peek(fd, 0, BLOCK, &(size_t){0});
	CHECK(look || served());
	if (look) {
		FAILS(splitfs_patch(fd, (void *)look, BLOCK, 0), EINVAL);
		FAILS(splitfs_free((void *)look), EINVAL);
		CHECK(splitfs_unpeek(look) == 0);
	}
	FAILS(splitfs_unpeek(p), EINVAL);
	/* Twice; and what was freed. */
	CHECK(splitfs_patch(fd, p, 2 * BLOCK, BLOCK + 8) == 2 * BLOCK);
	FAILS(splitfs_patch(fd, p, 2 * BLOCK, BLOCK + 8), EINVAL);
	FAILS(pread(fd, p, 8, 0), EFAULT);
	FAILS(splitfs_unpeek(p), EINVAL);
	CHECK(splitfs_free(p) == 0);
	FAILS(splitfs_patch(fd, p, 8, 8), EINVAL);
	expect(fd, 2, BLOCK + 8, 2 * BLOCK);
	expect(fd, 1, 0, BLOCK + 8);
	CHECK(close(fd) == 0);
}

/* A file may be no longer: less than the buffer, or an error, as pwrite(2) says it. */
static void limits(int pool)
{
	const int fd = open("limit", O_RDWR | O_CREAT, 0600);
	struct rlimit old, rl;
	char *p = filled(pool, 2, BLOCK, 3 * BLOCK);

	CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
	rl = (struct rlimit){2 * BLOCK, old.rlim_max};
	CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &rl) == 0);
	FAILS(splitfs_patch(fd, p, BLOCK, 2 * BLOCK), EFBIG);
	CHECK(store_faults(p) == 0);
	p[0] = (char)byte_at(2, BLOCK);
	CHECK(splitfs_patch(fd, p, 3 * BLOCK, BLOCK) == BLOCK);
	CHECK(store_faults(p) == SIGSEGV);
	CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0 && size_of(fd) == 2 * BLOCK);
	expect(fd, 2, BLOCK, BLOCK);
	CHECK(splitfs_free(p) == 0 && close(fd) == 0);
	p = filled(pool, 2, 0, BLOCK);
	FAILS(splitfs_patch(open("limit", O_WRONLY), p, BLOCK, (off_t)(INT64_MAX - BLOCK + 1)), served() ? EFBIG : EINVAL);
	CHECK(splitfs_free(p) == 0);
}

int main(void)
{
	int pool;

	splitfs_flags(served() ? 0 : SPLITFS_COPY);
	pools();
	pool = pool_here(1 << 20);
	descriptors(pool);
	buffers(pool);
	limits(pool);
	CHECK(splitfs_pool_destroy(pool) == 0);
	return 0;
}
