/* SPDX-License-Identifier: Apache-2.0 */
/* A handler that jumps out of the call that its signal came in the middle of, as shells and interpreters do: what was written is whole calls. */
#include "check.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

enum { LINE = 3000, JUMPS = 300 };

static sigjmp_buf top;
static volatile sig_atomic_t jumps;

static void handler(int sig)
{
	(void)sig;
	jumps++;
	siglongjmp(top, 1);
}

int main(void)
{
	const struct itimerval every = {{0, 700}, {0, 700}}, never = {{0, 0}, {0, 0}};
	static char line[LINE], found[LINE];
	volatile int begun = 0;
	off_t size;
	int fd;

	fill(line, LINE, 5, 0);
	CHECK((fd = open("log", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
	CHECK(sigaction(SIGALRM, &(struct sigaction){.sa_handler = handler}, NULL) == 0);
	CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
	sigsetjmp(top, 1);
	CHECK(lseek(fd, 0, SEEK_END) % LINE == 0);
	while (jumps < JUMPS) {
		begun++;
		CHECK(write(fd, line, LINE) == LINE);
		CHECK(pread(fd, found, LINE, 0) == LINE);
		/* Not larger than it need be: the beginning again. */
		if (begun % 1000 == 0)
			CHECK(ftruncate(fd, LINE) == 0 && lseek(fd, LINE, SEEK_SET) == LINE);
	}
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	CHECK((size = lseek(fd, 0, SEEK_CUR)) == size_of(fd) && size % LINE == 0);
	for (off_t at = 0; at < size; at += LINE)
		CHECK(pread(fd, found, LINE, at) == LINE && memcmp(found, line, LINE) == 0);
	CHECK(write(fd, line, LINE) == LINE && fsync(fd) == 0 && size_of(fd) == size + LINE && close(fd) == 0);
	return 0;
}
