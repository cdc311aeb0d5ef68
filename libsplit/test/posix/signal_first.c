/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A signal handler writes by the descriptor whose first lseek it has interrupted: the offset is as the two calls leave it, in
 * either order.
 */
#include "check.h"

#include <signal.h>
#include <sys/time.h>
#include <time.h>

enum { SECONDS = 2, TO = 100 };

static volatile sig_atomic_t fd = -1, written;

static void handler(int sig)
{
	(void)sig;
	if (fd >= 0 && write(fd, "x", 1) == 1)
		written++;
}

int main(void)
{
	const struct itimerval often = {{.tv_usec = 97}, {.tv_usec = 97}}, never = {0};
	struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_RESTART};
	const int made = open("f", O_RDWR | O_CREAT, 0755); /* executable: nothing of it stays when it is closed */
	struct timespec begun, now;

	CHECK(made >= 0);
	put(made, 8, 0, 1000);
	CHECK(close(made) == 0 && sigaction(SIGALRM, &sa, NULL) == 0);
	clock_gettime(CLOCK_MONOTONIC, &begun);
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	do {
		const sig_atomic_t before = written;
		off_t at, end;
		int open_fd = open("f", O_RDWR);

		CHECK(open_fd >= 0);
		fd = open_fd;
		at = lseek(open_fd, TO, SEEK_SET);
		end = lseek(open_fd, 0, SEEK_CUR);
		fd = -1;
		CHECK(at == TO && end >= TO && end <= TO + written - before);
		CHECK(close(open_fd) == 0);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - begun.tv_sec <= SECONDS);
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	CHECK(written > 0);
	return 0;
}
