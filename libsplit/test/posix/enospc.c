/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A full file system: a write that does not fit says ENOSPC (or is short), what was written stays right, and room that is made
 * can be used. The runner gives this one a small file system of its own.
 */
#include "check.h"

#include <sys/statvfs.h>

int main(void)
{
	const size_t piece = 1 << 20;
	char *buf = malloc(piece);
	struct statvfs fs;
	off_t size = 0;
	int fd, small;

	CHECK(buf && statvfs(".", &fs) == 0);
	if ((uint64_t)fs.f_blocks * fs.f_frsize > 512ull << 20)
		SKIP("the file system is too large to be filled");
	CHECK((small = open("small", O_RDWR | O_CREAT, 0644)) >= 0);
	put(small, 7, 0, 100000);
	CHECK((fd = open("f", O_RDWR | O_CREAT, 0644)) >= 0);
	for (;;) {
		ssize_t n;

		fill(buf, piece, 1, (uint64_t)size);
		n = write(fd, buf, piece);
		if (n < 0) {
			CHECK(errno == ENOSPC);
			break;
		}
		CHECK(n > 0);
		size += n;
		CHECK((uint64_t)size <= (uint64_t)fs.f_blocks * fs.f_frsize);
	}
	CHECK(size > (off_t)piece && size_of(fd) == size);
	expect(fd, 1, 0, (size_t)size);
	expect(small, 7, 0, 100000);
	put(small, 8, 5000, 1000); /* overwriting needs no room */
	expect(small, 8, 5000, 1000);
	CHECK(ftruncate(fd, size / 2) == 0);
	expect(fd, 1, 0, (size_t)size / 2);
	put(small, 9, 100000, 100000);
	CHECK(fsync(small) == 0 && fsync(fd) == 0 && close(fd) == 0 && unlink("f") == 0);
	expect(small, 9, 100000, 100000);
	return 0;
}
