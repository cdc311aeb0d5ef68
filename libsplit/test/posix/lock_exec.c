/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process keeps its locks when it executes another program, and that one when it executes a third: nobody else gets them, until the
 * descriptor is closed. Where exec fails nothing has changed.
 */
#include "check.h"

#include <stdbool.h>

static bool taken(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct flock f = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
		int fd = open("f", O_RDWR);

		CHECK(fd >= 0);
		_exit(fcntl(fd, F_SETLK, &f) == 0 ? 0 : errno == EAGAIN || errno == EACCES ? 7 : 1);
	}
	pid = status_of(pid);
	CHECK(pid == 0 || pid == 7);
	return pid == 7;
}

static void next(int fd, int round)
{
	char number[16], left[16];

	snprintf(number, sizeof(number), "%d", fd);
	snprintf(left, sizeof(left), "%d", round);
	execl("/proc/self/exe", "lock_exec", number, left, NULL);
	CHECK(!"exec");
}

static int go_on(int fd, int round)
{
	CHECK(taken());
	if (round == 2) { /* one that uses the file, one that does not */
		CHECK(lseek(fd, 0, SEEK_END) == 5);
		CHECK(write(fd, "second", 6) == 6 && size_of(fd) == 11);
	}
	CHECK(taken());
	if (round > 0)
		next(fd, round - 1);
	CHECK(close(fd) == 0 && !taken());
	return 0;
}

int main(int argc, char **argv)
{
	struct flock f = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd;

	if (argc == 3)
		return go_on(atoi(argv[1]), atoi(argv[2]));
	CHECK((fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
	CHECK(write(fd, "first", 5) == 5 && fcntl(fd, F_SETLK, &f) == 0);
	CHECK(taken());
	execl("missing", "missing", NULL);
	CHECK(errno == ENOENT && taken());
	next(fd, 2);
	return 1;
}
