/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In strict: a thread and a process read two ranges of a file that are written together, and see both of one call; another
 * process writes the same files together the other way round, and nobody waits for ever. A writer is killed: both files have all of the same
 * calls.
 */
#include <pthread.h>
#include <signal.h>

#include "patch.h"

enum { FAR = 20 * BLOCK + 100, N = 300, CALLS = 1500 };

static int fds[2];
static volatile int over;

/* Everywhere the same number. */
static void write_number(const int f[2], uint32_t number, int turned)
{
	uint32_t words[N / 4];
	struct splitfs_range r[3];

	for (int i = 0; i < N / 4; i++)
		words[i] = number;
	r[0] = (struct splitfs_range){f[turned], 0, words, sizeof(words)};
	r[1] = (struct splitfs_range){f[turned], FAR, words, sizeof(words)};
	r[2] = (struct splitfs_range){f[!turned], 50, words, sizeof(words)};
	CHECK(splitfs_write_atomic(r, 3) == 0);
}

static uint32_t number_at(int fd, off_t off)
{
	uint32_t words[N / 4];

	CHECK(pread(fd, words, sizeof(words), off) == sizeof(words));
	for (int i = 1; i < N / 4; i++)
		CHECK(words[i] == words[0]);
	return words[0];
}

static void *reader(void *arg)
{
	static char all[FAR + N];
	uint32_t a, b;

	(void)arg;
	while (!over) {
		CHECK(pread(fds[0], all, sizeof(all), 0) == sizeof(all));
		memcpy(&a, all + 52, 4);
		memcpy(&b, all + FAR + 52, 4);
		CHECK(a == b);
	}
	return NULL;
}

static void together(void)
{
	const pid_t pid = fork();
	pthread_t t;

	CHECK(pid >= 0);
	if (pid == 0) {
		const int f[2] = {open("file0", O_RDWR), open("file1", O_RDWR)};

		for (uint32_t i = 0; i < CALLS / 10; i++)
			write_number(f, i, 0);
		_exit(0);
	}
	CHECK(pthread_create(&t, NULL, reader, NULL) == 0);
	for (uint32_t i = 0; i < CALLS / 10; i++)
		write_number(fds, 1000000 + i, 0);
	CHECK(status_of(pid) == 0);
	for (uint32_t i = 0; i < CALLS; i++)
		write_number(fds, i, 0);
	over = 1;
	CHECK(pthread_join(t, NULL) == 0);
	CHECK(number_at(fds[0], 0) == CALLS - 1 && number_at(fds[0], FAR) == CALLS - 1 && number_at(fds[1], 50) == CALLS - 1);
}

static void killed(void)
{
	int pipes[2];
	uint32_t last = 0, number;
	pid_t pid;

	CHECK(pipe(pipes) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		const int f[2] = {open("file0", O_RDWR), open("file1", O_RDWR)};

		for (uint32_t i = 0;; i++) {
			write_number(f, i, 0);
			CHECK(write(pipes[1], &i, 4) == 4);
		}
	}
	close(pipes[1]);
	while (last < 300)
		CHECK(read(pipes[0], &last, 4) == 4);
	CHECK(kill(pid, SIGKILL) == 0 && status_of(pid) == 128 + SIGKILL);
	while (read(pipes[0], &last, 4) == 4)
		;
	close(pipes[0]);
	for (int i = 0; i < 200 && number_at(fds[1], 50) < last; i++)
		usleep(50000);
	number = number_at(fds[1], 50);
	CHECK(number == last || number == last + 1);
	CHECK(number_at(fds[0], 0) == number && number_at(fds[0], FAR) == number);
}

int main(void)
{
	const char *config = getenv("SPLITFS_CONFIG");

	if (!config || strncmp(config, "strict:", 7) != 0)
		return 0;
	for (int f = 0; f < 2; f++) {
		fds[f] = open(f ? "file1" : "file0", O_RDWR | O_CREAT, 0600);
		put(fds[f], 1, 0, FAR + N);
	}
	write_number(fds, 0, 0);
	together();
	killed();
	return 0;
}
