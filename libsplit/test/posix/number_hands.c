/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A descriptor's number changes hands, and files are closed for good, while other threads read and write by it. Which of the files a call is for
 * nobody can say; it is one of them, every call succeeds, and nobody waits for ever.
 */
#include "check.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

enum { FILES = 4, THREADS = 3, CHANGES = 3000, LEN = 512, SIZE = 64 * LEN };

static int number;
static bool over;

static void name_of(char *name, int i)
{
	CHECK(snprintf(name, 8, "h%d", i % FILES) == 2);
}

static void *calls(void *arg)
{
	char buf[LEN], mark[LEN];

	(void)arg;
	memset(mark, 'm', sizeof(mark));
	for (int i = 0; !__atomic_load_n(&over, __ATOMIC_RELAXED); i++) {
		CHECK(pwrite(number, mark, LEN, i % 64 * LEN) == LEN);
		CHECK(pread(number, buf, LEN, i % 64 * LEN) == LEN);
		CHECK(buf[0] == 'm' || buf[0] == 'o');
		CHECK(write(number, mark, LEN) == LEN);
		CHECK(lseek(number, 0, SEEK_SET) == 0);
		CHECK(read(number, buf, LEN) >= 0);
		if (i % 8 == 7)
			CHECK(fdatasync(number) == 0);
	}
	return NULL;
}

static void whole(int i)
{
	static char buf[SIZE];
	char name[8];
	int fd;

	name_of(name, i);
	fd = open(name, O_RDONLY);
	CHECK(fd >= 0 && pread(fd, buf, SIZE, 0) == SIZE);
	for (int k = 0; k < SIZE; k++)
		CHECK(buf[k] == 'm' || buf[k] == 'o');
	CHECK(close(fd) == 0);
}

int main(void)
{
	pthread_t threads[THREADS];
	static char old[SIZE];
	char name[8];

	alarm(100);
	memset(old, 'o', sizeof(old));
	for (int i = 0; i < FILES; i++) {
		name_of(name, i);
		number = open(name, O_RDWR | O_CREAT, 0644);
		CHECK(number >= 0 && write(number, old, SIZE) == SIZE);
		CHECK(i == FILES - 1 || close(number) == 0);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, calls, NULL) == 0);
	for (int i = 0; i < CHANGES; i++) {
		int fd;

		name_of(name, i);
		fd = open(name, O_RDWR);
		CHECK(fd >= 0 && dup2(fd, number) == number && close(fd) == 0);
	}
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	for (int i = 0; i < FILES; i++)
		whole(i);
	CHECK(close(number) == 0);
	return 0;
}
