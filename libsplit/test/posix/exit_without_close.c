/* SPDX-License-Identifier: Apache-2.0 */
/* Data outlives exit, _exit, quick_exit and abort without close, and what exit handlers write, too. */
#include "check.h"

#include <signal.h>
#include <sys/resource.h>

static int fd;

static void at_exit_writer(void)
{
	CHECK(write(fd, "handler", 7) == 7);
}

static void end(int how)
{
	CHECK((fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
	put(fd, 1, 0, 12345);
	CHECK(lseek(fd, 0, SEEK_END) == 12345);
	switch (how) {
	case 0:
		exit(0);
	case 1:
		_exit(0);
	case 2:
		quick_exit(0);
	case 3:
		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		abort();
	default:
		CHECK(atexit(at_exit_writer) == 0);
		exit(0);
	}
}

int main(void)
{
	for (int how = 0; how < 5; how++) {
		pid_t pid = fork();

		if (pid == 0)
			end(how);
		CHECK(status_of(pid) == (how == 3 ? 128 + SIGABRT : 0) && (fd = open("f", O_RDONLY)) >= 0);
		CHECK(size_of(fd) == (how == 4 ? 12352 : 12345));
		expect(fd, 1, 0, 12345);
		CHECK(close(fd) == 0);
	}
	return 0;
}
