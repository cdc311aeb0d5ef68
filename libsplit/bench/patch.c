/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What writing without a copy gains: pieces of a file of 32 MiB are overwritten in turn, by pwrite(2) from a buffer that is used again and by
 * splitfs_patch(3), each time with and without fsync(2). The buffers are filled outside of the time that is taken; what a buffer of
 * splitfs_alloc(3) costs besides is inside. Then splitfs_swap(3) of two such files, of blocks, and of ranges that are no
 * blocks, which are copied. In turns, in one
 * process; medians over the turns of microseconds of processor time per piece.
 *
 *   splitfs run --mode MODE --dir DIR -- patch DIR   in a volume
 *   ... -- patch DIR MIB                             and swaps of files of so many MiB, which nobody has written to
 *   patch DIR                                        the kernel alone, and splitfs_patch(3) as pwrite(2)
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "splitfs.h"
#include "timing.h"

enum { TURNS = 9, FILE_BYTES = 32 << 20, TURN_BYTES = 8 << 20, PIECES_MAX = 256 };

static int fd, pool;

/* Nanoseconds of one write of n bytes at off, without its filling. */
static double by_write(size_t n, off_t off, int sync)
{
	static char buf[FILE_BYTES];
	double began;

	memset(buf, (int)off >> 12, n);
	began = now_ns(CLOCK_PROCESS_CPUTIME_ID);
	if (pwrite(fd, buf, n, off) != (ssize_t)n || (sync && fsync(fd) < 0))
		fail("write");
	return now_ns(CLOCK_PROCESS_CPUTIME_ID) - began;
}

static double by_patch(size_t n, off_t off, int sync)
{
	double began = now_ns(CLOCK_PROCESS_CPUTIME_ID), took;
	void *p = splitfs_alloc(pool, off, n);

	if (!p)
		fail("alloc");
	took = now_ns(CLOCK_PROCESS_CPUTIME_ID) - began;
	memset(p, (int)off >> 12, n);
	began = now_ns(CLOCK_PROCESS_CPUTIME_ID);
	if (splitfs_patch(fd, p, n, off) != (ssize_t)n || splitfs_free(p) < 0 || (sync && fsync(fd) < 0))
		fail("patch");
	return took + now_ns(CLOCK_PROCESS_CPUTIME_ID) - began;
}

static double turn(double (*way)(size_t n, off_t off, int sync), size_t n, int sync)
{
	const size_t pieces = TURN_BYTES / n < PIECES_MAX ? TURN_BYTES / n : PIECES_MAX;
	double ns = 0;

	for (size_t i = 0; i < pieces; i++)
		ns += way(n, (off_t)(i * 7919 % (FILE_BYTES / n) * n), sync);
	return ns / 1e3 / (double)pieces;
}

static void row(size_t n, int sync)
{
	double write_us[TURNS], patch_us[TURNS];

	for (int t = -1; t < TURNS; t++) {
		const double w = turn(by_write, n, sync), p = turn(by_patch, n, sync);

		if (t >= 0) {
			write_us[t] = w;
			patch_us[t] = p;
		}
	}
	printf("%6zu KiB%s  write %9.2f  patch %9.2f  times %5.2f\n", n >> 10, sync ? " and fsync" : "          ",
	       median(write_us, TURNS), median(patch_us, TURNS), median(write_us, TURNS) / median(patch_us, TURNS));
	fflush(stdout);
}

static void swap_row(int one, int other, off_t off, size_t n)
{
	double us[TURNS];

	for (int t = 0; t < TURNS; t++) {
		const double began = now_ns(CLOCK_MONOTONIC);

		if (splitfs_swap(one, off, other, off, n) < 0) {
			printf("swap %9zu KiB: %s\n", n >> 10, strerror(errno));
			return;
		}
		us[t] = (now_ns(CLOCK_MONOTONIC) - began) / 1e3;
	}
	printf("swap %9zu KiB%s %12.2f\n", n >> 10, off ? " by copying" : "           ", median(us, TURNS));
	fflush(stdout);
}

/* An empty file of that size, with blocks. */
static int allocated(const char *dir, off_t size)
{
	const int f = open(dir, O_RDWR | O_TMPFILE, 0600);

	if (f < 0 || fallocate(f, 0, 0, size) < 0 || fsync(f) < 0)
		fail(dir);
	return f;
}

static void large(const char *dir, size_t n)
{
	const int one = allocated(dir, (off_t)n), two = allocated(dir, (off_t)n);

	swap_row(one, two, 0, 4 << 10);
	swap_row(one, two, 0, n);
}

static int file_in(const char *dir, const char *name)
{
	char *data = calloc(1, FILE_BYTES), path[4096];
	int f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (!data || f < 0 || write(f, data, FILE_BYTES) != FILE_BYTES || fsync(f) < 0)
		fail(path);
	unlink(path);
	free(data);
	return f;
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = {4 << 10, 64 << 10, 1 << 20, 4 << 20};
	int other, dir;

	if (argc != 2 && argc != 3)
		return fprintf(stderr, "Usage: patch DIR [MIB]\n"), 2;
	splitfs_flags(getenv("SPLITFS_CONFIG") ? 0 : SPLITFS_COPY);
	dir = open(argv[1], O_RDONLY | O_DIRECTORY);
	fd = file_in(argv[1], "patch-bench");
	other = file_in(argv[1], "patch-bench-other");
	pool = splitfs_pool_create(dir, 16 << 20);
	if (pool < 0)
		fail("pool");
	for (int sync = 0; sync < 2; sync++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			row(sizes[i], sync);
	swap_row(fd, other, 0, 4 << 10);
	swap_row(fd, other, 0, FILE_BYTES);
	swap_row(fd, other, 1, FILE_BYTES - (4 << 10));
	if (argc == 3)
		large(argv[1], (size_t)atol(argv[2]) << 20);
	return 0;
}
