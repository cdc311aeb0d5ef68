/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program has the library and also makes system calls by itself, which the library does not see: it finds in a file what it has written through
 * the library when it opens it, and both ways of writing see each other while it has the file open so.
 */
#include "check.h"

#include <stdbool.h>
#include <stdio.h>

enum { LEN = 300000 };

static char want[2 * LEN], found[2 * LEN];

static int raw_open(int flags)
{
	const int fd = (int)unseen(SYS_openat, AT_FDCWD, (long)"f", flags, 0);

	CHECK(fd >= 0);
	return fd;
}

static void raw_close(int fd)
{
	CHECK(unseen(SYS_close, fd, 0, 0, 0) == 0);
}

static bool raw_finds(int fd, size_t n)
{
	return unseen(SYS_pread64, fd, (long)found, sizeof(found), 0) == (long)n && memcmp(found, want, n) == 0;
}

/* The same bytes by the library, and in `want`. */
static void lay(int fd, off_t off, size_t n)
{
	static unsigned seed;

	fill(want + off, n, ++seed, 0);
	CHECK(pwrite(fd, want + off, n, off) == (ssize_t)n);
}

/* By whom the file is written: this process, or a child that has it open still. */
static void reads(bool child)
{
	int fd = child ? -1 : open("f", O_RDWR | O_CREAT | O_TRUNC, 0600), raw;
	int there[2], back[2];
	char c = 0;
	pid_t pid;

	CHECK(pipe(there) == 0 && pipe(back) == 0);
	fill(want, LEN, 77, 0);
	if (child) {
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0600);
			CHECK(fd >= 0 && write(fd, want, LEN) == LEN);
			CHECK(write(back[1], &c, 1) == 1 && read(there[0], &c, 1) == 1);
			_exit(0);
		}
		CHECK(read(back[0], &c, 1) == 1);
	} else {
		CHECK(fd >= 0 && write(fd, want, LEN) == LEN);
	}
	raw = raw_open(O_RDONLY);
	CHECK(raw_finds(raw, LEN));
	if (!child) {
		lay(fd, LEN, 5000);
		CHECK(fsync(fd) == 0 && raw_finds(raw, LEN + 5000));
		lay(fd, 4000, 9000);
		CHECK(fsync(fd) == 0 && raw_finds(raw, LEN + 5000));
		CHECK(close(fd) == 0);
	} else {
		CHECK(write(there[1], &c, 1) == 1);
		CHECK(status_of(pid) == 0);
	}
	raw_close(raw);
	for (int i = 0; i < 2; i++) {
		close(there[i]);
		close(back[i]);
	}
}

static void writes(void)
{
	const int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0600);
	int raw;

	CHECK(fd >= 0);
	lay(fd, 0, LEN);
	raw = raw_open(O_RDWR);
	for (int i = 0; i < 5; i++) {
		lay(fd, (off_t)i * 10000, 20000);
		CHECK(raw_finds(raw, LEN));
		fill(want + (off_t)i * 9000, 15000, 100 + (unsigned)i, 0);
		CHECK(unseen(SYS_pwrite64, raw, (long)(want + (off_t)i * 9000), 15000, (off_t)i * 9000) == 15000);
		CHECK(pread(fd, found, sizeof(found), 0) == LEN && memcmp(found, want, LEN) == 0);
	}
	raw_close(raw);
	lay(fd, 100, LEN);
	CHECK(pread(fd, found, sizeof(found), 0) == LEN + 100 && memcmp(found, want, LEN + 100) == 0);
	raw = raw_open(O_RDONLY);
	CHECK(raw_finds(raw, LEN + 100));
	raw_close(raw);
	CHECK(close(fd) == 0);
}

int main(void)
{
	if (geteuid() != 0) {
		puts("the kernel tells only root who opens a file");
		return 77;
	}
	reads(false);
	reads(true);
	writes();
	return 0;
}
