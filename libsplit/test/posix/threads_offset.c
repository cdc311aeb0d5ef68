/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that share a description share its offset: what several write by it stands in the file once each and without gaps, and what they
 * read by it each of them gets once, from the first call on, when the kernel serves the file still, and beyond; also while another process
 * looks at the file and changes it, so that it goes back to the kernel again and again. A lseek() from the offset takes a place like a read.
 */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>

enum { ROUNDS = 60, THREADS = 3, RECORDS = 60, SIZE = 1700 };

struct record {
	uint32_t thread, number;
	unsigned char fill[SIZE - 8];
};

struct job {
	pthread_t thread;
	uint32_t number;
	int fd;
	bool seeks;
	unsigned char seen[THREADS * RECORDS];
};

static void *writes(void *arg)
{
	struct job *j = arg;
	struct record r;

	for (uint32_t i = 0; i < RECORDS; i++) {
		r = (struct record){.thread = j->number, .number = i};
		memset(r.fill, (int)(j->number + i), sizeof(r.fill));
		CHECK(write(j->fd, &r, sizeof(r)) == sizeof(r));
	}
	return NULL;
}

static void note(struct job *j, const struct record *r)
{
	CHECK(r->thread < THREADS && r->number < RECORDS);
	for (size_t i = 0; i < sizeof(r->fill); i++)
		CHECK(r->fill[i] == (unsigned char)(r->thread + r->number));
	j->seen[r->thread * RECORDS + r->number]++;
}

static void *reads(void *arg)
{
	struct job *j = arg;
	struct record r;
	ssize_t n;

	for (;;) {
		if (j->seeks) {
			const off_t at = lseek(j->fd, sizeof(r), SEEK_CUR);

			CHECK(at >= (off_t)sizeof(r));
			n = pread(j->fd, &r, sizeof(r), at - (off_t)sizeof(r));
		} else {
			n = read(j->fd, &r, sizeof(r));
		}
		if (n == 0)
			break;
		CHECK(n == sizeof(r));
		note(j, &r);
	}
	return NULL;
}

/* All of them at once. */
static void run(struct job job[THREADS], int fd, void *(*what)(void *), bool seeks)
{
	for (uint32_t i = 0; i < THREADS; i++) {
		job[i] = (struct job){.number = i, .fd = fd, .seeks = seeks && i == 0};
		CHECK(pthread_create(&job[i].thread, NULL, what, &job[i]) == 0);
	}
	for (uint32_t i = 0; i < THREADS; i++)
		CHECK(pthread_join(job[i].thread, NULL) == 0);
}

/* Another process: the first byte is what it is, and is written nevertheless. */
static void disturb(void)
{
	char byte;

	alarm(100);
	for (;;) {
		const int fd = open("shared", O_RDWR);

		if (fd < 0)
			continue;
		if (pread(fd, &byte, 1, 8) == 1)
			CHECK(pread(fd, &byte, 1, 3) == 1 && byte == 0 && pwrite(fd, &byte, 1, 3) == 1);
		CHECK(close(fd) == 0);
		usleep(500);
	}
}

int main(void)
{
	static struct job job[THREADS];
	pid_t other = 0;
	int fd;

	alarm(100);
	for (unsigned round = 0; round < 2 * ROUNDS; round++) {
		if (round == ROUNDS) {
			other = fork();
			CHECK(other >= 0);
			if (other == 0)
				disturb();
		}
		fd = open("shared", O_RDWR | O_CREAT | O_TRUNC, 0644);
		CHECK(fd >= 0);
		run(job, fd, writes, false);
		CHECK(size_of(fd) == THREADS * RECORDS * SIZE);
		CHECK(lseek(fd, 0, SEEK_CUR) == THREADS * RECORDS * SIZE);
		/* By the same description, or by one that begins anew. */
		if (round % 2) {
			CHECK(close(fd) == 0);
			fd = open("shared", O_RDONLY);
			CHECK(fd >= 0);
		}
		CHECK(lseek(fd, 0, SEEK_SET) == 0);
		run(job, fd, reads, round % 4 >= 2);
		for (unsigned i = 0; i < THREADS * RECORDS; i++)
			CHECK(job[0].seen[i] + job[1].seen[i] + job[2].seen[i] == 1);
		CHECK(close(fd) == 0);
	}
	CHECK(kill(other, SIGKILL) == 0 && waitpid(other, NULL, 0) == other);
	return 0;
}
