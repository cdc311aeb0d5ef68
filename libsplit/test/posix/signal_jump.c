/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A handler that jumps out of the call that its signal came in the middle of, as shells and interpreters do; with it comes another, whose handler
 * writes to the same file. What was written is whole calls, and no call fails.
 */
#include "check.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

enum { LINE = 3000, JUMPS = 1000, LINES_MAX = 20000 };

static int fd;
static char line[LINE];
static sigjmp_buf top;
static volatile sig_atomic_t jumps, more, done;

static void jump(int sig)
{
	(void)sig;
	jumps++;
	siglongjmp(top, 1);
}

static void add(int sig)
{
	const int saved = errno;

	(void)sig;
	CHECK(write(fd, line, LINE) == LINE);
	more++;
	errno = saved;
}

static void *sender(void *arg)
{
	const pthread_t to = *(pthread_t *)arg;

	/* Of two that come at once one may jump out of the other. */
	for (int i = 0; !done; i++) {
		CHECK(pthread_kill(to, SIGUSR1) == 0 && (i % 3 == 0 || pthread_kill(to, SIGUSR2) == 0));
		usleep((unsigned)(i * 7 % 200));
	}
	return NULL;
}

int main(void)
{
	const pthread_t self = pthread_self();
	static char found[LINE];
	sigset_t both, adds;
	pthread_t t;
	off_t size;

	fill(line, LINE, 5, 0);
	CHECK((fd = open("log", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
	CHECK(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = add, .sa_flags = SA_RESTART}, NULL) == 0);
	CHECK(sigaction(SIGUSR2, &(struct sigaction){.sa_handler = jump}, NULL) == 0);
	CHECK(sigemptyset(&adds) == 0 && sigaddset(&adds, SIGUSR1) == 0);
	CHECK(sigemptyset(&both) == 0 && sigaddset(&both, SIGUSR1) == 0 && sigaddset(&both, SIGUSR2) == 0);
	CHECK(pthread_sigmask(SIG_BLOCK, &both, NULL) == 0 && pthread_create(&t, NULL, sender, (void *)&self) == 0);
	sigsetjmp(top, 1);
	CHECK(pthread_sigmask(SIG_UNBLOCK, &both, NULL) == 0);
	while (jumps < JUMPS) {
		CHECK(write(fd, line, LINE) == LINE);
		CHECK(pread(fd, found, LINE, 0) == LINE);
		/* Not larger than it need be. A jump may come between the two, and no line, which would be cut off before the offset. */
		if (lseek(fd, 0, SEEK_CUR) > (off_t)LINES_MAX * LINE) {
			CHECK(pthread_sigmask(SIG_BLOCK, &adds, NULL) == 0);
			CHECK(lseek(fd, LINE, SEEK_SET) == LINE && ftruncate(fd, LINE) == 0);
			CHECK(pthread_sigmask(SIG_UNBLOCK, &adds, NULL) == 0);
		}
	}
	CHECK(pthread_sigmask(SIG_BLOCK, &both, NULL) == 0);
	done = 1;
	CHECK(pthread_join(t, NULL) == 0 && more > 0);
	CHECK(lseek(fd, 0, SEEK_CUR) % LINE == 0 && (size = size_of(fd)) % LINE == 0);
	for (off_t at = 0; at < size; at += LINE)
		CHECK(pread(fd, found, LINE, at) == LINE && memcmp(found, line, LINE) == 0);
	CHECK(lseek(fd, 0, SEEK_END) == size && write(fd, line, LINE) == LINE && fsync(fd) == 0);
	CHECK(size_of(fd) == size + LINE && close(fd) == 0);
	return 0;
}
