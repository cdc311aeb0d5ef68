/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What reading without a copy gains: a file of 64 MiB is read in pieces, each byte looked at, by read(2) into a new
 * buffer for each piece, into one that is used again, and by splitfs_peek(3). In turns, in one process; medians over
 * the turns of microseconds of processor time per piece.
 *
 *   splitfs run --mode MODE --dir DIR -- peek DIR   in a volume
 *   peek DIR                                        the kernel alone, and splitfs_peek(3) as a copy
 */
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "splitfs.h"
#include "timing.h"

enum { TURNS = 9, FILE_BYTES = 64 << 20, TURN_BYTES = 32 << 20, PAIRS = 200000 };

static int fd;
static uint64_t seen; /* so that nothing is left out */

static void look(const void *p, size_t n)
{
	const uint64_t *w = p;
	uint64_t sum = 0;

	for (size_t i = 0; i < n / sizeof(*w); i++)
		sum += w[i];
	seen += sum;
}

static void by_read(void *buf, size_t n, off_t off)
{
	if (pread(fd, buf, n, off) != (ssize_t)n)
		fail("read");
	look(buf, n);
}

static void read_new(size_t n, off_t off)
{
	void *buf = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (buf == MAP_FAILED)
		fail("mmap");
	by_read(buf, n, off);
	munmap(buf, n);
}

static void read_again(size_t n, off_t off)
{
	static char buf[FILE_BYTES];

	by_read(buf, n, off);
}

static void peek(size_t n, off_t off)
{
	size_t got;
	const void *p = splitfs_peek(fd, off, n, &got);

	if (!p || got != n)
		fail("peek");
	look(p, n);
	splitfs_unpeek(p);
}

enum { NEW, AGAIN, PEEK, WAYS };
static void (*const ways[WAYS])(size_t n, off_t off) = {read_new, read_again, peek};

/* Microseconds per piece. */
static double turn(void (*way)(size_t n, off_t off), size_t n)
{
	const size_t pieces = TURN_BYTES / n;
	const double began = now_ns(CLOCK_PROCESS_CPUTIME_ID);

	for (size_t i = 0; i < pieces; i++)
		way(n, (off_t)(i * 7919 % (FILE_BYTES / n) * n));
	return (now_ns(CLOCK_PROCESS_CPUTIME_ID) - began) / 1e3 / (double)pieces;
}

static void row(size_t n)
{
	double took[WAYS][TURNS], m[WAYS];

	for (int t = -1; t < TURNS; t++)
		for (int w = 0; w < WAYS; w++) {
			const double us = turn(ways[w], n);

			if (t >= 0)
				took[w][t] = us;
		}
	for (int w = 0; w < WAYS; w++)
		m[w] = median(took[w], TURNS);
	printf("%6zu KiB  new %9.2f  again %9.2f  peek %9.2f  times %5.2f %5.2f\n", n >> 10, m[NEW], m[AGAIN], m[PEEK],
	       m[NEW] / m[PEEK], m[AGAIN] / m[PEEK]);
	fflush(stdout);
}

/* A snapshot of 4 KiB that nobody looks at. */
static void untouched(void)
{
	double took[TURNS];

	for (int t = 0; t < TURNS; t++) {
		const double began = now_ns(CLOCK_PROCESS_CPUTIME_ID);

		for (int i = 0; i < PAIRS; i++) {
			size_t got;

			splitfs_unpeek(splitfs_peek(fd, i % 4096 * 4096, 4096, &got));
		}
		took[t] = (now_ns(CLOCK_PROCESS_CPUTIME_ID) - began) / PAIRS;
	}
	printf("peek and unpeek of 4 KiB, untouched: %.0f ns\n", median(took, TURNS));
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = {4 << 10, 16 << 10, 64 << 10, 1 << 20, 16 << 20};
	char *data = malloc(FILE_BYTES), path[4096];

	if (argc != 2 || !data)
		return fprintf(stderr, "Usage: peek DIR\n"), 2;
	snprintf(path, sizeof(path), "%s/peek-bench", argv[1]);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	memset(data, 7, FILE_BYTES);
	if (fd < 0 || write(fd, data, FILE_BYTES) != FILE_BYTES || fsync(fd) < 0)
		fail(path);
	splitfs_flags(getenv("SPLITFS_CONFIG") ? 0 : SPLITFS_COPY);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		row(sizes[i]);
	untouched();
	unlink(path);
	return seen == 0;
}
