/* SPDX-License-Identifier: Apache-2.0 */
/* Writes far apart, also far beyond the end: zeros between, few blocks, every piece where it was put. */
#include "check.h"

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	struct stat st;

	for (unsigned i = 0; i < 40; i++)
		put(fd, i, ((off_t)i * 7919 % 40) * (1 << 26) + i * 3, 5000);
	for (unsigned i = 0; i < 40; i++) {
		off_t off = ((off_t)i * 7919 % 40) * (1 << 26) + i * 3;

		expect(fd, i, off, 5000);
		expect_zeros(fd, off + 5000, off + 5000 + 4096 < size_of(fd) ? 4096 : 0);
	}
	/* XFS with stripes (2 MiB where huge mappings are wanted) gives a whole one to each piece that is written behind the end. */
	CHECK(fsync(fd) == 0 && fstat(fd, &st) == 0 && st.st_blocks < 40 * (2 << 20) / 512 + 40 * 64);
	put(fd, 99, 1ll << 40, 100);
	CHECK(size_of(fd) == (1ll << 40) + 100);
	expect(fd, 99, 1ll << 40, 100);
	expect_zeros(fd, 1ll << 39, 4096);
	CHECK(ftruncate(fd, 5) == 0 && size_of(fd) == 5);
	return 0;
}
