/* SPDX-License-Identifier: Apache-2.0 */
/* Stores through a shared mapping are what read returns, before and after the mapping is gone. */
#include "check.h"

#include <sys/mman.h>

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644), other = open("f", O_RDWR);
	unsigned char *p;

	put(fd, 1, 0, 65536);
	CHECK((p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) != MAP_FAILED);
	fill(p + 1000, 5000, 9, 1000);
	expect(other, 9, 1000, 5000);
	put(other, 5, 3000, 100);
	CHECK(p[3050] == byte_at(5, 3050));
	CHECK(close(fd) == 0); /* the mapping stays */
	put(other, 6, 65536, 4096);
	fill(p + 20000, 100, 9, 20000);
	expect(other, 9, 20000, 100);
	CHECK(msync(p, 65536, MS_SYNC) == 0 && munmap(p, 65536) == 0);
	put(other, 7, 30000, 100);
	expect(other, 9, 1000, 2000);
	expect(other, 5, 3000, 100);
	expect(other, 9, 20000, 100);
	expect(other, 7, 30000, 100);
	expect(other, 6, 65536, 4096);
	return 0;
}
