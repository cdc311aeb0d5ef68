/* SPDX-License-Identifier: Apache-2.0 */
/* close_range and closefrom close files with all their bytes; CLOSE_RANGE_CLOEXEC closes nothing yet. */
#include "check.h"

#include <linux/close_range.h>

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4
#endif

int main(void)
{
	char name[16];
	int first = -1, fd = -1;

	CHECK(close_range(3, ~0u, 0) == 0); /* what we inherited */
	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		CHECK((fd = open(name, O_RDWR | O_CREAT, 0644)) >= 0 && write(fd, name, strlen(name)) > 0);
		if (first < 0)
			first = fd;
	}
	CHECK(close_range((unsigned)first, (unsigned)first + 4, CLOSE_RANGE_CLOEXEC) == 0 &&
	      fcntl(first, F_GETFD) == FD_CLOEXEC);
	CHECK(write(first, "+", 1) == 1);
	CHECK(close_range((unsigned)first, (unsigned)first + 9, 0) == 0);
	FAILS(write(first, "x", 1), EBADF);
	CHECK(write(first + 10, "+", 1) == 1);
	expect_file("f0", "f0+");
	expect_file("f9", "f9");
	closefrom(first + 15);
	FAILS(write(fd, "x", 1), EBADF);
	expect_file("f19", "f19");
	/* the numbers serve again */
	CHECK((fd = open("new", O_RDWR | O_CREAT, 0644)) == first && write(fd, "new", 3) == 3 &&
	      write(first + 10, "+", 1) == 1);
	expect_file("new", "new");
	expect_file("f10", "f10++");
	FAILS(close_range(10, 5, 0), EINVAL);
	return 0;
}
