/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call by which the kernel changes a file waits for its bytes; another thread writes to the same block meanwhile, or appends. The bytes of both
 * are in the file. And calls of both kinds one after the other, by two threads, each of which finds what it has written.
 */
#include "check.h"

#include <pthread.h>
#include <stdbool.h>

#define BLOCK	4096
#define ROUNDS	2000
#define NUMBERS 512u

static int fd, pipes[2], numbers;

static void *splices(void *arg)
{
	off_t off = 8;

	(void)arg;
	CHECK(splice(pipes[0], NULL, fd, &off, 8, 0) == 8);
	return NULL;
}

static void holds(off_t at, const char *bytes)
{
	char found[8];

	CHECK(pread(fd, found, 8, at) == 8 && memcmp(found, bytes, 8) == 0);
}

static void waits(bool appends)
{
	const ssize_t size = appends ? 16 : BLOCK;
	const off_t at = appends ? 16 : BLOCK / 2;
	static const char zeros[BLOCK];
	pthread_t t;

	CHECK(pipe(pipes) == 0);
	fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(fd >= 0 && write(fd, zeros, (size_t)size) == size && fsync(fd) == 0);
	CHECK(pthread_create(&t, NULL, splices, NULL) == 0);
	usleep(50000);
	CHECK(appends ? write(fd, "A THREAD", 8) == 8 : pwrite(fd, "A THREAD", 8, at) == 8);
	CHECK(write(pipes[1], "spliced!", 8) == 8);
	CHECK(pthread_join(t, NULL) == 0);
	holds(8, "spliced!");
	holds(at, "A THREAD");
	CHECK(fsync(fd) == 0);
	holds(8, "spliced!");
	holds(at, "A THREAD");
	CHECK(close(fd) == 0 && close(pipes[0]) == 0 && close(pipes[1]) == 0);
}

/* A number that only this thread writes, by a call or by the kernel's. */
static void *writes(void *arg)
{
	const bool by_copy = arg;
	const off_t at = by_copy ? 512 : 1024;

	for (uint64_t i = 1; i <= ROUNDS; i++) {
		const uint64_t number = i % NUMBERS;
		off_t from = (off_t)(number * sizeof(number)), to = at;
		uint64_t found;

		CHECK((by_copy ? copy_file_range(numbers, &from, fd, &to, 8, 0) : pwrite(fd, &number, 8, at)) == 8);
		CHECK(pread(fd, &found, 8, at) == 8 && found == number);
	}
	return NULL;
}

static void by_turns(void)
{
	uint64_t each[NUMBERS];
	pthread_t t;

	for (uint64_t i = 0; i < NUMBERS; i++)
		each[i] = i;
	numbers = open("numbers", O_RDWR | O_CREAT | O_TRUNC, 0600);
	fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(write(numbers, each, sizeof(each)) == sizeof(each) && write(fd, each, sizeof(each)) == sizeof(each));
	CHECK(fsync(fd) == 0 && fsync(numbers) == 0);
	CHECK(pthread_create(&t, NULL, writes, &fd) == 0);
	writes(NULL);
	CHECK(pthread_join(t, NULL) == 0);
}

int main(void)
{
	waits(false);
	waits(true);
	by_turns();
	return 0;
}
