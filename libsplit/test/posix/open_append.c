/* SPDX-License-Identifier: Apache-2.0 */
/* O_APPEND: every write goes to the end, whatever the offset; F_SETFL turns it on and off. */
#include "check.h"

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT | O_APPEND, 0644), other;
	char buf[32];

	CHECK(fd >= 0 && write(fd, "one", 3) == 3 && lseek(fd, 0, SEEK_SET) == 0);
	CHECK(write(fd, "two", 3) == 3 && lseek(fd, 0, SEEK_CUR) == 6);
	CHECK((other = open("f", O_WRONLY)) >= 0 && pwrite(other, "five!", 5, 6) == 5);
	CHECK(write(fd, "six", 3) == 3 && lseek(fd, 0, SEEK_CUR) == 14);
	CHECK(pwrite(fd, "PW", 2, 0) == 2); /* Linux appends here, too */
	CHECK(size_of(fd) == 16);
	CHECK(pread(fd, buf, sizeof(buf), 0) == 16 && memcmp(buf, "onetwofive!sixPW", 16) == 0);
	CHECK(fcntl(fd, F_SETFL, 0) == 0 && (fcntl(fd, F_GETFL) & O_APPEND) == 0);
	CHECK(lseek(fd, 0, SEEK_SET) == 0 && write(fd, "ONE", 3) == 3 && pwrite(fd, "W", 1, 4) == 1);
	CHECK(fcntl(fd, F_SETFL, O_APPEND) == 0 && (fcntl(fd, F_GETFL) & O_APPEND));
	CHECK((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR);
	CHECK(write(fd, "end", 3) == 3);
	close(fd);
	expect_file("f", "ONEtWofive!sixPWend");
	return 0;
}
