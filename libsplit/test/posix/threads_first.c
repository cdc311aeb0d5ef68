/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads make the first calls on one descriptor at once: each byte is read by one of them, and whoever comes then goes on behind them. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 24, STEP = 7, ROUNDS = 300, SIZE = (THREADS + 2) * STEP };

static pthread_barrier_t barrier;
static int fd;
static unsigned char got[THREADS][STEP];

static void *reads(void *arg)
{
	unsigned char(*to)[STEP] = arg;

	for (int i = 0; i < ROUNDS; i++) {
		pthread_barrier_wait(&barrier);
		CHECK(read(fd, *to, STEP) == STEP);
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

/* The pieces are those of the file, in any order. */
static void check_all(void)
{
	unsigned char want[THREADS * STEP];

	fill(want, sizeof(want), 6, 0);
	for (int piece = 0; piece < THREADS; piece++) {
		int found = 0;

		for (int i = 0; i < THREADS; i++)
			found += memcmp(got[i], want + (size_t)piece * STEP, STEP) == 0;
		CHECK(found == 1);
	}
}

int main(void)
{
	pthread_t t[THREADS];
	unsigned char next[STEP], want[STEP];

	fd = open("f", O_RDWR | O_CREAT, 0644);
	CHECK(fd >= 0);
	put(fd, 6, 0, SIZE);
	CHECK(close(fd) == 0 && pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
	fill(want, STEP, 6, THREADS * STEP);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, reads, &got[i]) == 0);
	for (int i = 0; i < ROUNDS; i++) {
		fd = open("f", i % 2 ? O_RDONLY : O_RDWR);
		CHECK(fd >= 0);
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
		check_all();
		CHECK(read(fd, next, STEP) == STEP && memcmp(next, want, STEP) == 0);
		CHECK(lseek(fd, 0, SEEK_CUR) == (THREADS + 1) * STEP);
		CHECK((fcntl(fd, F_GETFL) & O_ACCMODE) == (i % 2 ? O_RDONLY : O_RDWR) && close(fd) == 0);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	return 0;
}
