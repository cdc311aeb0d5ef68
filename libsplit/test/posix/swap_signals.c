/* SPDX-License-Identifier: Apache-2.0 */
/* A handler comes in the middle of a call for two files at once, and writes to both: its calls are made, as after any other call. */
#include "check.h"

#include <signal.h>
#include <sys/time.h>

#include "splitfs.h"

#define LEN    (256l << 10)
#define ROUNDS 1500

static int fds[2];
static volatile sig_atomic_t handled, failed;

static void writes(int sig)
{
	const int saved = errno;

	(void)sig;
	for (int i = 0; i < 2; i++)
		failed += pwrite(fds[i], "x", 1, LEN + 100) != 1;
	handled++;
	errno = saved;
}

int main(void)
{
	const struct itimerval often = {{0, 700}, {0, 700}};
	static char bytes[LEN];

	for (int i = 0; i < 2; i++) {
		fds[i] = open(i ? "two" : "one", O_RDWR | O_CREAT | O_TRUNC, 0600);
		CHECK(fds[i] >= 0 && write(fds[i], bytes, LEN) == LEN);
	}
	CHECK(sigaction(SIGALRM, &(struct sigaction){.sa_handler = writes, .sa_flags = SA_RESTART}, NULL) == 0);
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (int i = 0; i < ROUNDS; i++) {
		if (splitfs_swap(fds[0], 0, fds[1], 0, LEN) < 0) {
			if (errno == ENOTSUP || errno == EOPNOTSUPP || errno == ENOSYS)
				SKIP("nothing swaps here");
			CHECK(errno == EBUSY);
		}
	}
	CHECK(handled > 0);
	CHECK(failed == 0);
	return 0;
}
