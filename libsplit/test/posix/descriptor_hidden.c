/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that looks which of all numbers are descriptors, as tests for leaks do, finds those that it has opened and no
 * others, also where the soft limit is the hard one.
 */
#include "check.h"

#include <stdbool.h>
#include <sys/resource.h>

enum { LIMIT = 300, FILES = 20 };

static bool there(int fd)
{
	const bool is = fcntl(fd, F_GETFD) >= 0;
	struct stat st;

	CHECK(is || errno == EBADF);
	CHECK((dup2(fd, fd) == fd) == is && (is || errno == EBADF));
	CHECK((fstat(fd, &st) == 0) == is && (is || errno == EBADF));
	CHECK((syscall(SYS_fcntl, fd, F_GETFL) >= 0) == is && (is || errno == EBADF));
	if (!is) {
		FAILS(dup(fd), EBADF);
		FAILS(fcntl(fd, F_DUPFD, 0), EBADF);
		FAILS(close(fd), EBADF);
	}
	return is;
}

int main(void)
{
	const struct rlimit both = {LIMIT, LIMIT};
	bool before[LIMIT], opened[LIMIT] = {0};
	int fds[FILES];

	CHECK(setrlimit(RLIMIT_NOFILE, &both) == 0);
	for (int fd = 0; fd < LIMIT; fd++)
		before[fd] = there(fd);
	for (int i = 0; i < FILES; i++) {
		char name[16];

		sprintf(name, "f%d", i);
		CHECK((fds[i] = open(name, O_RDWR | O_CREAT, 0644)) >= 0);
		opened[fds[i]] = true;
		put(fds[i], (unsigned)i, 0, 9000);
	}
	for (int fd = 0; fd < LIMIT; fd++)
		CHECK(there(fd) == (before[fd] || opened[fd]));
	for (int i = 0; i < FILES; i++)
		expect(fds[i], (unsigned)i, 0, 9000);
	return 0;
}
