/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A signal handler that appends to files, in the middle of appends and reads of the same thread. The very file that the
 * interrupted call works on may refuse it with EDEADLK (the kernel alone never does); waiting for ever is what must not be.
 */
#include "check.h"

#include <signal.h>
#include <sys/time.h>

static int own, shared;
static volatile int fired, written;

static void handler(int sig)
{
	int saved = errno;

	(void)sig;
	if (write(own, "tick\n", 5) != 5)
		_exit(3);
	fired++;
	if (write(shared, "tick tick tick.\n", 16) == 16)
		written++;
	else if (errno != EDEADLK)
		_exit(4);
	errno = saved;
}

int main(void)
{
	struct itimerval every = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
	char line[17];
	int ticks = 0, lines = 0, fd;

	alarm(100);
	CHECK((own = open("own", O_WRONLY | O_CREAT | O_APPEND, 0644)) >= 0);
	CHECK((shared = open("shared", O_RDWR | O_CREAT | O_APPEND, 0644)) >= 0);
	CHECK(sigaction(SIGVTALRM, &(struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART}, NULL) == 0);
	CHECK(setitimer(ITIMER_VIRTUAL, &every, NULL) == 0);
	for (int i = 0; i < 60000; i++) {
		CHECK(write(shared, "line line line.\n", 16) == 16);
		CHECK(pread(shared, line, 16, (off_t)i * 16) == 16 && line[15] == '\n');
		if (i % 10000 == 0)
			CHECK(fsync(shared) == 0);
	}
	CHECK(setitimer(ITIMER_VIRTUAL, &never, NULL) == 0);
	CHECK(size_of(own) == fired * 5 && size_of(shared) == (60000 + written) * 16);
	CHECK((fd = open("shared", O_RDONLY)) >= 0);
	for (int i = 0; i < 60000 + written; i++) {
		CHECK(read(fd, line, 16) == 16);
		ticks += memcmp(line, "tick tick tick.\n", 16) == 0;
		lines += memcmp(line, "line line line.\n", 16) == 0;
	}
	CHECK(lines == 60000 && ticks == written);
	return 0;
}
