/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A number is closed, or made another file's, and taken again by other files, while threads read by it that do not know. Who opens a file finds that
 * file under the number, and a duplicate is one of what the number led to before or after.
 */
#include "check.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>

enum { FILES = 4, THREADS = 2, CHANGES = 1500, LEN = 512 };

static int number;
static bool over;

static void *reads(void *arg)
{
	char buf[LEN];
	struct stat st;

	(void)arg;
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		ssize_t r = pread(number, buf, LEN, 0);

		CHECK(r == LEN || (r < 0 && (errno == EBADF || errno == ESPIPE)));
		CHECK(r < 0 || (buf[0] >= 'a' && buf[0] < 'a' + FILES && buf[0] == buf[LEN - 1]));
		CHECK(fstat(number, &st) == 0 || errno == EBADF);
	}
	return NULL;
}

/* What is behind fd is the file i, whichever way one looks. */
static void is_file(int fd, int i)
{
	char buf[LEN], mark[LEN];

	memset(mark, 'a' + i, LEN);
	CHECK(pread(fd, buf, LEN, 0) == LEN);
	CHECK(memcmp(buf, mark, LEN) == 0);
	CHECK(pwrite(fd, mark, LEN, 0) == LEN);
	CHECK(lseek(fd, 0, SEEK_CUR) == 0);
	CHECK(read(fd, buf, LEN) == LEN && memcmp(buf, mark, LEN) == 0);
	CHECK(lseek(fd, 0, SEEK_CUR) == LEN);
}

int main(void)
{
	pthread_t threads[THREADS];
	char name[FILES][8];

	alarm(100);
	for (int i = 0; i < FILES; i++) {
		char mark[LEN];

		CHECK(snprintf(name[i], 8, "c%d", i) == 2);
		memset(mark, 'a' + i, LEN);
		number = open(name[i], O_RDWR | O_CREAT, 0644);
		CHECK(number >= 0 && write(number, mark, LEN) == LEN);
		/* A read beside an open that has not returned yet may be the kernel's, to whom everything is to be known. */
		while (unseen_size(number) < LEN)
			usleep(1000);
		CHECK(i == FILES - 1 || close(number) == 0);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, reads, NULL) == 0);
	for (int i = 0; i < CHANGES; i++) {
		const int k = i % FILES;
		int fd, s[2];

		if (i % 2) {
			CHECK(close(number) == 0);
			CHECK(open(name[k], O_RDWR) == number);
		} else {
			fd = open(name[k], O_RDWR);
			CHECK(fd >= 0 && dup2(fd, number) == number && close(fd) == 0);
		}
		is_file(number, k);
		if (i % 16 == 0) {
			CHECK(close(number) == 0);
			CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 && s[0] == number);
			CHECK(write(s[0], "x", 1) == 1 && read(s[1], name[0] + 4, 1) == 1);
			CHECK(close(s[1]) == 0);
			name[0][4] = 0;
			fd = open(name[k], O_RDWR);
			CHECK(fd >= 0 && dup2(fd, number) == number && close(fd) == 0);
		}
	}
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(close(number) == 0);
	return 0;
}
