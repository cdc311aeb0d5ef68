/* SPDX-License-Identifier: Apache-2.0 */
/* fallocate in its modes beside staged bytes: size, zeros, and what must stay. */
#include "check.h"

#include <linux/falloc.h>

static int supported(int r)
{
	CHECK(r == 0 || (r == -1 && (errno == EOPNOTSUPP || errno == EINVAL)));
	return r == 0;
}

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644);

	put(fd, 1, 0, 65536);
	CHECK(posix_fallocate(fd, 0, 100000) == 0 && size_of(fd) == 100000);
	expect(fd, 1, 0, 65536);
	expect_zeros(fd, 65536, 100000 - 65536);
	put(fd, 2, 100000, 8192);
	if (supported(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 1 << 20)))
		CHECK(size_of(fd) == 108192);
	put(fd, 3, 108192, 8192);
	if (supported(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5000, 20000))) {
		expect(fd, 1, 0, 5000);
		expect_zeros(fd, 5000, 20000);
		expect(fd, 1, 25000, 65536 - 25000);
	}
	put(fd, 4, 10000, 100);
	if (supported(fallocate(fd, FALLOC_FL_ZERO_RANGE, 30000, 10000)))
		expect_zeros(fd, 30000, 10000);
	expect(fd, 4, 10000, 100);
	expect(fd, 2, 100000, 8192);
	expect(fd, 3, 108192, 8192);
	put(fd, 5, 116384, 3616); /* the size is 120000 now */
	if (supported(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 4096))) {
		CHECK(size_of(fd) == 120000 - 4096);
		for (int i = 0; i < 904; i++) {
			unsigned char c;

			CHECK(pread(fd, &c, 1, i) == 1 && c == byte_at(1, 4096 + (uint64_t)i));
		}
	}
	CHECK(posix_fallocate(fd, 0, 0) == EINVAL && posix_fallocate(999, 0, 1) == EBADF &&
	      posix_fallocate(fd, -1, 1) == EINVAL);
	FAILS(fallocate(fd, 0, 0, 0), EINVAL);
	return 0;
}
