/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads patch and write the whole file, each time with one byte, as one call; others read it: each read is of one call. On the
 * plain kernel reads are as atomic as the file system makes them, so there only that nothing fails. Two threads that patch one
 * buffer: one of them does.
 */
#include <pthread.h>

#include "patch.h"

enum { SIZE = 6 * BLOCK + 100, WRITERS = 3, READERS = 2, WRITES = 800 };

static int fd, pool;
static volatile int writing = WRITERS;
static void *shared;
static int wins;

static void *writer(void *arg)
{
	for (int i = 0; i < WRITES; i++) {
		unsigned char *p = splitfs_alloc(pool, 0, SIZE);

		CHECK(p);
		memset(p, i * WRITERS + (int)(long)arg, SIZE);
		if ((i + (int)(long)arg) % 4)
			CHECK(splitfs_patch(fd, p, SIZE, 0) == SIZE);
		else
			CHECK(pwrite(fd, p, SIZE, 0) == SIZE);
		CHECK(splitfs_free(p) == 0);
		if (i % 100 == 99)
			CHECK(fsync(fd) == 0);
	}
	__atomic_sub_fetch(&writing, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void *reader(void *arg)
{
	unsigned char buf[SIZE];

	(void)arg;
	while (writing > 0) {
		CHECK(pread(fd, buf, SIZE, 0) == SIZE);
		for (int i = 1; served() && i < SIZE; i++)
			CHECK(buf[i] == buf[0]);
	}
	return NULL;
}

static void *rival(void *arg)
{
	const ssize_t r = splitfs_patch(fd, shared, SIZE, 0);

	(void)arg;
	CHECK(r == SIZE || (r == -1 && (errno == EINVAL || errno == EBUSY)));
	__atomic_add_fetch(&wins, r == SIZE, __ATOMIC_SEQ_CST);
	return NULL;
}

static void rivals(void)
{
	pthread_t t[2];

	for (int round = 0; round < 100; round++) {
		shared = filled(pool, (unsigned)round, 0, SIZE);
		wins = 0;
		for (int i = 0; i < 2; i++)
			CHECK(pthread_create(&t[i], NULL, rival, NULL) == 0);
		for (int i = 0; i < 2; i++)
			CHECK(pthread_join(t[i], NULL) == 0);
		CHECK(wins == 1 && splitfs_free(shared) == 0);
		expect(fd, (unsigned)round, 0, SIZE);
	}
}

int main(void)
{
	pthread_t t[WRITERS + READERS];
	char *zeros = calloc(1, SIZE);

	splitfs_flags(served() ? 0 : SPLITFS_COPY);
	fd = open("file", O_RDWR | O_CREAT, 0600);
	pool = pool_here(4 << 20);
	write_all(fd, zeros, SIZE);
	rivals();
	CHECK(pwrite(fd, zeros, SIZE, 0) == SIZE); /* of one call, too, for who reads before the first writer writes */
	for (long i = 0; i < WRITERS + READERS; i++)
		CHECK(pthread_create(&t[i], NULL, i < WRITERS ? writer : reader, (void *)i) == 0);
	for (int i = 0; i < WRITERS + READERS; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	CHECK(splitfs_pool_destroy(pool) == 0);
	free(zeros);
	return 0;
}
