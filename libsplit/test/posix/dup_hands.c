/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads duplicate a descriptor while another thread makes its number other files' in turn: each duplicate is one of a file as a whole, whatever one
 * does by it, and shares the offset of nobody but of its own description.
 */
#include "check.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

enum { FILES = 4, THREADS = 3, CHANGES = 1000, LEN = 512 };

static int number;
static bool over;
static ino_t inos[FILES];

static void is_whole(int fd)
{
	char buf[LEN];
	struct stat st;

	CHECK(unseen(SYS_fstat, fd, (long)&st, 0, 0) == 0);
	CHECK(pread(fd, buf, LEN, 0) == LEN);
	CHECK(buf[0] >= 'a' && buf[0] < 'a' + FILES && inos[buf[0] - 'a'] == st.st_ino);
	CHECK(pwrite(fd, buf, LEN, LEN) == LEN);
	CHECK(pread(fd, buf + 1, 1, LEN) == 1 && buf[1] == buf[0]);
	CHECK(lseek(fd, 0, SEEK_CUR) == 0);
}

static void *calls(void *arg)
{
	for (long i = (long)arg; !__atomic_load_n(&over, __ATOMIC_RELAXED); i++) {
		int fd = i % 2 ? dup(number) : fcntl(number, F_DUPFD_CLOEXEC, 100);

		CHECK(fd >= 0);
		is_whole(fd);
		CHECK(close(fd) == 0);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	char name[FILES][8];
	struct stat st;

	alarm(100);
	for (int i = 0; i < FILES; i++) {
		char mark[2 * LEN];

		CHECK(snprintf(name[i], 8, "d%d", i) == 2);
		memset(mark, 'a' + i, sizeof(mark));
		number = open(name[i], O_RDWR | O_CREAT, 0644);
		CHECK(number >= 0 && pwrite(number, mark, sizeof(mark), 0) == sizeof(mark) && fstat(number, &st) == 0);
		inos[i] = st.st_ino;
		CHECK(i == FILES - 1 || close(number) == 0);
	}
	for (long i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, calls, (void *)i) == 0);
	for (int i = 0; i < CHANGES; i++) {
		int fd = open(name[i % FILES], O_RDWR);

		CHECK(fd >= 0 && dup2(fd, number) == number && close(fd) == 0);
		is_whole(number);
	}
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	for (int i = 0; i < FILES; i++) {
		int fd = open(name[i], O_RDONLY);
		char buf[2 * LEN];

		CHECK(fd >= 0 && read(fd, buf, sizeof(buf)) == sizeof(buf));
		for (size_t k = 0; k < sizeof(buf); k++)
			CHECK(buf[k] == 'a' + i);
		CHECK(close(fd) == 0);
	}
	return 0;
}
