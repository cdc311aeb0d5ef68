/* SPDX-License-Identifier: Apache-2.0 */
/* dup, dup2, dup3 and F_DUPFD share offset and O_APPEND; the last close is what counts. */
#include "check.h"

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644), d, other;
	char buf[32];

	CHECK((d = dup(fd)) >= 0 && write(fd, "abc", 3) == 3 && write(d, "def", 3) == 3);
	CHECK(lseek(fd, 0, SEEK_CUR) == 6 && dup2(fd, 60) == 60 && lseek(60, 1, SEEK_SET) == 1 && read(d, buf, 2) == 2);
	CHECK(memcmp(buf, "bc", 2) == 0 && lseek(fd, 0, SEEK_CUR) == 3);
	CHECK(close(fd) == 0 && write(d, "XYZ", 3) == 3 && close(d) == 0);
	FAILS(write(d, "no", 2), EBADF);
	CHECK(dup3(60, 61, O_CLOEXEC) == 61 && fcntl(61, F_GETFD) == FD_CLOEXEC && fcntl(60, F_GETFD) == 0);
	CHECK(fcntl(61, F_SETFL, O_APPEND) == 0 && lseek(60, 0, SEEK_SET) == 0 && write(60, "end", 3) == 3);
	expect_file("f", "abcXYZend");
	/* onto a descriptor of another file: that one is closed, with all its bytes */
	CHECK((other = open("g", O_RDWR | O_CREAT, 0644)) >= 0 && write(other, "other", 5) == 5 && dup2(60, other) == other);
	CHECK(write(other, "!", 1) == 1);
	expect_file("g", "other");
	expect_file("f", "abcXYZend!");
	/* the number of a closed descriptor comes back for another file */
	CHECK(close(other) == 0 && (fd = open("g", O_WRONLY | O_APPEND)) == other && write(fd, "+", 1) == 1);
	expect_file("g", "other+");
	FAILS(dup2(999, 60), EBADF);
	CHECK(size_of(60) == 10);
	return 0;
}
