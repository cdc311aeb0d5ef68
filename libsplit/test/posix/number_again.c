/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel gives the number of a deleted file to the next one. Nothing that was known of the old one is taken for the new one's, also
 * while another thread looks at whatever has the name.
 */
#include "check.h"

#include <pthread.h>
#include <stdbool.h>

enum { FILES = 4000, SIZE = 1000, WRITES = 4 };

static bool over;

static void *looks(void *arg)
{
	struct stat st;
	int fd;

	(void)arg;
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		CHECK(stat("again", &st) == 0 || errno == ENOENT);
		fd = open("again", O_RDONLY);
		CHECK(fd >= 0 || errno == ENOENT);
		CHECK(fd < 0 || close(fd) == 0);
	}
	return NULL;
}

int main(void)
{
	pthread_t thread;

	alarm(100);
	CHECK(pthread_create(&thread, NULL, looks, NULL) == 0);
	for (unsigned i = 0; i < FILES; i++) {
		const int fd = open("again", O_RDWR | O_CREAT | O_EXCL, 0644);

		CHECK(fd >= 0);
		for (unsigned k = 0; k < WRITES; k++)
			put(fd, i, k * SIZE, SIZE);
		expect(fd, i, 0, WRITES * SIZE);
		CHECK(size_of(fd) == WRITES * SIZE);
		CHECK(close(fd) == 0 && unlink("again") == 0);
	}
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	CHECK(pthread_join(thread, NULL) == 0);
	return 0;
}
