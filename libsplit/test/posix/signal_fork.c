/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A handler that forks, in the middle of appends at the file offset. The child finds whole lines, appends one of its own at the offset that both
 * have, and ends in the handler or goes on where its parent was. And a handler that writes to files in the middle of a fork.
 */
#include "check.h"

#include <signal.h>
#include <sys/time.h>

enum { LINE = 500, FORKS = 40, FILES = 50 };

static int fd, other;
static char line[LINE];
static volatile sig_atomic_t forks;
static volatile sig_atomic_t child;

static void handler(int sig)
{
	const int saved = errno;
	char found[LINE];
	pid_t pid;

	(void)sig;
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		const off_t at = lseek(fd, 0, SEEK_CUR);

		CHECK(at % LINE == 0 && at == size_of(fd));
		CHECK(at == 0 || (pread(fd, found, LINE, at - LINE) == LINE && memcmp(found, line, LINE) == 0));
		CHECK(write(fd, line, LINE) == LINE && write(other, "child\n", 6) == 6);
		if (forks % 2)
			_exit(0);
		child = 1;
	} else {
		CHECK(status_of(pid) == 0);
		forks++;
	}
	errno = saved;
}

static int files[FILES];
static volatile sig_atomic_t marks;

static void mark(int sig)
{
	const int saved = errno;

	(void)sig;
	for (int i = 0; i < FILES; i++)
		CHECK(write(files[i], "x", 1) == 1);
	marks++;
	errno = saved;
}

static void written_while_forking(void)
{
	const struct itimerval never = {{0, 0}, {0, 0}};
	off_t began[FILES];
	pid_t pid;

	CHECK(sigaction(SIGALRM, &(struct sigaction){.sa_handler = mark, .sa_flags = SA_RESTART}, NULL) == 0);
	for (int i = 0; i < 200; i++) {
		const struct itimerval soon = {{0, 0}, {0, 1 + i * 7 % 300}};

		/* Each anew, so that its offset is not shared yet. */
		for (int k = 0; k < FILES; k++) {
			char name[16], c;

			snprintf(name, sizeof(name), "mark-%d", k);
			CHECK((files[k] = open(name, O_RDWR | O_CREAT, 0644)) >= 0 && (began[k] = read(files[k], &c, 1)) >= 0);
		}
		marks = 0;
		CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
		if ((pid = fork()) == 0)
			_exit(0);
		CHECK(status_of(pid) == 0 && setitimer(ITIMER_REAL, &never, NULL) == 0);
		for (int k = 0; k < FILES; k++)
			CHECK(lseek(files[k], 0, SEEK_CUR) == began[k] + marks && close(files[k]) == 0);
	}
}

int main(void)
{
	char found[LINE];
	off_t size;

	alarm(100);
	fill(line, LINE, 9, 0);
	CHECK((fd = open("log", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
	CHECK((other = open("other", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644)) >= 0);
	CHECK(sigaction(SIGALRM, &(struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART}, NULL) == 0);
	while (forks < FORKS && !child) {
		const int before = forks;
		const struct itimerval soon = {{0, 0}, {0, 50 + before * 41 % 700}};

		CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
		while (forks == before && !child)
			CHECK(write(fd, line, LINE) == LINE);
	}
	CHECK(write(fd, line, LINE) == LINE);
	if (child)
		return 0; /* and the parent in the handler goes on */
	CHECK((size = lseek(fd, 0, SEEK_CUR)) == size_of(fd) && size % LINE == 0 && size_of(other) == 6 * FORKS);
	for (off_t at = 0; at < size; at += LINE)
		CHECK(pread(fd, found, LINE, at) == LINE && memcmp(found, line, LINE) == 0);
	written_while_forking();
	return 0;
}
