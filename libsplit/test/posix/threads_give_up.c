/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that write to a file without a pause do not keep another process from opening and reading it, and do not run out of space for what
 * is as large as before.
 */
#include "check.h"

#include <pthread.h>
#include <time.h>

enum { THREADS = 4, PIECE = 256 << 10, LIMIT = 60 };

static int stop;

static void *overwrite(void *arg)
{
	const intptr_t who = (intptr_t)arg;
	char *buf = malloc(PIECE);
	int fd = open("f", O_WRONLY);

	CHECK(fd >= 0 && buf);
	memset(buf, (int)who, PIECE);
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		CHECK(pwrite(fd, buf, PIECE, who * PIECE) == PIECE);
	CHECK(close(fd) == 0);
	free(buf);
	return NULL;
}

/* The other process: another program, as far as files go. */
static int look(void)
{
	int fd = open("f", O_RDONLY);
	char c;

	CHECK(fd >= 0 && pread(fd, &c, 1, PIECE + 1) == 1 && c == 1);
	return 0;
}

int main(int argc, char **argv)
{
	const time_t began = time(NULL);
	int fd = argc > 1 ? -1 : open("f", O_RDWR | O_CREAT | O_TRUNC, 0644), status;
	pthread_t t[THREADS];
	pid_t pid;

	if (argc > 1)
		return look();
	CHECK(fd >= 0);
	for (int i = 0; i < THREADS; i++) {
		char *buf = malloc(PIECE);

		CHECK(buf);
		memset(buf, i, PIECE);
		CHECK(pwrite(fd, buf, PIECE, (off_t)i * PIECE) == PIECE);
		free(buf);
	}
	CHECK(fsync(fd) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, overwrite, (void *)(intptr_t)i) == 0);
	usleep(200000);
	pid = fork();
	if (pid == 0) {
		execl("/proc/self/exe", argv[0], "look", NULL);
		_exit(127);
	}
	while (waitpid(pid, &status, WNOHANG) == 0) {
		/* As long as the writers write, and no longer: that would be its turn whatever happens. */
		CHECK(time(NULL) - began < LIMIT);
		usleep(10000);
	}
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	sleep(1);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	CHECK(close(fd) == 0);
	return 0;
}
