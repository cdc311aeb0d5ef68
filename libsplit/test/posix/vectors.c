/* SPDX-License-Identifier: Apache-2.0 */
/* readv, writev, preadv, pwritev, preadv2, pwritev2 with their flags and errors. */
#include "check.h"

#include <limits.h>
#include <sys/uio.h>

/* A piece that is no memory ends what is before it. And there is no place whose end is beyond the largest. */
static void none_behind(int fd)
{
	char *volatile none = NULL, got[10];
	struct iovec some[2] = {{"0123456789", 10}, {none, 10}}, in[2] = {{got, 10}, {none, 10}};

	CHECK(ftruncate(fd, 0) == 0 && pwritev(fd, some, 2, 0) == 10 && size_of(fd) == 10);
	CHECK(lseek(fd, 0, SEEK_SET) == 0 && readv(fd, in, 2) == 10 && lseek(fd, 0, SEEK_CUR) == 10);
	CHECK(memcmp(got, "0123456789", 10) == 0);
	CHECK(writev(fd, some, 2) == 10 && preadv(fd, in, 2, 5) == 10 && memcmp(got, "5678901234", 10) == 0);
	CHECK(size_of(fd) == 20 && lseek(fd, 0, SEEK_CUR) == 20);
	FAILS(pwritev(fd, some + 1, 1, 0), EFAULT);
	FAILS(preadv(fd, in + 1, 1, 0), EFAULT);
	FAILS(preadv(fd, in, 1, INT64_MAX - 5), EINVAL);
	FAILS(preadv2(fd, in, 1, INT64_MAX - 5, 0), EINVAL);
}

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644), ro = open("f", O_RDONLY);
	char a[5], b[7], c[100];
	struct iovec in[3] = {{a, 5}, {b, 7}, {c, 100}};
	struct iovec out[3] = {{"hello", 5}, {NULL, 0}, {", world", 7}};

	volatile int negative = -1, many = IOV_MAX + 1; /* hidden from the compiler, which would refuse */

	CHECK(writev(fd, out, 3) == 12 && lseek(fd, 0, SEEK_CUR) == 12);
	CHECK(pwritev(fd, out, 3, 12) == 12 && pwritev2(fd, out, 3, 24, 0) == 12 && pwritev2(fd, out, 1, -1, 0) == 5);
	CHECK(lseek(fd, 0, SEEK_CUR) == 17 && size_of(fd) == 36);
	CHECK(preadv(fd, in, 3, 24) == 12 && memcmp(a, "hello", 5) == 0 && memcmp(b, ", world", 7) == 0);
	CHECK(pwritev2(fd, out, 1, 0, RWF_APPEND) == 5 && size_of(fd) == 41);
	CHECK(pwritev2(fd, out, 1, 0, RWF_DSYNC) == 5 && pwritev2(fd, out, 1, 5, RWF_SYNC) == 5);
	CHECK(lseek(fd, 0, SEEK_SET) == 0 && readv(fd, in, 3) == 41 && lseek(fd, 0, SEEK_CUR) == 41);
	CHECK(memcmp(a, "hello", 5) == 0 && memcmp(b, "hellold", 7) == 0);
	CHECK(lseek(fd, 36, SEEK_SET) == 36 && preadv2(fd, in, 3, -1, 0) == 5 && memcmp(a, "hello", 5) == 0);
	CHECK(readv(fd, in, 3) == 0 && preadv(fd, in, 2, 1000) == 0);
	FAILS(readv(fd, in, negative), EINVAL);
	FAILS(writev(fd, out, many), EINVAL);
	FAILS(preadv(fd, in, 3, -1), EINVAL);
	FAILS(pwritev2(fd, out, 3, -2, 0), EINVAL);
	FAILS(writev(ro, out, 3), EBADF);
	FAILS(readv(999, in, 3), EBADF);
	CHECK(writev(fd, out, 0) == 0 && readv(fd, NULL, 0) == 0);
	in[1].iov_len = SIZE_MAX;
	FAILS(readv(fd, in, 3), EINVAL);
	none_behind(fd);
	return 0;
}
