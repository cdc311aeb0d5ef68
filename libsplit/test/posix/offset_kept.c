/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that wait, and move no file offset: a lock that another process has, a full pipe. Another thread goes on writing at the offset of the
 * descriptor meanwhile, and after that: each line stands behind the one before. So it is where the number leads to another file meanwhile.
 */
#include "check.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/sendfile.h>

#define LINE   10
#define BEFORE 300 /* so many that a grant pays */
#define LINES  100

enum call { FLOCK, LOCK, SENDFILE, CALLS };
static const struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1 << 30, .l_len = 1};
static int fd, pipes[2];

static void *waits(void *arg)
{
	const enum call call = *(const enum call *)arg;
	struct flock l = lock;
	off_t off = 0;

	if (call == FLOCK)
		CHECK(flock(fd, LOCK_EX) == 0);
	else if (call == LOCK)
		CHECK(fcntl(fd, F_SETLKW, &l) == 0);
	else
		CHECK(sendfile(pipes[1], fd, &off, LINE) > 0);
	return NULL;
}

static void lines(int to, int from, int n)
{
	char line[LINE + 1];

	for (int i = from; i < from + n; i++) {
		snprintf(line, sizeof(line), "%09d\n", i);
		CHECK(write(to, line, LINE) == LINE);
	}
}

static void in_order(int of, int n)
{
	char line[LINE + 1], found[LINE];

	for (int i = 0; i < n; i++) {
		snprintf(line, sizeof(line), "%09d\n", i);
		CHECK(pread(of, found, LINE, (off_t)i * LINE) == LINE && memcmp(found, line, LINE) == 0);
	}
}

/* A process that has both locks until it is told to end. */
static pid_t locker(int to_end, int ready)
{
	const pid_t pid = fork();
	struct flock l = lock;
	int f;

	CHECK(pid >= 0);
	if (pid > 0)
		return pid;
	f = open("log", O_RDWR);
	CHECK(flock(f, LOCK_EX) == 0 && fcntl(f, F_SETLK, &l) == 0);
	tell(ready);
	hear(to_end);
	_exit(0);
}

static void fill_pipe(void)
{
	static const char zeros[4096];

	CHECK(fcntl(pipes[1], F_SETFL, O_NONBLOCK) == 0);
	while (write(pipes[1], zeros, sizeof(zeros)) > 0)
		;
	CHECK(errno == EAGAIN && fcntl(pipes[1], F_SETFL, 0) == 0);
}

static void waits_for(enum call call, bool other)
{
	int to_end[2], ready[2], status, next = -1;
	char some[8192];
	pthread_t t;
	pid_t pid;

	CHECK(pipe(to_end) == 0 && pipe(ready) == 0 && pipe(pipes) == 0);
	CHECK(close(open("log", O_RDWR | O_CREAT | O_TRUNC, 0600)) == 0);
	pid = locker(to_end[0], ready[1]);
	hear(ready[0]);
	fd = open("log", O_RDWR);
	CHECK(fd >= 0);
	lines(fd, 0, BEFORE);
	if (call == SENDFILE)
		fill_pipe();
	CHECK(pthread_create(&t, NULL, waits, &call) == 0);
	usleep(50000); /* it waits now, or what follows is what it is without it */
	if (other) {
		next = open("next", O_RDWR | O_CREAT | O_TRUNC, 0600);
		CHECK(next >= 0);
		lines(next, 0, BEFORE);
		CHECK(dup2(next, fd) == fd);
	}
	lines(fd, BEFORE, LINES);
	tell(to_end[1]);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	if (call == SENDFILE)
		CHECK(read(pipes[0], some, sizeof(some)) == sizeof(some));
	CHECK(pthread_join(t, NULL) == 0);
	lines(fd, BEFORE + LINES, LINES);
	CHECK(size_of(fd) == (BEFORE + 2 * LINES) * LINE);
	in_order(fd, BEFORE + 2 * LINES);
	if (next >= 0)
		close(next);
	close(fd);
	for (int i = 0; i < 2; i++)
		CHECK(close(to_end[i]) == 0 && close(ready[i]) == 0 && close(pipes[i]) == 0);
}

int main(void)
{
	for (enum call call = 0; call < CALLS; call++)
		waits_for(call, false);
	waits_for(FLOCK, true);
	return 0;
}
