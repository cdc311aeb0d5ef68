/* SPDX-License-Identifier: Apache-2.0 */
/*
 * splitfs_swap(3): two ranges change places, at any offset, staged or not, also where somebody looks at one of them. What is wrong has an
 * errno, and nothing changes. Without the library it is ENOTSUP. A process that is killed leaves both or neither.
 */
#include <pthread.h>
#include <signal.h>

#include "patch.h"

enum { SIZE = 20 * BLOCK + 77, ROUNDS = 400 };

static int a, b;

static void fresh(int synced)
{
	a = open("a", O_RDWR | O_CREAT | O_TRUNC, 0600);
	b = open("b", O_RDWR | O_CREAT | O_TRUNC, 0600);
	put(a, 1, 0, SIZE);
	put(b, 2, 0, SIZE);
	if (synced)
		CHECK(fsync(a) == 0 && fsync(b) == 0);
}

static void stale(void)
{
	CHECK(close(a) == 0 && close(b) == 0);
}

/* n bytes at `off` are those that pattern `seed` has at `from`. */
static void expect_moved(int fd, unsigned seed, off_t off, off_t from, size_t n)
{
	unsigned char *buf = malloc(n);

	CHECK(buf && pread(fd, buf, n, off) == (ssize_t)n);
	expect_snapshot(buf, seed, from, n);
	free(buf);
}

static void one(off_t x, off_t y, size_t n, int synced)
{
	const void *p;
	size_t got;

	fresh(synced);
	p = splitfs_peek(a, 0, SIZE, &got);
	CHECK(splitfs_swap(a, x, b, y, n) == 0);
	for (int round = 0; round < 2; round++) {
		CHECK(size_of(a) == SIZE && size_of(b) == SIZE);
		expect(a, 1, 0, (size_t)x);
		expect_moved(a, 2, x, y, n);
		expect(a, 1, x + (off_t)n, SIZE - (size_t)x - n);
		expect(b, 2, 0, (size_t)y);
		expect_moved(b, 1, y, x, n);
		expect(b, 2, y + (off_t)n, SIZE - (size_t)y - n);
		CHECK(fsync(a) == 0 && fsync(b) == 0);
	}
	if (p) {
		expect_snapshot(p, 1, 0, SIZE);
		CHECK(splitfs_unpeek(p) == 0);
	}
	put(a, 3, 0, SIZE);
	expect_moved(b, 1, y, x, n);
	stale();
}

static void errors(void)
{
	const int in = open("a", O_RDONLY), out = open("a", O_WRONLY), again = open("a", O_RDWR),
		  shm = open("/dev/shm", O_RDWR | O_TMPFILE, 0600);

	fresh(0);
	FAILS(splitfs_swap(a, 0, a, BLOCK, BLOCK), EINVAL);
	FAILS(splitfs_swap(a, 0, again, BLOCK, BLOCK), EINVAL);
	FAILS(splitfs_swap(-1, 0, b, 0, BLOCK), EBADF);
	FAILS(splitfs_swap(a, 0, 999, 0, BLOCK), EBADF);
	FAILS(splitfs_swap(in, 0, b, 0, BLOCK), EBADF);
	FAILS(splitfs_swap(b, 0, out, 0, BLOCK), EBADF);
	FAILS(splitfs_swap(a, 0, shm, 0, 0), ENOTSUP);
	FAILS(splitfs_swap(a, -1, b, 0, 1), EINVAL);
	FAILS(splitfs_swap(a, 0, b, -1, 1), EINVAL);
	FAILS(splitfs_swap(a, 0, b, 0, (size_t)SSIZE_MAX + 1), EINVAL);
	FAILS(splitfs_swap(a, 0, b, SIZE - 5, 6), EINVAL);
	FAILS(splitfs_swap(a, SIZE - 5, b, 0, 6), EINVAL);
	CHECK(splitfs_swap(a, 0, b, 0, 0) == 0);
	expect(a, 1, 0, SIZE);
	expect(b, 2, 0, SIZE);
	stale();
}

static volatile int over;

/* The whole of a file, each time with one byte. */
static void *writer(void *arg)
{
	static unsigned char bytes[SIZE];

	for (unsigned i = 0; !over; i++) {
		memset(bytes, (int)i, SIZE);
		CHECK(pwrite(*(int *)arg, bytes, SIZE, 0) == SIZE);
	}
	return NULL;
}

static void *reader(void *arg)
{
	static unsigned char buf[SIZE];

	while (!over) {
		CHECK(pread(*(int *)arg, buf, SIZE, 0) == SIZE);
		for (int i = 1; i < SIZE; i++)
			CHECK(buf[i] == buf[0]);
	}
	return NULL;
}

static void threads(void)
{
	static unsigned char zeros[SIZE];
	pthread_t t[2];

	fresh(0);
	CHECK(pwrite(a, zeros, SIZE, 0) == SIZE && pwrite(b, zeros, SIZE, 0) == SIZE);
	CHECK(pthread_create(&t[0], NULL, writer, &a) == 0 && pthread_create(&t[1], NULL, reader, &b) == 0);
	for (int i = 0; i < ROUNDS; i++)
		CHECK(splitfs_swap(i % 2 ? a : b, 0, i % 2 ? b : a, 0, SIZE) == 0);
	over = 1;
	CHECK(pthread_join(t[0], NULL) == 0 && pthread_join(t[1], NULL) == 0);
	stale();
}

static void killed(void)
{
	static unsigned char x[SIZE], y[SIZE], one_of[SIZE], two_of[SIZE];
	pid_t pid;
	int moved = 0;

	fill(one_of, SIZE, 1, 0);
	fill(two_of, SIZE, 2, 0);
	fresh(1);
	stale();
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		a = open("a", O_RDWR);
		b = open("b", O_RDWR);
		for (;;)
			CHECK(splitfs_swap(a, 0, b, 0, SIZE) == 0);
	}
	usleep(100000);
	CHECK(kill(pid, SIGKILL) == 0 && status_of(pid) == 128 + SIGKILL);
	usleep(200000);
	a = open("a", O_RDWR);
	b = open("b", O_RDWR);
	CHECK(pread(a, x, SIZE, 0) == SIZE && pread(b, y, SIZE, 0) == SIZE);
	moved = memcmp(x, two_of, SIZE) == 0;
	CHECK(memcmp(x, moved ? two_of : one_of, SIZE) == 0 && memcmp(y, moved ? one_of : two_of, SIZE) == 0);
	stale();
}

int main(void)
{
	static const off_t offs[][2] = {{0, 0}, {BLOCK, 5 * BLOCK}, {BLOCK + 3, 3}, {7, 4 * BLOCK + 9}};
	static const size_t lens[] = {1, BLOCK, 8 * BLOCK, 8 * BLOCK + 5, 100};

	if (!served()) {
		fresh(0);
		FAILS(splitfs_swap(a, 0, b, 0, BLOCK), ENOTSUP);
		return 0;
	}
	for (size_t i = 0; i < sizeof(offs) / sizeof(offs[0]); i++)
		for (size_t k = 0; k < sizeof(lens) / sizeof(lens[0]); k++)
			one(offs[i][0], offs[i][1], lens[k], (i + k) % 2);
	errors();
	threads();
	for (int i = 0; i < 5; i++)
		killed();
	return 0;
}
