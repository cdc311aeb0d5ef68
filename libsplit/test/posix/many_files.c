/* SPDX-License-Identifier: Apache-2.0 */
/* 2000 files written, 800 open at a time, all read back, renamed and removed. */
#include "check.h"

#include <sys/resource.h>

enum { FILES = 2000, OPEN = 800 };

static const char *name(char *buf, const char *prefix, int i)
{
	sprintf(buf, "d%d/%s%d", i % 7, prefix, i);
	return buf;
}

int main(void)
{
	struct rlimit limit;
	int fds[FILES];
	char a[32], b[32];

	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	if (limit.rlim_cur < OPEN + 50) {
		limit.rlim_cur = limit.rlim_max;
		if (limit.rlim_max < OPEN + 50 || setrlimit(RLIMIT_NOFILE, &limit) < 0)
			SKIP("not enough descriptors allowed");
	}
	for (int i = 0; i < 7; i++) {
		sprintf(a, "d%d", i);
		CHECK(mkdir(a, 0755) == 0);
	}
	for (int i = 0; i < FILES; i++) {
		CHECK((fds[i] = open(name(a, "f", i), O_RDWR | O_CREAT, 0644)) >= 0);
		put(fds[i], (unsigned)i, 0, 100 + (size_t)i);
		if (i >= OPEN) {
			put(fds[i - OPEN], (unsigned)(i - OPEN), 100 + i - OPEN, 50);
			CHECK(close(fds[i - OPEN]) == 0);
		}
	}
	for (int i = FILES - OPEN; i < FILES; i++) {
		put(fds[i], (unsigned)i, 100 + i, 50);
		CHECK(i % 2 || close(fds[i]) == 0);
	}
	for (int i = 0; i < FILES; i++) {
		int fd;

		CHECK(rename(name(a, "f", i), name(b, "g", i)) == 0 && (fd = open(b, O_RDONLY)) >= 0 && size_of(fd) == 150 + i);
		expect(fd, (unsigned)i, 0, 150 + (size_t)i);
		CHECK(close(fd) == 0 && unlink(b) == 0);
	}
	for (int i = 0; i < 7; i++) {
		sprintf(a, "d%d", i);
		CHECK(rmdir(a) == 0);
	}
	return 0;
}
