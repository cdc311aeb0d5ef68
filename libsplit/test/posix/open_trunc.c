/* SPDX-License-Identifier: Apache-2.0 */
/* O_TRUNC empties a file that is open elsewhere, and what was written before never comes back. */
#include "check.h"

int main(void)
{
	int a = open("f", O_RDWR | O_CREAT, 0644), b;
	char buf[8];

	put(a, 1, 0, 100000);
	CHECK(lseek(a, 50000, SEEK_SET) == 50000);
	CHECK((b = open("f", O_WRONLY | O_TRUNC)) >= 0);
	CHECK(size_of(a) == 0 && size_of(b) == 0 && read(a, buf, 8) == 0 && pread(a, buf, 8, 0) == 0);
	CHECK(write(a, "x", 1) == 1 && size_of(b) == 50001);
	expect_zeros(a, 0, 50000);
	CHECK(fsync(a) == 0 && close(a) == 0 && close(b) == 0);
	CHECK((a = open("f", O_RDONLY)) >= 0 && size_of(a) == 50001);
	expect_zeros(a, 0, 50000);
	CHECK((b = creat("f", 0644)) >= 0 && size_of(a) == 0);
	return 0;
}
