/* SPDX-License-Identifier: Apache-2.0 */
/*
 * So many calls of splitfs.h, for test/agent/test_counted, which asks splitfs status how many there were. What is refused, and what has no
 * bytes, counts as nothing.
 */
#include <string.h>

#include "patch.h"

enum { PATCHES = 5, SWAPS = 3, ATOMIC = 4, PEEKS = 6, N = 4 * BLOCK };

static int strict(void)
{
	const char *config = getenv("SPLITFS_CONFIG");

	return config && strncmp(config, "strict:", 7) == 0;
}

static void patches(int fd)
{
	const int pool = pool_here(8 << 20);
	void *p;

	for (int i = 0; i < PATCHES; i++)
		CHECK(splitfs_free(patched(pool, fd, (unsigned)i, i * N, N)) == 0);
	/* Three whole blocks, and a part of one at either end. */
	CHECK(splitfs_free(patched(pool, fd, 9, 100, N)) == 0);
	/* None that is whole. */
	CHECK(splitfs_free(patched(pool, fd, 9, 50, 100)) == 0);
	p = filled(pool, 1, 0, BLOCK);
	FAILS(splitfs_patch(-1, p, BLOCK, 0), EBADF);
	CHECK(splitfs_patch(fd, p, 0, 0) == 0);
	CHECK(splitfs_free(p) == 0);
	CHECK(splitfs_pool_destroy(pool) == 0);
}

static void swaps(int a, int b)
{
	for (int i = 0; i < SWAPS; i++)
		CHECK(splitfs_swap(a, 0, b, 0, N) == 0);
	CHECK(splitfs_swap(a, 3, b, 7, 11) == 0);
	CHECK(splitfs_swap(a, 0, b, 0, 0) == 0);
	FAILS(splitfs_swap(a, 0, a, BLOCK, BLOCK), EINVAL);
}

static void atomic(int a, int b)
{
	const struct splitfs_range r[2] = {{a, 0, "one", 3}, {b, 5000, "other", 5}};

	if (!strict())
		return;
	for (int i = 0; i < ATOMIC; i++)
		CHECK(splitfs_write_atomic(r, 2) == 0);
	FAILS(splitfs_write_atomic(r, 0), EINVAL);
}

/* `--then COMMAND...`: run by a child while this process, and what it has counted, is there. */
static int then(char **command)
{
	const pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		execv(command[0], command);
		_exit(127);
	}
	return status_of(pid);
}

int main(int argc, char **argv)
{
	const int a = open("a", O_RDWR | O_CREAT, 0600), b = open("b", O_RDWR | O_CREAT, 0600);
	const void *p;
	size_t got;

	splitfs_flags(served() ? 0 : SPLITFS_COPY);
	put(a, 1, 0, PATCHES * N);
	put(b, 2, 0, PATCHES * N);
	for (int i = 0; i < PEEKS; i++) {
		p = splitfs_peek(b, 0, N, &got);
		CHECK(p && got == N && splitfs_unpeek(p) == 0);
	}
	patches(a);
	/* An agent of the last release has no swaps. */
	if (!served() || (argc > 1 && strcmp(argv[1], "--patches") == 0))
		return 0;
	swaps(a, b);
	atomic(a, b);
	return argc > 2 ? then(argv + 2) : 0;
}
