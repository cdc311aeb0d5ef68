/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads write to one file at once, in pieces that take a while: appended records are there whole and in each thread's order,
 * overwrites that share blocks lose nothing of each other, and whoever reads sees each write whole or not at all. (The last is what POSIX
 * says, and what the library does; kernels keep it for some file systems only, and without the library it is not asked for.)
 */
#include "check.h"

#include <pthread.h>

enum { THREADS = 4, RECORDS = 250, RECORD_MAX = 40000, PIECES = 64, WRITTEN = 1 << 30, TAILS = 2000, TAIL_PIECE = 16384 };

struct record {
	uint32_t magic, who, number, length; /* length: of everything */
};

static int library, piece, rounds;
static int stop;
static uint32_t last[PIECES];

static size_t record(unsigned char *buf, uint32_t who, uint32_t number)
{
	const uint64_t x = (number * THREADS + who) * 0x9e3779b97f4a7c15ull;
	/* Most are long; some end where a block ends, and some are of whole blocks. */
	uint32_t n = (uint32_t)(x >> 40) % (number % 8 ? RECORD_MAX : 300) + sizeof(struct record);

	if (number % 3 == 0)
		n = (n + 4095) / 4096 * 4096;
	*(struct record *)buf = (struct record){0x5eedf00d, who, number, n};
	fill(buf + sizeof(struct record), n - sizeof(struct record), who, number);
	return n;
}

static void *append(void *arg)
{
	const uint32_t who = (uint32_t)(uintptr_t)arg;
	unsigned char *buf = malloc(2 * RECORD_MAX);
	int fd = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);

	CHECK(fd >= 0 && buf);
	for (uint32_t i = 0; i < RECORDS; i++) {
		const size_t n = record(buf, who, i);

		CHECK(write(fd, buf, n) == (ssize_t)n);
		if (i % 40 == 39)
			CHECK(fsync(fd) == 0);
	}
	CHECK(close(fd) == 0);
	free(buf);
	return NULL;
}

/* Follows the log; returns when it has seen all records of all threads. */
static void *follow(void *arg)
{
	unsigned char *buf = malloc(2 * RECORD_MAX), *want = malloc(2 * RECORD_MAX);
	uint32_t next[THREADS] = {0}, seen = 0;
	int fd = open("log", O_RDONLY | O_CREAT, 0644);
	off_t at = 0;

	(void)arg;
	CHECK(fd >= 0 && buf && want);
	while (seen < THREADS * RECORDS) {
		struct record r;
		ssize_t got = pread(fd, &r, sizeof(r), at), n;

		CHECK(got >= 0);
		if (got == 0 || (got < (ssize_t)sizeof(r) && !library))
			continue;
		CHECK(got == sizeof(r) && r.magic == 0x5eedf00d && r.who < THREADS && r.number == next[r.who]);
		n = (ssize_t)record(want, r.who, r.number);
		got = pread(fd, buf, (size_t)n, at);
		if (got < n && !library)
			continue;
		CHECK(r.length == (uint32_t)n && got == n && memcmp(buf, want, (size_t)n) == 0);
		next[r.who]++;
		seen++;
		at += n;
	}
	CHECK(size_of(fd) == at && close(fd) == 0);
	free(buf);
	free(want);
	return NULL;
}

static void stamp(uint32_t *buf, uint32_t value)
{
	for (int i = 0; i < piece / 4; i++)
		buf[i] = value;
}

/* Every thread has pieces of its own, which share their first and last blocks with others'; every other round one that all of them write. */
static void *overwrite(void *arg)
{
	const uint32_t who = (uint32_t)(uintptr_t)arg;
	uint32_t *buf = malloc((size_t)piece);
	int fd = open("pages", O_RDWR);

	CHECK(fd >= 0 && buf);
	for (uint32_t i = 0; i < (uint32_t)rounds * PIECES / THREADS; i++) {
		const uint32_t mine = (i * 7 % (PIECES / THREADS)) * THREADS + who, at = i % 2 ? PIECES : mine;

		stamp(buf, who << 24 | i);
		CHECK(pwrite(fd, buf, (size_t)piece, (off_t)at * piece) == piece);
		if (at == mine)
			last[mine] = who << 24 | i;
	}
	CHECK(close(fd) == 0);
	free(buf);
	return NULL;
}

static void *look(void *arg)
{
	uint32_t *buf = malloc((size_t)piece), i = (uint32_t)(uintptr_t)arg;
	int fd = open("pages", O_RDONLY);

	CHECK(fd >= 0 && buf);
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		const uint32_t at = i++ % 4 ? i * 13 % PIECES : PIECES;

		CHECK(pread(fd, buf, (size_t)piece, (off_t)at * piece) == piece);
		for (int k = 0; library && k < piece / 4; k++) {
			if (buf[k] != buf[0]) {
				fprintf(stderr, "piece %u of %d bytes: %08x and, at %d, %08x\n", at, piece, buf[0], k * 4,
					buf[k]);
				_exit(1);
			}
		}
	}
	CHECK(close(fd) == 0);
	free(buf);
	return NULL;
}

static void overwrites(int size)
{
	pthread_t writer[THREADS], reader[2];
	uint32_t *buf = malloc((size_t)size);
	int fd = open("pages", O_RDWR | O_CREAT | O_TRUNC, 0644);

	CHECK(fd >= 0 && buf);
	piece = size;
	rounds = size > 100000 ? WRITTEN / PIECES / size : 150;
	stamp(buf, 0);
	for (int i = 0; i <= PIECES; i++)
		CHECK(pwrite(fd, buf, (size_t)piece, (off_t)i * piece) == piece);
	CHECK(fsync(fd) == 0);
	__atomic_store_n(&stop, 0, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&writer[i], NULL, overwrite, (void *)(intptr_t)i) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&reader[i], NULL, look, (void *)(intptr_t)i) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(writer[i], NULL);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		pthread_join(reader[i], NULL);
	for (int i = 0; i < PIECES; i++) {
		CHECK(pread(fd, buf, (size_t)piece, (off_t)i * piece) == piece);
		for (int k = 0; k < piece / 4; k++)
			CHECK(buf[k] == last[i]);
	}
	CHECK(close(fd) == 0);
	free(buf);
}

/* Looks at the last bytes of each piece as soon as the file is that long. */
static void *look_at_tails(void *arg)
{
	int fd = open("tails", O_RDONLY);
	uint64_t end[8];

	(void)arg;
	CHECK(fd >= 0);
	for (uint64_t k = 0; k < TAILS; k++) {
		while (pread(fd, end, sizeof(end), (off_t)((k + 1) * TAIL_PIECE - sizeof(end))) < (ssize_t)sizeof(end))
			;
		for (int i = 0; library && i < 8; i++)
			CHECK(end[i] == k + 1);
		__atomic_store_n(&stop, (int)k + 1, __ATOMIC_RELEASE);
	}
	CHECK(close(fd) == 0);
	return NULL;
}

static void tails(void)
{
	int fd = open("tails", O_WRONLY | O_CREAT | O_APPEND, 0644);
	uint64_t *buf = malloc(TAIL_PIECE);
	pthread_t t;

	CHECK(fd >= 0 && buf);
	__atomic_store_n(&stop, 0, __ATOMIC_RELAXED);
	CHECK(pthread_create(&t, NULL, look_at_tails, NULL) == 0);
	for (uint64_t k = 0; k < TAILS; k++) {
		for (int i = 0; i < TAIL_PIECE / 8; i++)
			buf[i] = k + 1;
		CHECK(write(fd, buf, TAIL_PIECE) == TAIL_PIECE);
		while (__atomic_load_n(&stop, __ATOMIC_ACQUIRE) < (int)k)
			;
	}
	pthread_join(t, NULL);
	CHECK(close(fd) == 0 && unlink("tails") == 0);
	free(buf);
}

int main(void)
{
	pthread_t t[THREADS + 1];

	/* A file without a grant is the kernel's, with what that keeps. */
	library = getenv("LD_PRELOAD") != NULL && getenv("SPLITFS_GRANT") != NULL;
	CHECK(pthread_create(&t[THREADS], NULL, follow, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, append, (void *)(intptr_t)i) == 0);
	for (int i = 0; i <= THREADS; i++)
		pthread_join(t[i], NULL);
	tails();
	overwrites(16384);
	overwrites(10000);
	overwrites(2000);
	overwrites(256 << 10); /* more than there is staging space */
	return 0;
}
