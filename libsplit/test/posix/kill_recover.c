/* SPDX-License-Identifier: Apache-2.0 */
/* Every write that returned before SIGKILL is in the file afterwards, within a bounded time. */
#include "check.h"

#include <signal.h>
#include <time.h>

enum { APPENDED = 4000 };

/* Appends and overwrites, and reports each on the pipe when it has returned. */
static void writer(int report)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	unsigned char buf[300];

	for (uint32_t i = 0;; i++) {
		size_t n = i * 31 % 250 + 9;

		fill(buf, n, 1, i);
		memcpy(buf, &i, 4);
		CHECK(pwrite(fd, buf, n, (off_t)i * 300) == (ssize_t)n);
		if (i % 5 == 0) {
			buf[8] = 77;
			CHECK(pwrite(fd, buf + 8, 1, (off_t)i * 300 + 8) == 1);
		}
		CHECK(write(report, &i, 4) == 4);
	}
}

/* How many writes, from the first on, are in the file. */
static uint32_t found(void)
{
	unsigned char buf[300], want[300];
	int fd = open("f", O_RDONLY);
	uint32_t i;

	CHECK(fd >= 0);
	for (i = 0;; i++) {
		size_t n = i * 31 % 250 + 9;

		if (pread(fd, buf, n, (off_t)i * 300) != (ssize_t)n)
			break;
		fill(want, n, 1, i);
		memcpy(want, &i, 4);
		if (i % 5 == 0)
			want[8] = 77;
		if (memcmp(buf, want, n) != 0)
			break;
	}
	CHECK(close(fd) == 0);
	return i;
}

int main(void)
{
	for (int round = 0; round < 3; round++) {
		int pipes[2];
		uint32_t last = 0, got;
		time_t end;
		pid_t pid;

		unlink("f");
		CHECK(pipe(pipes) == 0);
		if ((pid = fork()) == 0) {
			close(pipes[0]);
			writer(pipes[1]);
		}
		close(pipes[1]);
		while (last < APPENDED + (uint32_t)round * 77)
			CHECK(read(pipes[0], &last, 4) == 4);
		CHECK(kill(pid, SIGKILL) == 0 && status_of(pid) == 128 + SIGKILL);
		while (read(pipes[0], &last, 4) == 4) /* what it reported until it died */
			;
		close(pipes[0]);
		end = time(NULL) + 10;
		while ((got = found()) <= last && time(NULL) < end)
			usleep(50000);
		if (got <= last)
			fprintf(stderr, "%u writes returned, %u are there\n", last + 1, got);
		CHECK(got > last);
	}
	return 0;
}
