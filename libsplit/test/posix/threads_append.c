/* SPDX-License-Identifier: Apache-2.0 */
/* Threads append lines through one O_APPEND descriptor, through one without, and through their own: none is lost or torn. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 4, LINES = 3000, WIDTH = 24, ROUNDS = 400 };

static int fds[THREADS];

static void *append(void *arg)
{
	int who = (int)(intptr_t)arg;
	char line[WIDTH + 1];

	for (int i = 0; i < LINES; i++) {
		snprintf(line, sizeof(line), "%d %08d %012d", who, i, i * 7);
		line[WIDTH - 1] = '\n';
		CHECK(write(fds[who], line, WIDTH) == WIDTH);
	}
	return NULL;
}

static void run(const char *path)
{
	pthread_t t[THREADS];
	int next[THREADS] = {0}, fd = open(path, O_RDONLY);
	char line[WIDTH];

	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, append, (void *)(intptr_t)i) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	CHECK(size_of(fd) == THREADS * LINES * WIDTH);
	for (int n = 0; n < THREADS * LINES; n++) {
		int who, i, x;

		CHECK(read(fd, line, WIDTH) == WIDTH && line[WIDTH - 1] == '\n');
		CHECK(sscanf(line, "%d %d %d", &who, &i, &x) == 3 && x == i * 7 && i == next[who]++);
	}
	CHECK(close(fd) == 0);
}

static void *append_one(void *arg)
{
	CHECK(write(fds[0], "same\n", 5) == 5);
	return arg;
}

/* The kernel moves the offset of a description with each append; so the last one that was made has moved it last. */
static void offset_behind_all(void)
{
	pthread_t t[THREADS];

	for (int round = 1; round <= ROUNDS; round++) {
		for (int i = 0; i < THREADS; i++)
			CHECK(pthread_create(&t[i], NULL, append_one, NULL) == 0);
		for (int i = 0; i < THREADS; i++)
			pthread_join(t[i], NULL);
		CHECK(size_of(fds[0]) == round * THREADS * 5);
		CHECK(lseek(fds[0], 0, SEEK_CUR) == round * THREADS * 5);
		if (round % 16 == 0)
			CHECK(lseek(fds[0], 0, SEEK_SET) == 0);
	}
}

int main(void)
{
	int one = open("a", O_WRONLY | O_CREAT | O_APPEND, 0644), plain = open("b", O_WRONLY | O_CREAT, 0644);

	for (int i = 0; i < THREADS; i++)
		fds[i] = one;
	run("a");
	for (int i = 0; i < THREADS; i++)
		fds[i] = i & 1 ? plain : dup(plain); /* one offset for all */
	run("b");
	for (int i = 0; i < THREADS; i++)
		CHECK((fds[i] = open("c", O_WRONLY | O_CREAT | O_APPEND, 0644)) >= 0);
	run("c");
	CHECK((fds[0] = open("d", O_RDWR | O_CREAT | O_APPEND, 0644)) >= 0);
	offset_behind_all();
	return 0;
}
