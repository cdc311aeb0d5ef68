/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What short calls take, in nanoseconds of processor time: appends of 64 bytes and 4 KiB, and overwrites and reads of 4 KiB. Median of
 * nine turns. For comparing two settings of the library (SPLITFS_PROTECT).
 *
 *   splitfs run --mode MODE --dir DIR -- calls DIR
 */
#include <fcntl.h>
#include <unistd.h>

#include "timing.h"

enum { TURNS = 9, CALLS = 2000, BLOCK = 4096 };

static char buf[BLOCK];
static int fd;

static void append(size_t n, int i)
{
	(void)i;
	if (write(fd, buf, n) != (ssize_t)n)
		fail("write");
}

static void overwrite(size_t n, int i)
{
	if (pwrite(fd, buf, n, (off_t)i * BLOCK) != (ssize_t)n)
		fail("pwrite");
}

static void look(size_t n, int i)
{
	if (pread(fd, buf, n, (off_t)i * BLOCK) != (ssize_t)n)
		fail("pread");
}

static void row(const char *name, void (*call)(size_t n, int i), size_t n)
{
	double ns[TURNS];

	for (int t = -1; t < TURNS; t++) {
		const double began = now_ns(CLOCK_PROCESS_CPUTIME_ID);

		for (int i = 0; i < CALLS; i++)
			call(n, i);
		if (t >= 0)
			ns[t] = (now_ns(CLOCK_PROCESS_CPUTIME_ID) - began) / CALLS;
	}
	printf("%-10s %5zu B %8.1f ns\n", name, n, median(ns, TURNS));
}

int main(int argc, char **argv)
{
	char path[4096];

	if (argc != 2)
		return fprintf(stderr, "Usage: calls DIR\n"), 2;
	snprintf(path, sizeof(path), "%s/calls-bench", argv[1]);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		fail(path);
	row("append", append, BLOCK);
	row("append", append, 64);
	if (fsync(fd) < 0)
		fail("fsync");
	row("overwrite", overwrite, BLOCK);
	row("read", look, BLOCK);
	unlink(path);
	return 0;
}
