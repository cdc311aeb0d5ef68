/* SPDX-License-Identifier: Apache-2.0 */
/* mremap and msync of a mapped file that grows and changes by write; private mappings; a mapping that outlives its descriptor. */
#include "check.h"

#include <sys/mman.h>

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	char *p, *q;

	put(fd, 1, 0, 4096);
	CHECK((p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) != MAP_FAILED);
	put(fd, 1, 4096, 20000);
	CHECK((p = mremap(p, 4096, 24576, MREMAP_MAYMOVE)) != MAP_FAILED);
	for (unsigned i = 0; i < 24096; i++)
		CHECK((unsigned char)p[i] == byte_at(1, i));
	memcpy(p + 10000, "mapped", 6);
	CHECK(msync(p, 24576, MS_SYNC) == 0);
	put(fd, 2, 10006, 100);
	CHECK(memcmp(p + 10000, "mapped", 6) == 0 && (unsigned char)p[10006] == byte_at(2, 10006));
	CHECK((q = mmap(NULL, 24096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0)) != MAP_FAILED);
	memcpy(q, "private", 7);
	expect(fd, 1, 0, 100);
	CHECK(close(fd) == 0);
	/* the mapping is there still, and the file is written by way of another descriptor */
	CHECK((fd = open("f", O_RDWR)) >= 0);
	put(fd, 3, 0, 9000);
	for (unsigned i = 0; i < 9000; i++)
		CHECK((unsigned char)p[i] == byte_at(3, i));
	p[9000] = 'm';
	CHECK(pread(fd, q, 1, 9000) == 1 && *q == 'm' && memcmp(q + 1, "rivate", 6) == 0);
	CHECK(munmap(p, 24576) == 0 && munmap(q, 24096) == 0);
	put(fd, 4, 24096, 5000);
	expect(fd, 4, 24096, 5000);
	CHECK(size_of(fd) == 29096);
	return 0;
}
