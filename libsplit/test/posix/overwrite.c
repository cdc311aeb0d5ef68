/* SPDX-License-Identifier: Apache-2.0 */
/* Random overwrites and appends of all sizes against a copy in memory, read back through another descriptor and after close. */
#include "check.h"

enum { SIZE = 1 << 20 };

static unsigned next(unsigned *seed, unsigned below)
{
	*seed = *seed * 1103515245u + 12345u;
	return (*seed >> 8) % below;
}

int main(void)
{
	static unsigned char model[SIZE], buf[SIZE];
	int fd = open("f", O_RDWR | O_CREAT, 0644), other = open("f", O_RDONLY);
	unsigned seed = 42, size = 0;

	for (int i = 0; i < 4000; i++) {
		unsigned n = next(&seed, 8) ? next(&seed, 300) + 1 : next(&seed, 40000) + 1;
		unsigned off = next(&seed, 3) ? next(&seed, size + 1) : size;

		if (off + n > SIZE)
			continue;
		fill(buf, n, (unsigned)i, off);
		memcpy(model + off, buf, n);
		size = off + n > size ? off + n : size;
		if (i % 3)
			CHECK(pwrite(fd, buf, n, off) == (ssize_t)n);
		else
			CHECK(lseek(fd, off, SEEK_SET) == (off_t)off && write(fd, buf, n) == (ssize_t)n);
		off = next(&seed, size);
		n = next(&seed, 50000) + 1;
		if (off + n > size)
			n = size - off;
		CHECK(pread(i & 1 ? fd : other, buf, SIZE - off < n + 9 ? SIZE - off : n + 9, off) >= (ssize_t)n);
		CHECK(memcmp(buf, model + off, n) == 0);
		if (i % 700 == 699)
			CHECK(fsync(fd) == 0);
		if (i % 900 == 899)
			CHECK(close(fd) == 0 && (fd = open("f", O_RDWR)) >= 0 && size_of(fd) == (off_t)size);
	}
	CHECK(close(fd) == 0 && read(other, buf, SIZE) == (ssize_t)size && memcmp(buf, model, size) == 0);
	return 0;
}
