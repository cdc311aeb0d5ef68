/* SPDX-License-Identifier: Apache-2.0 */
/* Calls with several things wrong, or with one that does not matter: the error is the one that the kernel finds first, and where it finds none there is none. */
#include "check.h"

#include <sys/uio.h>

static char *volatile none; /* no memory */
static char buf[16];

/* The descriptor is looked at before the buffer, and at the end of a file none is needed. */
static void buffers(int fd, int in, int out)
{
	FAILS(write(in, none, 5), EBADF);
	FAILS(pwrite(in, none, 5, 0), EBADF);
	FAILS(read(out, none, 5), EBADF);
	FAILS(pread(out, none, 5, 0), EBADF);
	FAILS(readv(out, (struct iovec *)none, 1), EBADF);
	FAILS(writev(in, (struct iovec *)none, 1), EBADF);
	FAILS(pread(fd, none, 5, 0), EFAULT);
	FAILS(pwrite(fd, none, 5, 0), EFAULT);
	CHECK(lseek(fd, 0, SEEK_END) == 10 && pread(fd, none, 5, 100) == 0 && read(fd, none, 5) == 0);
	FAILS(write(fd, none, 5), EFAULT);
	CHECK(lseek(fd, 0, SEEK_CUR) == 10 && size_of(fd) == 10);
}

static void places(int fd)
{
	FAILS(pread(fd, buf, 10, INT64_MAX - 1), EINVAL);
	FAILS(pwrite(fd, buf, 10, INT64_MAX - 1), EINVAL);
	FAILS(lseek(fd, INT64_MAX, SEEK_END), EINVAL);
	CHECK(lseek(fd, 5, SEEK_SET) == 5);
	FAILS(lseek(fd, INT64_MAX, SEEK_CUR), EINVAL);
	CHECK(lseek(fd, 0, SEEK_CUR) == 5);
}

/* Access mode 3: neither for reading nor for writing, and yet the file as it is now. */
static void neither(int fd)
{
	int none_of_both;

	CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, "0123456789", 10, 0) == 10);
	CHECK((none_of_both = open("f", O_ACCMODE)) >= 0);
	CHECK(lseek(none_of_both, 0, SEEK_END) == 10 && size_of(none_of_both) == 10);
	FAILS(read(none_of_both, buf, 1), EBADF);
	FAILS(write(none_of_both, buf, 1), EBADF);
	FAILS(pread(none_of_both, buf, 1, 0), EBADF);
	FAILS(pwrite(none_of_both, buf, 1, 0), EBADF);
	FAILS(ftruncate(none_of_both, 1), EINVAL);
	FAILS(fallocate(none_of_both, 0, 0, 1), EBADF);
	CHECK(fsync(none_of_both) == 0 && close(none_of_both) == 0);
	expect_file("f", "0123456789");
	CHECK(pwrite(fd, "more", 4, 10) == 4);
	CHECK((none_of_both = open("f", O_ACCMODE | O_TRUNC)) >= 0 && close(none_of_both) == 0);
	CHECK(size_of(fd) == 0 && pwrite(fd, "0123456789", 10, 0) == 10);
	expect_file("f", "0123456789");
}

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644), in, out;

	CHECK(fd >= 0 && (in = open("f", O_RDONLY)) >= 0 && (out = open("f", O_WRONLY)) >= 0);
	for (int round = 0; round < 2; round++) {
		CHECK(pwrite(fd, "0123456789", 10, 0) == 10);
		buffers(fd, in, out);
		places(fd);
		CHECK(fsync(fd) == 0);
		buffers(fd, in, out);
		places(fd);
	}
	neither(fd);
	return 0;
}
