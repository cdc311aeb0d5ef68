/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dprintf() at the file offset beside write() by the same descriptor, from several threads and from a child: every line stands in the
 * file once and whole. What is printed at once is written whole, however long; a format that fails writes nothing; the descriptor's
 * errors are reported.
 */
#include "check.h"

#include <pthread.h>
#include <stdarg.h>

enum { THREADS = 4, LINES = 1500, WIDTH = 24 };

struct job {
	pthread_t thread;
	int number, fd;
};

/* Odd ones print, even ones write. */
static void *lines(void *arg)
{
	const struct job *j = arg;
	char line[WIDTH + 1];

	for (int i = 0; i < LINES; i++) {
		if (j->number % 2) {
			CHECK(dprintf(j->fd, "%c%0*d\n", 'a' + j->number, WIDTH - 2, i) == WIDTH);
			continue;
		}
		snprintf(line, sizeof(line), "%c%0*d\n", 'a' + j->number, WIDTH - 2, i);
		CHECK(write(j->fd, line, WIDTH) == WIDTH);
	}
	return NULL;
}

static void expect_lines(int fd, int writers)
{
	int next[THREADS + 1] = {0};
	char line[WIDTH + 1] = "";

	CHECK(size_of(fd) == (off_t)writers * LINES * WIDTH && lseek(fd, 0, SEEK_CUR) == size_of(fd));
	for (off_t at = 0; at < size_of(fd); at += WIDTH) {
		CHECK(pread(fd, line, WIDTH, at) == WIDTH && line[WIDTH - 1] == '\n');
		CHECK(line[0] >= 'a' && line[0] < 'a' + writers);
		CHECK(atoi(line + 1) == next[line[0] - 'a']++);
	}
}

static void in_threads(void)
{
	struct job job[THREADS];
	const int fd = open("threads", O_RDWR | O_CREAT | O_TRUNC, 0644);

	CHECK(fd >= 0);
	for (int i = 0; i < THREADS; i++) {
		job[i] = (struct job){.number = i, .fd = fd};
		CHECK(pthread_create(&job[i].thread, NULL, lines, &job[i]) == 0);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(job[i].thread, NULL) == 0);
	expect_lines(fd, THREADS);
	CHECK(close(fd) == 0);
}

static void beside_a_child(void)
{
	const int fd = open("child", O_RDWR | O_CREAT | O_TRUNC, 0644);
	struct job job = {.fd = fd};
	int status;
	pid_t pid;

	CHECK(fd >= 0);
	pid = fork();
	CHECK(pid >= 0);
	job.number = pid == 0;
	lines(&job);
	if (pid == 0)
		_exit(0);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	expect_lines(fd, 2);
	CHECK(close(fd) == 0);
}

/* The list is the caller's still: it can be used again after a copy. */
static int twice(int fd, const char *format, ...)
{
	va_list list, copy;
	int n, m;

	va_start(list, format);
	va_copy(copy, list);
	n = vdprintf(fd, format, list);
	m = vdprintf(fd, format, copy);
	va_end(copy);
	va_end(list);
	return n < 0 || m < 0 ? -1 : n + m;
}

static void forms(void)
{
	const int fd = open("forms", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
	const int only = open("forms", O_RDONLY);
	char text[64] = "";

	CHECK(fd >= 0 && only >= 0);
	CHECK(dprintf(fd, "%s", "") == 0 && size_of(fd) == 0);
	CHECK(twice(fd, "%d %s %.1f %ld\n", 1, "two", 3.0, 4L) == 24);
	errno = ENOENT;
	CHECK(dprintf(fd, "%m") == (int)strlen(strerror(ENOENT)));
	CHECK(pread(fd, text, 24, 0) == 24 && strcmp(text, "1 two 3.0 4\n1 two 3.0 4\n") == 0);
	CHECK(dprintf(fd, "%70000d", 5) == 70000 && pread(fd, text, 2, size_of(fd) - 2) == 2 && !memcmp(text, " 5", 2));
	FAILS(dprintf(only, "x"), EBADF);
	CHECK(close(only) == 0);
	FAILS(dprintf(only, "x"), EBADF);
	CHECK(close(fd) == 0);
}

int main(void)
{
	alarm(100);
	in_threads();
	beside_a_child();
	forms();
	return 0;
}
