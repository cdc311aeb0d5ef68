/* SPDX-License-Identifier: Apache-2.0 */
/* A program that lowers RLIMIT_FSIZE keeps what it has written before, and is not told of the limit but by writes behind it. */
#include "check.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>

#define WRITTEN (4ul << 20)
#define LIMIT	(1ul << 20)
#define SECONDS 60 /* for a call that waits for ever */

static void reader(void)
{
	const int fd = open("f", O_RDONLY);

	alarm(SECONDS);
	CHECK(fd >= 0 && size_of(fd) == WRITTEN);
	expect(fd, 1, 0, WRITTEN);
	exit(0);
}

static void lower(bool of_process)
{
	const struct rlimit limit = {LIMIT, RLIM_INFINITY};

	if (of_process)
		CHECK(prlimit(getpid(), RLIMIT_FSIZE, &limit, NULL) == 0);
	else
		CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static void written_before(bool of_process, bool forced)
{
	const int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
	pid_t reads;

	CHECK(fd >= 0);
	put(fd, 1, 0, WRITTEN);
	lower(of_process);
	if (forced)
		CHECK(fsync(fd) == 0);
	reads = fork();
	if (reads == 0)
		reader();
	CHECK(reads > 0 && status_of(reads) == 0);
	put(fd, 1, 0, 5000);
	CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
	FAILS(pwrite(fd, "x", 1, WRITTEN), EFBIG);
	CHECK(close(fd) == 0);
	reader();
}

/* A limit that is refused changes nothing. */
static void refused(void)
{
	const struct rlimit wrong = {LIMIT, LIMIT - 1};
	const int fd = open("g", O_RDWR | O_CREAT | O_TRUNC, 0644);

	CHECK(fd >= 0);
	FAILS(setrlimit(RLIMIT_FSIZE, &wrong), EINVAL);
	put(fd, 1, LIMIT, 5000);
	CHECK(close(fd) == 0);
}

int main(void)
{
	refused();
	for (int i = 0; i < 4; i++) {
		const pid_t pid = fork();

		if (pid == 0)
			written_before(i & 1, i & 2);
		CHECK(pid > 0 && status_of(pid) == 0);
	}
	return 0;
}
