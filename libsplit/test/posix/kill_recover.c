/* SPDX-License-Identifier: Apache-2.0 */
/* Every write that returned before SIGKILL is in the file afterwards, within a bounded time. */
#include "kill.h"

enum { APPENDED = 4000 };

/* Appends and overwrites, and reports each on the pipe when it has returned. */
static void writer(int report, int unused)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	unsigned char buf[300];

	(void)unused;
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
static int64_t found(int unused)
{
	unsigned char buf[300], want[300];
	int fd = open("f", O_RDONLY);
	uint32_t i;

	(void)unused;
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
	for (int round = 0; round < 3; round++)
		kill_writer(writer, found, 0, APPENDED + (uint32_t)round * 77);
	return 0;
}
