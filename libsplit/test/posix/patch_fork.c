/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child of fork has none of its parent's pools and buffers, and may have its own; the parent goes on with its own. What was
 * patched before is in the file for both, and for a program that is executed.
 */
#include "patch.h"

enum { N = 6 * BLOCK + 100 };

static void child(int pool, int fd, void *open_one, void *patched_one)
{
	int mine;
	void *p;

	FAILS(splitfs_free(open_one), EINVAL);
	FAILS(splitfs_patch(fd, open_one, N, 0), EINVAL);
	FAILS(splitfs_free(patched_one), EINVAL);
	errno = 0;
	CHECK(splitfs_alloc(pool, 0, 1) == NULL && errno == EINVAL);
	FAILS(splitfs_pool_destroy(pool), EINVAL);
	expect(fd, 1, 300, N);
	mine = pool_here(1 << 20);
	p = patched(mine, fd, 3, 20 * BLOCK, N);
	expect(fd, 3, 20 * BLOCK, N);
	CHECK(splitfs_free(p) == 0 && splitfs_pool_destroy(mine) == 0);
	_exit(0);
}

static void executed(int fd)
{
	const pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		char number[16];

		snprintf(number, sizeof(number), "%d", fd);
		execl("/proc/self/exe", "patch_fork", number, NULL);
		_exit(1);
	}
	CHECK(status_of(pid) == 0);
}

int main(int argc, char **argv)
{
	void *p, *q;
	pid_t pid;
	int fd, pool;

	if (argc > 1) {
		expect(atoi(argv[1]), 1, 300, N);
		expect(atoi(argv[1]), 2, 40 * BLOCK, N);
		return 0;
	}
	splitfs_flags(served() ? 0 : SPLITFS_COPY);
	fd = open("file", O_RDWR | O_CREAT, 0600);
	pool = pool_here(1 << 20);
	p = filled(pool, 2, 40 * BLOCK, N);
	q = patched(pool, fd, 1, 300, N);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		child(pool, fd, p, q);
	CHECK(status_of(pid) == 0);
	expect(fd, 3, 20 * BLOCK, N);
	expect_snapshot(q, 1, 300, N);
	expect_snapshot(p, 2, 40 * BLOCK, N);
	CHECK(splitfs_patch(fd, p, N, 40 * BLOCK) == N);
	executed(fd);
	expect_snapshot(p, 2, 40 * BLOCK, N);
	CHECK(splitfs_free(p) == 0 && splitfs_free(q) == 0 && splitfs_pool_destroy(pool) == 0);
	return 0;
}
