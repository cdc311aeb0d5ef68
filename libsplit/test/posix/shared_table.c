/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child that shares its parent's table of descriptors but not its memory: what it closes after close_range(CLOSE_RANGE_UNSHARE), or with
 * exit, stays open in the parent, and both go on with their files.
 */
#include "check.h"

#include <linux/close_range.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>

static long by_clone3(void)
{
	struct clone_args args = {.flags = CLONE_FILES, .exit_signal = SIGCHLD};

	return syscall(SYS_clone3, &args, sizeof(args));
}

static long by_number(void)
{
	return syscall(SYS_clone, (long)(CLONE_FILES | SIGCHLD), 0L, 0L, 0L, 0L);
}

static long by_no_library(void)
{
	return unseen(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0);
}

static void child(int fd, int other)
{
	int own;

	CHECK(close_range((unsigned)fd, (unsigned)fd, CLOSE_RANGE_UNSHARE) == 0);
	FAILS(fcntl(fd, F_GETFD), EBADF);
	FAILS(write(fd, "x", 1), EBADF);
	CHECK(write(other, "of the child", 12) == 12);
	CHECK((own = open("own", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
	put(own, 1, 0, 30000);
	expect(own, 1, 0, 30000);
}

int main(void)
{
	long (*const ways[])(void) = {by_clone3, by_number, by_no_library};

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644), other = open("g", O_RDWR | O_CREAT | O_TRUNC, 0644), own;
		long pid;

		CHECK(fd >= 0 && other >= 0 && write(fd, "before ", 7) == 7 && fsync(fd) == 0);
		pid = ways[i]();
		if (pid < 0 && errno == ENOSYS)
			continue; /* no clone3 */
		if (pid == 0) {
			child(fd, other);
			_exit(0);
		}
		CHECK(pid > 0 && status_of((pid_t)pid) == 0);
		CHECK(fcntl(fd, F_GETFD) == 0 && unseen(SYS_fcntl, fd, F_GETFD, 0, 0) == 0);
		for (int n = 0; n < 1000; n++)
			CHECK(write(fd, "0123456789", 10) == 10);
		CHECK(fsync(fd) == 0 && size_of(fd) == 10007 && unseen_size(fd) == 10007 && close(fd) == 0);
		expect_file("g", "of the child");
		CHECK((own = open("own", O_RDONLY)) >= 0 && size_of(own) == 30000);
		expect(own, 1, 0, 30000);
		CHECK(close(own) == 0 && close(other) == 0);
		CHECK((fd = open("new", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
		put(fd, 2, 0, 50000);
		CHECK(fsync(fd) == 0 && close(fd) == 0);
	}
	return 0;
}
