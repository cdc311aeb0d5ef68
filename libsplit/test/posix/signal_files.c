/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A signal handler that opens, writes, renames and closes files of its own, while the thread it interrupts does the same to others:
 * whatever the interrupted call was in the middle of, the handler's calls are made, and nobody waits for ever.
 */
#include "check.h"

#include <signal.h>
#include <time.h>

#define ROUNDS 1500

static volatile int fired, kept = -1;
/*
 * May a signal be handled now? Twice in a round: where the handler takes longer than the signals' interval nothing else would ever
 * run. The place changes, so that every call is interrupted now and then.
 */
static volatile sig_atomic_t allowed;

static void handler(int sig)
{
	const int saved = errno;
	char name[32] = "handled-0";
	int fd;

	(void)sig;
	if (!allowed)
		return;
	allowed = 0;
	name[8] = (char)('0' + fired % 8);
	fd = open(name, O_RDWR | O_CREAT | O_APPEND, 0644);
	if (fd < 0 || write(fd, name, 9) != 9 || fsync(fd) < 0 || dup2(fd, kept) != kept || close(fd) < 0 ||
	    write(kept, "\n", 1) != 1)
		_exit(3);
	fired++;
	errno = saved;
}

int main(void)
{
	char *block = calloc(1, 1 << 20);
	long lines = 0;
	pid_t pid, parent = getpid();
	FILE *f;

	alarm(240);
	CHECK(block && (kept = open("/dev/null", O_RDONLY)) >= 0);
	CHECK(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART}, NULL) == 0);
	if ((pid = fork()) == 0) {
		const struct timespec pause = {0, 200000};

		while (getppid() == parent && kill(parent, SIGUSR1) == 0)
			nanosleep(&pause, NULL);
		_exit(0);
	}
	for (int i = 0; i < ROUNDS; i++) {
		char name[32];
		int fd, copy;

		snprintf(name, sizeof(name), "own-%d", i % 16);
		allowed = i % 3 == 0;
		CHECK((fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
		for (int k = 0; k < 20; k++) {
			allowed = allowed || (i % 3 == 1 && k == i % 20);
			CHECK(write(fd, "0123456789abcdef", 16) == 16);
		}
		CHECK(pwrite(fd, block, (size_t)(i % 64 + 1) << 12, 4096) == (i % 64 + 1) << 12);
		allowed = allowed || i % 3 == 2;
		CHECK((copy = dup(fd)) >= 0 && (i % 5 || fsync(copy) == 0) && close(copy) == 0);
		allowed = 1;
		CHECK((i % 7 || ftruncate(fd, 100) == 0) && (i % 11 || rename(name, "renamed") == 0) && close(fd) == 0);
	}
	CHECK(kill(pid, SIGKILL) == 0 && status_of(pid) == 128 + SIGKILL && signal(SIGUSR1, SIG_IGN) != SIG_ERR);
	for (int i = 0; i < 8; i++) {
		char name[32], line[64];

		snprintf(name, sizeof(name), "handled-%d", i);
		if (!(f = fopen(name, "r")))
			continue;
		for (; fgets(line, sizeof(line), f); lines++)
			CHECK(strlen(line) == 10 && memcmp(line, name, 9) == 0);
		CHECK(fclose(f) == 0);
	}
	if (fired < 20)
		SKIP("fewer than 20 signals arrived");
	CHECK(lines == fired);
	return 0;
}
