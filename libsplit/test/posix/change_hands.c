/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A descriptor's number changes hands while other threads have the kernel change the file by it: cut it off, allocate, copy into it, write past the
 * caches. Each call is for one of the files and succeeds, and every byte is there afterwards.
 */
#include "check.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

enum { FILES = 4, THREADS = 3, CHANGES = 2000, LEN = 512, SIZE = 64 * LEN };

static int number, source;
static bool over;

static void name_of(char *name, int i)
{
	CHECK(snprintf(name, 8, "c%d", i % FILES) == 2);
}

static void *calls(void *arg)
{
	char mark[LEN];
	struct iovec iov = {mark, LEN};

	(void)arg;
	memset(mark, 'm', sizeof(mark));
	for (int i = 0; !__atomic_load_n(&over, __ATOMIC_RELAXED); i++) {
		off_t from = 0, to = i % 64 * LEN;

		CHECK(ftruncate(number, SIZE) == 0);
		CHECK(posix_fallocate(number, 0, SIZE) == 0);
		CHECK(pwritev2(number, &iov, 1, i % 64 * LEN, RWF_DSYNC) == LEN);
		CHECK(copy_file_range(source, &from, number, &to, LEN, 0) == LEN);
		CHECK(lseek(number, 0, SEEK_SET) == 0);
		from = 0;
		CHECK(sendfile(number, source, &from, LEN) == LEN);
		CHECK(lseek(number, 0, SEEK_END) >= SIZE);
		CHECK(lseek(number, 0, SEEK_SET) == 0);
		if (i % 4 == 3)
			CHECK(fsync(number) == 0);
	}
	return NULL;
}

static void whole(int i)
{
	static char buf[SIZE];
	char name[8];
	struct stat st;
	int fd;

	name_of(name, i);
	fd = open(name, O_RDONLY);
	CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_size >= SIZE && pread(fd, buf, SIZE, 0) == SIZE);
	for (int k = 0; k < SIZE; k++)
		CHECK(buf[k] == 'm' || buf[k] == 'o');
	CHECK(close(fd) == 0);
}

static void make(const char *name, const char *bytes)
{
	const int fd = open(name, O_RDWR | O_CREAT, 0644);

	CHECK(fd >= 0 && write(fd, bytes, SIZE) == SIZE && close(fd) == 0);
}

int main(void)
{
	pthread_t threads[THREADS];
	static char old[SIZE];
	char name[8];

	alarm(100);
	memset(old, 'm', sizeof(old));
	make("source", old);
	source = open("source", O_RDONLY);
	memset(old, 'o', sizeof(old));
	for (int i = 0; i < FILES; i++) {
		name_of(name, i);
		make(name, old);
	}
	number = open(name, O_RDWR);
	CHECK(source >= 0 && number >= 0);
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
	CHECK(close(number) == 0 && close(source) == 0);
	return 0;
}
