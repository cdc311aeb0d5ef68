/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One measured process: a plain program that knows nothing of us, run with or without the library. It takes one command per line on
 * standard input and answers each with a line, so that slices of several workers can be interleaved in one run:
 *
 *   make FILE BYTES               a file with content, written and closed       -> ok
 *   open FILE                     (created when missing) for what follows       -> ok THREAD-NS PROCESS-NS WALL-NS
 *   unlink FILE                                                                 -> ok THREAD-NS PROCESS-NS WALL-NS
 *   do OP BLOCK COUNT SEED        COUNT operations of BLOCK bytes               -> ok THREAD-NS PROCESS-NS WALL-NS
 *   fsync | close                                                               -> ok THREAD-NS PROCESS-NS WALL-NS
 *   smaps                                                                       -> ok ANONYMOUS-KIB
 *
 * OP: append, overwrite, read; raw-read (memcpy from a mapping of the open file, populated before), raw-nt (non-temporal copies into it) and
 * raw-nt-fence (the same, each with a fence) are what no file system can beat. All but append also with "-random" behind them. Others go
 * on where the last ones ended and start again at the end of the file. THREAD-NS and PROCESS-NS are CPU time, user and system.
 *
 *   worker --once FILE            open FILE, write 64 bytes, close, exit: what start-up costs
 */
#include <emmintrin.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BUFFER (1 << 20)

static char *buffer;
static int fd = -1;
static char *map; /* of the open file, for the raw ones */
static uint64_t position, size;
static struct {
	uint64_t thread, process, wall;
} start;

static void fail(const char *what)
{
	printf("error %s: %s\n", what, strerror(errno));
	fflush(stdout);
	exit(1);
}

static uint64_t now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void begin(void)
{
	start.wall = now(CLOCK_MONOTONIC);
	start.process = now(CLOCK_PROCESS_CPUTIME_ID);
	start.thread = now(CLOCK_THREAD_CPUTIME_ID);
}

static void report(void)
{
	const uint64_t thread = now(CLOCK_THREAD_CPUTIME_ID), process = now(CLOCK_PROCESS_CPUTIME_ID),
		       wall = now(CLOCK_MONOTONIC);

	printf("ok %llu %llu %llu\n", (unsigned long long)(thread - start.thread),
	       (unsigned long long)(process - start.process), (unsigned long long)(wall - start.wall));
}

static uint64_t next_random(uint64_t *s)
{
	*s ^= *s >> 12;
	*s ^= *s << 25;
	*s ^= *s >> 27;
	return *s * 0x2545f4914f6cdd1dull;
}

static void nt_copy(char *dst, const char *src, size_t n)
{
	for (size_t i = 0; i < n; i += 16)
		_mm_stream_si128((__m128i *)(dst + i), _mm_load_si128((const __m128i *)(src + i)));
}

static void do_make(const char *path, uint64_t bytes)
{
	int f = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

	if (f < 0)
		fail(path);
	for (uint64_t done = 0; done < bytes; done += BUFFER)
		if (write(f, buffer, bytes - done < BUFFER ? bytes - done : BUFFER) <= 0)
			fail("write");
	if (fsync(f) || close(f))
		fail("fsync");
	printf("ok\n");
}

static void do_open(const char *path)
{
	struct stat st;

	begin();
	fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		fail(path);
	report();
	if (fstat(fd, &st))
		fail(path);
	size = (uint64_t)st.st_size;
	position = 0;
}

static void do_unlink(const char *path)
{
	begin();
	if (unlink(path))
		fail(path);
	report();
}

static void do_close(void)
{
	if (map)
		munmap(map, size);
	map = NULL;
	begin();
	if (close(fd))
		fail("close");
	fd = -1;
	report();
}

static void do_ops(const char *op, size_t block, uint64_t count, uint64_t seed)
{
	const int raw = !strncmp(op, "raw-", 4), reads = !strncmp(op, "read", 4), appends = !strcmp(op, "append");
	const int raw_reads = !strncmp(op, "raw-read", 8), fences = strstr(op, "fence") != NULL,
		  random = strstr(op, "random") != NULL;
	ssize_t n;

	if (fd < 0 || !block || block > BUFFER || (!appends && size < block)) {
		errno = EINVAL;
		fail(op);
	}
	if (raw && !map) {
		map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
		if (map == MAP_FAILED)
			fail("mmap");
	}
	begin();
	for (uint64_t i = 0; i < count; i++) {
		if (random)
			position = next_random(&seed) % (size / block) * block;
		else if (!appends && position + block > size)
			position = 0;
		if (raw) {
			if (raw_reads)
				memcpy(buffer, map + position, block);
			else
				nt_copy(map + position, buffer, block);
			if (fences)
				_mm_sfence();
			n = (ssize_t)block;
		} else if (appends) {
			n = write(fd, buffer, block);
		} else if (reads) {
			n = pread(fd, buffer, block, (off_t)position);
		} else {
			n = pwrite(fd, buffer, block, (off_t)position);
		}
		if (n != (ssize_t)block)
			fail(op);
		position += block;
	}
	report();
}

static void do_smaps(void)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "r");
	char line[256];
	unsigned long kib = 0;

	if (!f)
		fail("/proc/self/smaps_rollup");
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "Anonymous: %lu", &kib) == 1)
			break;
	fclose(f);
	printf("ok %lu\n", kib);
}

int main(int argc, char **argv)
{
	char line[4096], arg[3500];
	static const char once[64];
	unsigned long long a, b, c;

	if (argc == 3 && !strcmp(argv[1], "--once")) {
		int f = open(argv[2], O_CREAT | O_WRONLY, 0600);

		return f < 0 || write(f, once, sizeof(once)) != sizeof(once) || close(f);
	}
	if (argc != 1) {
		fprintf(stderr, "Usage: worker [--once FILE]   (commands on standard input, see bench/worker.c)\n");
		return 2;
	}
	buffer = aligned_alloc(4096, BUFFER);
	if (!buffer)
		fail("malloc");
	memset(buffer, 'x', BUFFER);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (sscanf(line, "make %3499s %llu", arg, &a) == 2) {
			do_make(arg, a);
		} else if (sscanf(line, "open %3499s", arg) == 1) {
			do_open(arg);
		} else if (sscanf(line, "unlink %3499s", arg) == 1) {
			do_unlink(arg);
		} else if (sscanf(line, "do %3499s %llu %llu %llu", arg, &a, &b, &c) == 4) {
			do_ops(arg, a, b, c);
		} else if (!strcmp(line, "fsync")) {
			begin();
			if (fsync(fd))
				fail("fsync");
			report();
		} else if (!strcmp(line, "close")) {
			do_close();
		} else if (!strcmp(line, "smaps")) {
			do_smaps();
		} else {
			printf("error unknown command: %s\n", line);
		}
		fflush(stdout);
	}
	return 0;
}
