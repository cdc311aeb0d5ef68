/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes with several threads each append lines to one log, by one number each, and put the next log there by dup2 again and again, while
 * their threads write. Each line is whole, in one of the logs, once.
 */
#include "check.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

enum { LOGS = 40, THREADS = 2, LINES = 1500, PROCESSES = 2, LEN = 32 };

static int number, process;
static int threads_left;

static void name_of(char *name, int log)
{
	CHECK(snprintf(name, 16, "log%d", log) > 0);
}

static int open_log(int log)
{
	char name[16];
	int fd;

	name_of(name, log);
	fd = open(name, O_WRONLY | O_CREAT | O_APPEND, 0644);
	CHECK(fd >= 0);
	return fd;
}

static void *writes(void *arg)
{
	char line[LEN + 1];

	for (int i = 0; i < LINES; i++) {
		CHECK(snprintf(line, sizeof(line), "%d %d %05d %*s\n", process, *(int *)arg, i, LEN - 11, "x") == LEN);
		CHECK(write(number, line, LEN) == LEN);
	}
	__atomic_sub_fetch(&threads_left, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void run(int p)
{
	int which[THREADS];
	pthread_t t[THREADS];

	process = p;
	number = open_log(0);
	threads_left = THREADS;
	for (int i = 0; i < THREADS; i++) {
		which[i] = i;
		CHECK(pthread_create(&t[i], NULL, writes, &which[i]) == 0);
	}
	for (int log = 1; __atomic_load_n(&threads_left, __ATOMIC_ACQUIRE) > 0; log++) {
		const int fd = open_log(log % LOGS);

		CHECK(dup2(fd, number) == number && close(fd) == 0);
		usleep(100);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	CHECK(close(number) == 0);
}

static char seen[PROCESSES][THREADS][LINES];

static void read_log(int log)
{
	const int fd = open_log(log);
	char name[16], line[LEN + 1] = {0};
	int in, p, t, i;

	close(fd);
	name_of(name, log);
	in = open(name, O_RDONLY);
	CHECK(in >= 0 && size_of(in) % LEN == 0);
	while (read(in, line, LEN) == LEN) {
		CHECK(line[LEN - 1] == '\n' && sscanf(line, "%d %d %d", &p, &t, &i) == 3);
		CHECK(p >= 0 && p < PROCESSES && t >= 0 && t < THREADS && i >= 0 && i < LINES);
		CHECK(seen[p][t][i]++ == 0);
	}
	CHECK(close(in) == 0);
}

int main(void)
{
	pid_t pid[PROCESSES];

	alarm(100);
	for (int p = 0; p < PROCESSES; p++) {
		pid[p] = fork();
		CHECK(pid[p] >= 0);
		if (pid[p] == 0) {
			run(p);
			exit(0);
		}
	}
	for (int p = 0; p < PROCESSES; p++)
		CHECK(status_of(pid[p]) == 0);
	for (int log = 0; log < LOGS; log++)
		read_log(log);
	for (int p = 0; p < PROCESSES; p++)
		for (int t = 0; t < THREADS; t++)
			for (int i = 0; i < LINES; i++)
				CHECK(seen[p][t][i] == 1);
	return 0;
}
