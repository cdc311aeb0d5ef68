/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that live for a few calls, each forced more than once, as mails are, and others that are forced once or not at all: on persistent memory the
 * library serves such files from their first write, once it has seen some. Whoever opens one finds what was written, by whatever way it was.
 */
#include "check.h"

enum { FILES = 60, PIECES = 4, LEN = 4096 };

static char want[PIECES * LEN], found[PIECES * LEN + 1];

static void is_there(const char *name, size_t n)
{
	const int fd = open(name, O_RDONLY), raw = (int)unseen(SYS_openat, AT_FDCWD, (long)name, O_RDONLY, 0);

	CHECK(fd >= 0 && raw >= 0);
	CHECK(read(fd, found, sizeof(found)) == (ssize_t)n && memcmp(found, want, n) == 0);
	/* What the library does not see is asked about for root only. */
	if (geteuid() == 0)
		CHECK(unseen(SYS_read, raw, (long)found, sizeof(found), 0) == (long)n && memcmp(found, want, n) == 0);
	CHECK(close(fd) == 0 && unseen(SYS_close, raw, 0, 0, 0) == 0);
}

/* times: how often the file is forced. */
static void mail(int i, int times, int flags)
{
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "m%d", i % 7);
	fill(want, sizeof(want), (unsigned)i, 0);
	fd = open(name, O_CREAT | O_EXCL | O_RDWR | flags, 0600);
	CHECK(fd >= 0);
	for (int k = 0; k < PIECES; k++) {
		CHECK(write(fd, want + k * LEN, LEN) == LEN);
		CHECK(k >= times || (i % 2 ? fsync(fd) : fdatasync(fd)) == 0);
		CHECK(size_of(fd) == (k + 1) * LEN);
	}
	if (i % 3 == 0)
		is_there(name, sizeof(want));
	if (!(flags & O_APPEND)) { /* else it appends, on Linux */
		CHECK(pwrite(fd, want + LEN, 100, 5) == 100);
		memcpy(want + 5, want + LEN, 100);
	}
	CHECK(close(fd) == 0);
	is_there(name, sizeof(want));
	CHECK(unlink(name) == 0 && access(name, F_OK) < 0);
}

int main(void)
{
	for (int i = 0; i < FILES; i++)
		mail(i, PIECES, i % 5 == 0 ? O_APPEND : 0);
	for (int i = 0; i < FILES; i++)
		mail(i, i % 2, 0);
	for (int i = 0; i < FILES; i++)
		mail(i, 2 + i % 3, 0);
	return 0;
}
