/* SPDX-License-Identifier: Apache-2.0 */
/* splice, tee and vmsplice between pipes and a file that has just been written, with offsets and appending. */
#include "check.h"

#include <sys/uio.h>

static char buf[65536];

static void expect_pipe(int fd, unsigned seed, uint64_t off, size_t n)
{
	CHECK(read(fd, buf, sizeof(buf)) == (ssize_t)n);
	for (size_t i = 0; i < n; i++)
		CHECK((unsigned char)buf[i] == byte_at(seed, off + i));
}

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644), a[2], b[2];
	struct iovec iov = {buf, 3000};
	off_t off = 100;

	CHECK(pipe(a) == 0 && pipe(b) == 0);
	put(fd, 1, 0, 10000);
	CHECK(splice(fd, &off, a[1], NULL, 5000, 0) == 5000 && off == 5100 && lseek(fd, 0, SEEK_CUR) == 0);
	CHECK(tee(a[0], b[1], 5000, 0) == 5000);
	put(fd, 2, 100, 5000); /* what is in the pipes are pages of the file, perhaps: not looked at any more */
	CHECK(read(a[0], buf, sizeof(buf)) == 5000 && read(b[0], buf, sizeof(buf)) == 5000);
	CHECK(lseek(fd, 100, SEEK_SET) == 100 && splice(fd, NULL, a[1], NULL, 5000, 0) == 5000 &&
	      lseek(fd, 0, SEEK_CUR) == 5100);
	CHECK(tee(a[0], b[1], 5000, 0) == 5000);
	expect_pipe(a[0], 2, 100, 5000);
	expect_pipe(b[0], 2, 100, 5000);
	/* into the file: at its offset, at a given one, at the end of what was appended */
	fill(buf, 3000, 3, 5100);
	CHECK(vmsplice(a[1], &iov, 1, 0) == 3000 && splice(a[0], NULL, fd, NULL, 3000, 0) == 3000);
	CHECK(lseek(fd, 0, SEEK_CUR) == 8100);
	expect(fd, 3, 5100, 3000);
	put(fd, 4, 10000, 777);
	off = size_of(fd);
	fill(buf, 3000, 5, (uint64_t)off);
	CHECK(vmsplice(a[1], &iov, 1, 0) == 3000 && splice(a[0], NULL, fd, &off, 3000, 0) == 3000 && off == 13777);
	expect(fd, 4, 10000, 777);
	expect(fd, 5, 10777, 3000);
	CHECK(size_of(fd) == 13777 && lseek(fd, 0, SEEK_CUR) == 8100);
	put(fd, 6, 13777, 100);
	CHECK(fcntl(fd, F_SETFL, O_APPEND) == 0 && write(a[1], "x", 1) == 1);
	FAILS(splice(a[0], NULL, fd, NULL, 1, 0), EINVAL);
	expect(fd, 6, 13777, 100);
	return 0;
}
