/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A signal handler that appends to files, also to the very one that the call works on in the middle of which the signal comes. Once more with a
 * handler that no library knows of, because it is installed by the system call: that one may be refused the file with EDEADLK (the
 * kernel alone never does); waiting for ever is what must not be.
 */
#include "check.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/time.h>

static int own, shared;
static volatile int fired, refused;
static bool raw;

static void handler(int sig)
{
	int saved = errno;

	(void)sig;
	if (write(own, "tick\n", 5) != 5)
		_exit(3);
	fired++;
	if (write(shared, "tick tick tick.\n", 16) != 16) {
		if (!raw || errno != EDEADLK)
			_exit(4);
		refused++;
	}
	errno = saved;
}

/* The kernel's own handler becomes ours, whatever the library has given it. */
static void install_raw(void)
{
	struct {
		void (*handler)(int);
		unsigned long rest[8]; /* flags, what the C library returns through, mask */
	} act = {0};

	CHECK(syscall(SYS_rt_sigaction, SIGALRM, NULL, &act, (size_t)8) == 0);
	act.handler = handler;
	CHECK(syscall(SYS_rt_sigaction, SIGALRM, &act, NULL, (size_t)8) == 0);
}

static void ticks_and_lines(void)
{
	const struct itimerval never = {{0, 0}, {0, 0}};
	char line[17];
	int ticks = 0, lines = 0, fd;

	fired = refused = 0;
	CHECK((own = open("own", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644)) >= 0);
	CHECK((shared = open("shared", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644)) >= 0);
	for (int i = 0; i < 60000; i++) {
		/* Now and then: where the handler takes longer than an interval nothing else would ever run. */
		const struct itimerval soon = {{0, 0}, {0, 1 + i / 50 % 40}};

		CHECK(i % 50 || setitimer(ITIMER_REAL, &soon, NULL) == 0);
		CHECK(write(shared, "line line line.\n", 16) == 16);
		CHECK(pread(shared, line, 16, (off_t)i * 16) == 16 && line[15] == '\n');
		if (i % 10000 == 0)
			CHECK(fsync(shared) == 0);
	}
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	CHECK(size_of(own) == fired * 5 && size_of(shared) == (60000 + fired - refused) * 16);
	CHECK((fd = open("shared", O_RDONLY)) >= 0);
	for (int i = 0; i < 60000 + fired - refused; i++) {
		CHECK(read(fd, line, 16) == 16);
		ticks += memcmp(line, "tick tick tick.\n", 16) == 0;
		lines += memcmp(line, "line line line.\n", 16) == 0;
	}
	CHECK(lines == 60000 && ticks == fired - refused);
	CHECK(close(fd) == 0 && close(own) == 0 && close(shared) == 0);
}

int main(void)
{
	CHECK(sigaction(SIGALRM, &(struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART}, NULL) == 0);
	ticks_and_lines();
	raw = true;
	install_raw();
	ticks_and_lines();
	return 0;
}
