/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process is inside a splice to a file, which waits for its bytes, while another one looks at a snapshot of the file. What the kernel stores
 * then is not in the snapshot. When the splice is over the file can be looked at without a copy again.
 */
#include "peek.h"

enum { SIZE = 20 * BLOCK, N = 2 * BLOCK, TRIES = 100, LATER = 2000 };

static const void *tried(int fd, int tries)
{
	const void *p = NULL;
	size_t got;

	for (int i = 0; !p && i < tries; i++) {
		p = splitfs_peek(fd, 0, SIZE, &got);
		CHECK(p ? got == SIZE : errno == ENOTSUP);
		if (!p)
			usleep(5000);
	}
	return p;
}

static void splices(const int *pipes)
{
	const int fd = open("file", O_RDWR);
	loff_t at = BLOCK;

	CHECK(fd >= 0);
	put(fd, 1, 0, SIZE);
	CHECK(splice(pipes[0], NULL, fd, &at, N, 0) == N);
	_exit(0);
}

int main(void)
{
	static char bytes[N];
	const void *p;
	int pipes[2], fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
	pid_t pid;

	splitfs_flags(served() ? 0 : SPLITFS_COPY);
	CHECK(fd >= 0 && pipe(pipes) == 0);
	put(fd, 1, 0, SIZE);
	CHECK(close(fd) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		splices(pipes);
	usleep(300000);
	fd = open("file", O_RDWR);
	CHECK(fd >= 0);
	p = tried(fd, TRIES);
	if (p)
		expect_snapshot(p, 1, 0, SIZE);
	memset(bytes, 'z', N);
	CHECK(write(pipes[1], bytes, N) == N);
	CHECK(status_of(pid) == 0);
	if (p) {
		expect_snapshot(p, 1, 0, SIZE);
		CHECK(splitfs_unpeek(p) == 0);
	}
	p = tried(fd, LATER);
	CHECK(p && memcmp((const char *)p + BLOCK, bytes, N) == 0);
	expect_snapshot(p, 1, 0, BLOCK);
	CHECK(splitfs_unpeek(p) == 0);
	return 0;
}
