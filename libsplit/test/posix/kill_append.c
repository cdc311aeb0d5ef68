/* SPDX-License-Identifier: Apache-2.0 */
/* A log writer's small appends: after SIGKILL the file holds each append that returned, whole, and at most one more. */
#include "kill.h"

enum { RECORD_MAX = 200, APPENDED = 30000 };

static size_t record(unsigned char *buf, uint32_t i)
{
	const size_t n = i * 37 % (RECORD_MAX - 5) + 5;

	fill(buf, n, 2, i);
	memcpy(buf, &i, 4);
	return n;
}

static void writer(int report, int flags)
{
	int fd = open("f", O_WRONLY | O_CREAT | flags, 0644);
	unsigned char buf[RECORD_MAX];

	for (uint32_t i = 0;; i++) {
		const size_t n = record(buf, i);

		CHECK(write(fd, buf, n) == (ssize_t)n);
		/* An overwrite now and then ends the run of appends. */
		if (i % 5000 == 4999)
			CHECK(pwrite(fd, "\0\0\0\0", 4, 0) == 4);
		if (i % 7 == 0)
			CHECK(write(report, &i, 4) == 4);
	}
}

/* How many appends are in the file; -1 when it ends with a part of one. */
static int64_t found(int appends)
{
	unsigned char buf[RECORD_MAX], want[RECORD_MAX];
	int fd = open("f", O_RDONLY);
	uint32_t i;

	CHECK(fd >= 0);
	for (i = 0;; i++) {
		const size_t n = record(want, i);
		ssize_t got = read(fd, buf, n);

		CHECK(got >= 0);
		if (got == 0)
			break;
		/* O_APPEND wins over the position: those four bytes are at the end then. */
		if (appends && got >= 4 && memcmp(buf, "\0\0\0\0", 4) == 0 && i % 5000 == 0 && i > 0) {
			CHECK(lseek(fd, 4 - got, SEEK_CUR) >= 0);
			got = read(fd, buf, n);
			if (got == 0)
				break;
		}
		/* Killed between two pages, the kernel leaves what it has of a write. */
		if (got != (ssize_t)n && !getenv("LD_PRELOAD") && lseek(fd, 0, SEEK_END) % sysconf(_SC_PAGESIZE) == 0)
			break;
		if (got != (ssize_t)n)
			return -1;
		if (memcmp(buf, want, n) != 0) {
			fprintf(stderr, "append %u is torn\n", i);
			exit(1);
		}
	}
	CHECK(close(fd) == 0);
	return i;
}

int main(void)
{
	for (int round = 0; round < 4; round++)
		kill_writer(writer, found, round % 2 ? O_APPEND : 0, APPENDED + (uint32_t)round * 1777);
	return 0;
}
