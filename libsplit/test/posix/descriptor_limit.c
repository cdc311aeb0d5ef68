/* SPDX-License-Identifier: Apache-2.0 */
/* A program may have as many descriptors as its limit says, each a file of its own that it writes to. */
#include "check.h"

#include <errno.h>
#include <sys/resource.h>

enum { LIMIT = 256 };

/* Which numbers are in use? */
static int in_use(void)
{
	int n = 0;

	for (int fd = 0; fd < LIMIT; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

int main(void)
{
	struct rlimit limit, seen;
	int fds[LIMIT], n = 0, before;
	char name[32];

	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	if (limit.rlim_max <= LIMIT)
		SKIP("the hard limit is too low");
	limit.rlim_cur = LIMIT;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	before = in_use();
	for (;; n++) {
		sprintf(name, "f%d", n);
		fds[n] = open(name, O_RDWR | O_CREAT, 0644);
		if (fds[n] < 0)
			break;
		CHECK(fds[n] < LIMIT);
		put(fds[n], (unsigned)n, 0, 5000);
	}
	CHECK(errno == EMFILE);
	CHECK(n == LIMIT - before);
	CHECK(dup(fds[0]) == -1 && errno == EMFILE);
	/* With no number left, more of them is written than is staged, and everything can be read. */
	for (int i = 0; i < n; i++)
		put(fds[i], (unsigned)i, 5000, 200000);
	for (int i = 0; i < n; i++) {
		expect(fds[i], (unsigned)i, 0, 205000);
		CHECK(close(fds[i]) == 0);
	}
	CHECK(getrlimit(RLIMIT_NOFILE, &seen) == 0);
	CHECK(seen.rlim_cur == limit.rlim_cur && seen.rlim_max == limit.rlim_max);
	return 0;
}
