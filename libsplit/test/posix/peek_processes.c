/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another process changes the file while this one looks at a snapshot of it: one with the library, one without, one
 * by truncation. The snapshot stays. Of a file that others have, too, snapshots may be copies.
 */
#include "peek.h"

enum { SIZE = 30 * BLOCK + 5 };

static void changes(void)
{
	int fd = open("file", O_RDWR);

	CHECK(fd >= 0);
	put(fd, 2, 0, 20 * BLOCK);
	CHECK(ftruncate(fd, 25 * BLOCK + 1) == 0);
	put(fd, 2, 25 * BLOCK + 1, 100);
	CHECK(close(fd) == 0);
	_exit(0);
}

/* No library sees these calls. */
static void changes_unseen(void)
{
	int fd = (int)unseen(SYS_openat, AT_FDCWD, (long)"file", O_RDWR, 0);
	char buf[3 * BLOCK];

	CHECK(fd >= 0);
	memset(buf, 'u', sizeof(buf));
	for (int i = 0; i < 10; i++)
		CHECK(unseen(SYS_pwrite64, fd, (long)buf, sizeof(buf), i * 3 * BLOCK) == sizeof(buf));
	CHECK(unseen(SYS_ftruncate, fd, BLOCK, 0, 0) == 0);
	CHECK(unseen(SYS_close, fd, 0, 0, 0) == 0);
	_exit(0);
}

static void replaces(void)
{
	execlp("sh", "sh", "-c", "echo other >file && echo more >>file", NULL);
	_exit(1);
}

static void try(void (*other)(void), int staged)
{
	const void *p, *q;
	pid_t pid;
	int fd;

	unlink("file");
	fd = open("file", O_RDWR | O_CREAT, 0600);
	put(fd, 1, 0, SIZE);
	/* The child has no snapshot of ours that a fork would have saved: it waits for us to take one. */
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		while (access("go", F_OK) < 0)
			usleep(1000);
		other();
	}
	if (!staged)
		CHECK(fsync(fd) == 0);
	p = snapshot(fd, 1, 0, SIZE);
	q = snapshot(fd, 1, 5 * BLOCK + 3, 100);
	CHECK(close(open("go", O_RDWR | O_CREAT, 0600)) == 0);
	for (int i = 0; i < 20; i++) {
		expect_snapshot(p, 1, 0, SIZE);
		usleep(2000);
	}
	CHECK(status_of(pid) == 0);
	expect_snapshot(p, 1, 0, SIZE);
	CHECK(unlink("go") == 0 && close(fd) == 0);
	expect_snapshot(q, 1, 5 * BLOCK + 3, 100);
	CHECK(splitfs_unpeek(q) == 0);
	expect_snapshot(p, 1, 0, SIZE);
	CHECK(splitfs_unpeek(p) == 0);
}

int main(void)
{
	splitfs_flags(SPLITFS_COPY);
	for (int staged = 0; staged < 2; staged++) {
		try(changes, staged);
		try(changes_unseen, staged);
		try(replaces, staged);
	}
	return 0;
}
