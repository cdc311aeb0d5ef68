/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon's start: close every number there can be, then work as if nothing had happened. */
#include "check.h"

int main(void)
{
	int fd = open("before", O_RDWR | O_CREAT, 0644);

	put(fd, 1, 0, 10000);
	for (int i = 3; i < 4096; i++)
		close(i);
	CHECK((fd = open("f", O_RDWR | O_CREAT, 0644)) == 3);
	put(fd, 2, 0, 100000);
	CHECK(fsync(fd) == 0);
	put(fd, 3, 500, 5000);
	expect(fd, 3, 500, 5000);
	expect(fd, 2, 5500, 94500);
	CHECK(close(fd) == 0 && (fd = open("before", O_RDONLY)) == 3);
	expect(fd, 1, 0, 10000);
	return 0;
}
