/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads write the whole file, each time with one byte, as one call; others take snapshots: each is of one write and
 * stays so. On the plain kernel reads are as atomic as the file system makes them, so there only that they stay so.
 */
#include <pthread.h>

#include "peek.h"

enum { SIZE = 6 * BLOCK + 100, WRITERS = 2, READERS = 2, WRITES = 1500, KEPT = 8 };

static int fd;
static volatile int writing = WRITERS;

static void *writer(void *arg)
{
	unsigned char *buf = malloc(SIZE);

	for (int i = 0; i < WRITES; i++) {
		memset(buf, i * WRITERS + (int)(long)arg, SIZE);
		CHECK(pwrite(fd, buf, SIZE, 0) == SIZE);
		if (i % 100 == 99)
			CHECK(fsync(fd) == 0);
	}
	free(buf);
	__atomic_sub_fetch(&writing, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void *reader(void *arg)
{
	const unsigned char *kept[KEPT] = {0};
	unsigned char first[KEPT][SIZE];
	unsigned at = (unsigned)(long)arg;

	for (; writing > 0; at++) {
		const unsigned k = at % KEPT;
		size_t got;

		if (kept[k]) {
			CHECK(memcmp(kept[k], first[k], SIZE) == 0);
			CHECK(splitfs_unpeek(kept[k]) == 0);
		}
		kept[k] = splitfs_peek(fd, 0, SIZE, &got);
		CHECK(kept[k] && got == SIZE);
		memcpy(first[k], kept[k], SIZE);
		for (int i = 1; served() && i < SIZE; i++)
			CHECK(first[k][i] == first[k][0]);
	}
	for (unsigned k = 0; k < KEPT; k++)
		if (kept[k]) {
			CHECK(memcmp(kept[k], first[k], SIZE) == 0);
			CHECK(splitfs_unpeek(kept[k]) == 0);
		}
	return NULL;
}

int main(void)
{
	pthread_t t[WRITERS + READERS];
	char *zeros = calloc(1, SIZE);

	splitfs_flags(served() ? 0 : SPLITFS_COPY);
	fd = open("file", O_RDWR | O_CREAT, 0600);
	write_all(fd, zeros, SIZE);
	for (long i = 0; i < WRITERS + READERS; i++)
		CHECK(pthread_create(&t[i], NULL, i < WRITERS ? writer : reader, (void *)i) == 0);
	for (int i = 0; i < WRITERS + READERS; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	free(zeros);
	return 0;
}
