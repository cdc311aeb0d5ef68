/* SPDX-License-Identifier: Apache-2.0 */
/* A handler forks while its thread waits in an open, beside a file that is staged: parent and child go on from there. */
#include "check.h"

#include <signal.h>
#include <sys/stat.h>

enum { LEN = 300000 };

static char want[LEN], found[LEN];
static pid_t child = -1;

static void forks(int sig)
{
	(void)sig;
	child = fork();
}

int main(void)
{
	const struct sigaction act = {.sa_handler = forks};
	const int fd = open("f", O_RDWR | O_CREAT, 0600);

	fill(want, LEN, 1, 0);
	CHECK(fd >= 0 && write(fd, want, LEN) == LEN);
	CHECK(mkfifo("p", 0600) == 0 && sigaction(SIGALRM, &act, NULL) == 0);
	alarm(1);
	CHECK(open("p", O_RDONLY) < 0 && errno == EINTR && child >= 0);
	CHECK(pread(fd, found, LEN, 0) == LEN && memcmp(found, want, LEN) == 0);
	if (child == 0) {
		CHECK(pwrite(fd, want, 100, 5000) == 100);
		_exit(0);
	}
	CHECK(status_of(child) == 0);
	CHECK(pwrite(fd, want, 100, 1000) == 100);
	memcpy(want + 5000, want, 100);
	memcpy(want + 1000, want, 100);
	CHECK(pread(fd, found, LEN, 0) == LEN && memcmp(found, want, LEN) == 0);
	CHECK(close(fd) == 0);
	return 0;
}
