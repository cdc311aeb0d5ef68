/* SPDX-License-Identifier: Apache-2.0 */
/* A mapping made after writes has their bytes, private and shared, and later writes show in it. */
#include "check.h"

#include <sys/mman.h>

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	unsigned char *p;

	put(fd, 1, 0, 100000);
	put(fd, 2, 50000, 100);
	CHECK((p = mmap(NULL, 100000, PROT_READ, MAP_SHARED, fd, 0)) != MAP_FAILED);
	for (unsigned i = 0; i < 100000; i++)
		CHECK(p[i] == byte_at(i >= 50000 && i < 50100 ? 2 : 1, i));
	put(fd, 3, 60000, 5000);
	for (unsigned i = 60000; i < 65000; i++)
		CHECK(p[i] == byte_at(3, i));
	put(fd, 4, 100000, 5000);
	CHECK(munmap(p, 100000) == 0);
	CHECK((p = mmap(NULL, 105000, PROT_READ, MAP_PRIVATE, fd, 0)) != MAP_FAILED);
	for (unsigned i = 100000; i < 105000; i++)
		CHECK(p[i] == byte_at(4, i));
	return 0;
}
