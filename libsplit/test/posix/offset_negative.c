/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls with a negative place in the file are refused, whatever else is wrong with them, and leave the file offset where it was: bytes that are
 * written next go behind those that were written last.
 */
#include "check.h"

#include <sys/uio.h>

static char buf[64];
static char *volatile none;
static const struct iovec iov = {buf, sizeof(buf)};

static void refused(int fd)
{
	FAILS(pread(fd, buf, 8, -1), EINVAL);
	FAILS(pwrite(fd, buf, 8, -1), EINVAL);
	FAILS(pread(fd, none, 8, INT64_MIN), EINVAL);
	FAILS(pwrite(fd, none, 8, -4096), EINVAL);
	FAILS(preadv(fd, &iov, 1, -1), EINVAL);
	FAILS(pwritev(fd, &iov, 1, -1), EINVAL);
	FAILS(preadv2(fd, &iov, 1, -2, 0), EINVAL);
	FAILS(pwritev2(fd, &iov, 1, -2, 0), EINVAL);
	FAILS(syscall(SYS_pread64, fd, buf, 8l, -1l), EINVAL);
	FAILS(syscall(SYS_pwrite64, fd, buf, 8l, -1l), EINVAL);
}

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644), only;

	CHECK(fd >= 0 && (only = open("f", O_RDONLY)) >= 0);
	CHECK(write(fd, "0123", 4) == 4);
	refused(fd);
	CHECK(lseek(fd, 0, SEEK_CUR) == 4 && write(fd, "4567", 4) == 4);
	refused(fd);
	CHECK(write(fd, "89", 2) == 2 && lseek(fd, 0, SEEK_CUR) == 10);
	expect_file("f", "0123456789");

	CHECK(read(only, buf, 3) == 3 && memcmp(buf, "012", 3) == 0);
	refused(only);
	CHECK(read(only, buf, 3) == 3 && memcmp(buf, "345", 3) == 0);
	CHECK(close(fd) == 0 && close(only) == 0);
	return 0;
}
