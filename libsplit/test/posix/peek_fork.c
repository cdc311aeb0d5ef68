/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot of before the fork is there in the child, whatever either of them does to the file, and each gives back
 * its own. A program that the child executes has none.
 */
#include "peek.h"

enum { SIZE = 20 * BLOCK };

static void child(const char *self, int fd, const void *p, const void *q)
{
	const void *mine;
	char number[32];

	expect_snapshot(p, 1, 0, SIZE);
	put(fd, 3, 0, SIZE);
	CHECK(fsync(fd) == 0);
	expect_snapshot(p, 1, 0, SIZE);
	expect_snapshot(q, 1, 77, BLOCK);
	CHECK(splitfs_unpeek(p) == 0);
	FAILS(splitfs_unpeek(p), EINVAL);
	expect_snapshot(q, 1, 77, BLOCK);
	splitfs_flags(SPLITFS_COPY);
	mine = snapshot(fd, 3, SIZE / 2 + 5, 5000); /* where the parent does not write now */
	CHECK(splitfs_unpeek(mine) == 0);
	CHECK(splitfs_unpeek(q) == 0);
	snprintf(number, sizeof(number), "%p", p);
	execl(self, self, number, NULL);
	_exit(1);
}

/* The child of before had the file, too. Its end is seen by and by; then the file is ours alone again. */
static void alone(int fd)
{
	const void *p = NULL;
	size_t got;

	for (int i = 0; !p && i < 5000; i++) {
		p = splitfs_peek(fd, 0, 1, &got);
		CHECK(p || errno == ENOTSUP);
		if (!p)
			usleep(1000);
	}
	CHECK(p && splitfs_unpeek(p) == 0);
}

int main(int argc, char **argv)
{
	const void *p, *q;
	int fd;

	if (argc > 1) {
		FAILS(splitfs_unpeek((const void *)strtoul(argv[1], NULL, 0)), EINVAL);
		return 0;
	}
	splitfs_flags(served() ? 0 : SPLITFS_COPY);
	fd = open("file", O_RDWR | O_CREAT, 0600);
	for (int round = 0; round < 3; round++) {
		pid_t pid;

		put(fd, 1, 0, SIZE);
		alone(fd);
		p = snapshot(fd, 1, 0, SIZE);
		q = snapshot(fd, 1, 77, BLOCK);
		if (round == 1)
			put(fd, 2, BLOCK, 3 * BLOCK);
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0)
			child(argv[0], fd, p, q);
		if (round == 2)
			put(fd, 4, 0, SIZE / 2);
		expect_snapshot(p, 1, 0, SIZE);
		CHECK(status_of(pid) == 0);
		expect_snapshot(p, 1, 0, SIZE);
		expect_snapshot(q, 1, 77, BLOCK);
		CHECK(splitfs_unpeek(p) == 0 && splitfs_unpeek(q) == 0);
		FAILS(splitfs_unpeek(q), EINVAL);
	}
	return 0;
}
