/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that executes another program keeps its lock on a part of a file also where another process has an older one on another part, and
 * the new program uses the file through a descriptor that the lock was not taken through.
 */
#include "lock.h"

#include <signal.h>

enum { PART = 50, FAR = 200 };

/* Is the first part locked, for others? */
static bool taken(void)
{
	return lock_refused(PART);
}

static void after_exec(int fd, int other, pid_t pid)
{
	char c;

	CHECK(taken());
	CHECK(pread(other, &c, 1, 2) == 1 && c == 'r' && pwrite(other, "F", 1, 0) == 1);
	CHECK(write(fd, "second", 6) == 6 && size_of(other) == 11);
	CHECK(taken());
	CHECK(close(other) == 0 && !taken() && close(fd) == 0);
	expect_file("f", "Firstsecond");
	CHECK(kill(pid, SIGKILL) == 0 && status_of(pid) == 128 + SIGKILL);
}

int main(int argc, char **argv)
{
	struct flock mine = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = PART},
		     theirs = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = FAR, .l_len = 1};
	char numbers[3][16];
	int fd, other, there[2];
	pid_t pid;

	if (argc == 4) {
		after_exec(atoi(argv[1]), atoi(argv[2]), atoi(argv[3]));
		return 0;
	}
	CHECK((fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
	CHECK((other = open("f", O_RDWR)) >= 0);
	CHECK(write(fd, "first", 5) == 5 && pipe(there) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		int own = open("f", O_RDWR);

		alarm(60);
		CHECK(own >= 0 && fcntl(own, F_SETLK, &theirs) == 0);
		tell(there[1]);
		for (;;)
			pause();
	}
	hear(there[0]);
	CHECK(fcntl(fd, F_SETLK, &mine) == 0 && taken());
	snprintf(numbers[0], sizeof(numbers[0]), "%d", fd);
	snprintf(numbers[1], sizeof(numbers[1]), "%d", other);
	snprintf(numbers[2], sizeof(numbers[2]), "%d", (int)pid);
	execl("/proc/self/exe", "lock_exec_others", numbers[0], numbers[1], numbers[2], NULL);
	return 1;
}
