/* SPDX-License-Identifier: Apache-2.0 */
/* lseek: all origins, errors, beyond the end; SEEK_DATA and SEEK_HOLE find what was just written. */
#include "check.h"

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	off_t data, hole;

	put(fd, 1, 0, 10000);
	CHECK(lseek(fd, 0, SEEK_END) == 10000 && lseek(fd, -1, SEEK_CUR) == 9999 && lseek(fd, 10, SEEK_END) == 10010);
	FAILS(lseek(fd, -1, SEEK_SET), EINVAL);
	FAILS(lseek(fd, -10001, SEEK_END), EINVAL);
	FAILS(lseek(fd, 0, 77), EINVAL);
	FAILS(lseek(999, 0, SEEK_SET), EBADF);
	CHECK(lseek(fd, 0, SEEK_CUR) == 10010 && write(fd, "x", 1) == 1 && size_of(fd) == 10011);
	expect_zeros(fd, 10000, 10);
	CHECK(ftruncate(fd, 0) == 0);
	put(fd, 1, 1 << 20, 4096);
	CHECK(lseek(fd, 0, SEEK_END) == (1 << 20) + 4096);
	data = lseek(fd, 0, SEEK_DATA);
	CHECK(data >= 0 && data <= 1 << 20); /* a file system may know no holes */
	CHECK((hole = lseek(fd, 1 << 20, SEEK_HOLE)) == (1 << 20) + 4096);
	FAILS(lseek(fd, 2 << 20, SEEK_DATA), ENXIO);
	FAILS(lseek(fd, 2 << 20, SEEK_HOLE), ENXIO);
	return 0;
}
