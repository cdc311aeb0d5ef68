/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A handler that forks, in the middle of appends at the file offset. The child finds whole lines, appends one of its own at the offset that both
 * have, and ends in the handler or goes on where its parent was.
 */
#include "check.h"

#include <signal.h>
#include <sys/time.h>

enum { LINE = 500, FORKS = 40 };

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
	return 0;
}
