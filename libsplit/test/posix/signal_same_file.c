/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A signal handler opens the file that the interrupted call reads, once with the file to itself and once with a child that has it open
 * too: it gets a descriptor and reads what is there, and nobody waits for ever.
 */
#include "check.h"

#include <signal.h>
#include <sys/time.h>

enum { SIZE = 1 << 20, ROUNDS = 1000 };

static volatile int fired;

static void handler(int sig)
{
	const int saved = errno, fd = open("file", O_RDWR);
	char c[2];

	(void)sig;
	CHECK(fd >= 0);
	CHECK(pread(fd, c, 2, 4000) == 2 && c[0] == (char)byte_at(1, 4000) && c[1] == (char)byte_at(1, 4001));
	CHECK(close(fd) == 0);
	fired++;
	errno = saved;
}

static void rounds(int fd, char *buf)
{
	for (int i = 0; i < ROUNDS; i++) {
		/* Once in a round: where the handler takes longer than an interval nothing else would ever run. */
		const struct itimerval soon = {{0, 0}, {0, 20 + i * 37 % 700}};

		CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
		CHECK(pread(fd, buf, SIZE, 0) == SIZE);
		CHECK(i % 4 || pwrite(fd, buf + 3000, 9000, 3000) == 9000);
	}
}

int main(void)
{
	char *buf = malloc(SIZE);
	int fd, ready[2];
	pid_t pid;

	CHECK(buf && (fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
	fill(buf, SIZE, 1, 0);
	CHECK(write(fd, buf, SIZE) == SIZE);
	CHECK(sigaction(SIGALRM, &(struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART}, NULL) == 0);
	rounds(fd, buf);
	CHECK(pipe(ready) == 0);
	if ((pid = fork()) == 0) {
		char c;
		const int own = open("file", O_RDONLY);

		CHECK(own >= 0 && pread(own, &c, 1, 0) == 1 && write(ready[1], &c, 1) == 1);
		pause();
		_exit(0);
	}
	CHECK(read(ready[0], buf, 1) == 1);
	rounds(fd, buf);
	CHECK(kill(pid, SIGKILL) == 0 && status_of(pid) == 128 + SIGKILL);
	for (int i = 0; i < SIZE; i++)
		CHECK(buf[i] == (char)byte_at(1, (uint64_t)i));
	if (fired < 20)
		SKIP("fewer than 20 signals arrived");
	return 0;
}
