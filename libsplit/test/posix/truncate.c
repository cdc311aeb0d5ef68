/* SPDX-License-Identifier: Apache-2.0 */
/* Shorter and longer again: what was cut off reads as zeros, through every descriptor and by path. */
#include "check.h"

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644), other = open("f", O_RDONLY);
	char c;

	put(fd, 1, 0, 300000);
	CHECK(ftruncate(fd, 100001) == 0 && size_of(other) == 100001 && pread(other, &c, 1, 100001) == 0);
	expect(other, 1, 0, 100001);
	CHECK(ftruncate(fd, 300000) == 0);
	expect(other, 1, 0, 100001);
	expect_zeros(other, 100001, 199999);
	put(fd, 2, 300000, 5000);
	CHECK(truncate("f", 299999) == 0 && size_of(fd) == 299999 && truncate("f", 305000) == 0);
	expect_zeros(fd, 100001, 204999);
	/* appended, cut inside the appended part, appended again */
	for (int i = 0; i < 50; i++) {
		off_t end = size_of(fd);

		put(fd, 10, end, 777);
		CHECK(ftruncate(fd, end + 333) == 0);
		put(fd, 11, end + 333, 100);
		expect(fd, 10, end, 333);
		expect(fd, 11, end + 333, 100);
	}
	CHECK(fsync(fd) == 0 && ftruncate(fd, 0) == 0 && size_of(other) == 0);
	FAILS(ftruncate(fd, -1), EINVAL);
	FAILS(truncate("f", -1), EINVAL);
	FAILS(truncate("missing", 0), ENOENT);
	return 0;
}
