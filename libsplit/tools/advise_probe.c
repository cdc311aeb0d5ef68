/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plain program that makes calls and takes the time, in its own process: run without the library and with it. It prints a line "NAME NS" for
 * each kind of call. What takes long is done less often.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "advise.h"

#define BUDGET_NS      40000000ull /* for each kind */
#define FILE_MAX_BYTES (16ull << 20)
#define FEW	       24u /* files, fsyncs */
#define LOCKS	       512u
#define LARGE_FSYNC    (1u << 20)

static char buffer[1 << 20];

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* with the library its own thread works for us, too */
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void must(long r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "splitfs: measuring, %s: %s\n", what, strerror(errno));
	exit(1);
}

static int make(const char *name)
{
	const int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);

	must(fd, name);
	return fd;
}

/* Appends of n bytes, then overwrites and reads of the same; behind each its fsync, which is not counted here. */
static void sizes(uint32_t n)
{
	const int fd = make("bytes");
	uint64_t from = now(), took, calls = 0;

	while (calls * n < FILE_MAX_BYTES && now() - from < BUDGET_NS)
		for (int i = 0; i < 16; i++, calls++)
			must(write(fd, buffer, n), "write");
	took = now() - from;
	printf("append-%u %.1f\n", n, (double)took / (double)calls);
	must(fsync(fd), "fsync");
	from = now();
	for (uint64_t i = 0; i < calls; i++)
		must(pwrite(fd, buffer, n, (off_t)(i * n)), "write");
	printf("overwrite-%u %.1f\n", n, (double)(now() - from) / (double)calls);
	must(fsync(fd), "fsync");
	must(pread(fd, buffer, n, 0), "read");
	from = now();
	for (uint64_t i = 0; i < calls; i++)
		must(pread(fd, buffer, n, (off_t)(i * n)), "read");
	printf("read-%u %.1f\n", n, (double)(now() - from) / (double)calls);
	close(fd);
	unlink("bytes");
}

static double fsync_after(uint32_t bytes)
{
	const int fd = make("forced");
	const uint64_t begin = now();
	uint64_t sum = 0;
	unsigned n = 0;

	for (; n < FEW && (n < 3 || now() - begin < 2 * BUDGET_NS); n++) {
		uint64_t from;

		must(write(fd, buffer, bytes), "write");
		from = now();
		must(fsync(fd), "fsync");
		sum += now() - from;
	}
	close(fd);
	unlink("forced");
	return (double)sum / n;
}

static void forced(void)
{
	const double small = fsync_after(cost_bytes[1]), large = fsync_after(LARGE_FSYNC);
	const double byte = large > small ? (large - small) / (LARGE_FSYNC - cost_bytes[1]) : 0;

	printf("fsync %.1f\nfsync-byte %.6f\n", small - byte * cost_bytes[1], byte);
}

/* Made and removed, without a write. */
static void names(void)
{
	const uint64_t from = now();
	char name[32];

	for (unsigned i = 0; i < FEW; i++) {
		snprintf(name, sizeof(name), "name%u", i);
		close(make(name));
		unlink(name);
	}
	printf("name %.1f\n", (double)(now() - from) / FEW / 2);
}

/* A file that is there, opened, written once, perhaps given other times, and closed. *set: what the times took. */
static uint64_t write_once(unsigned i, bool times, uint64_t *set)
{
	const struct timespec when[2] = {{1, 0}, {1, 0}};
	uint64_t from;
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "file%u", i);
	close(make(name));
	from = now();
	fd = open(name, O_WRONLY);
	must(fd, "open");
	must(write(fd, buffer, cost_bytes[0]), "write");
	if (times) {
		const uint64_t before = now();

		must(futimens(fd, when), "futimens");
		*set += now() - before;
	}
	close(fd);
	from = now() - from;
	unlink(name);
	return from;
}

static double files(uint64_t *set)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < FEW; i++)
		sum += write_once(i, set != NULL, set);
	return (double)sum / FEW;
}

static void locks(void)
{
	const int fd = make("locked");
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
	uint64_t from;

	must(write(fd, buffer, cost_bytes[1]), "write");
	from = now();
	for (unsigned i = 0; i < LOCKS; i++) {
		l.l_type = i % 2 ? F_UNLCK : F_WRLCK;
		must(fcntl(fd, F_SETLK, &l), "lock");
	}
	printf("lock %.1f\n", (double)(now() - from) / LOCKS);
	from = now();
	for (unsigned i = 0; i < LOCKS; i++)
		must(pwrite(fd, buffer, cost_bytes[0], 0), "write");
	printf("pass %.1f\n", (double)(now() - from) / LOCKS);
	close(fd);
	unlink("locked");
}

int advise_probe_files(const char *dir)
{
	uint64_t set = 0;

	must(chdir(dir), dir);
	names();
	printf("file %.1f\n", files(NULL));
	files(&set);
	printf("attribute %.1f\n", (double)set / FEW);
	locks();
	return fflush(stdout) ? 1 : 0;
}

int advise_probe(const char *dir)
{
	must(chdir(dir), dir);
	sizes(cost_bytes[1]); /* what the first of its kind costs is not counted twice */
	for (int i = 0; i < COST_SIZES; i++)
		sizes(cost_bytes[i]);
	forced();
	printf("grant %.1f\n", files(NULL));
	return fflush(stdout) ? 1 : 0;
}

int advise_probe_once(const char *file)
{
	const int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	return fd < 0 || write(fd, buffer, cost_bytes[0]) < 0;
}
