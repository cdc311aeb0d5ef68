/* SPDX-License-Identifier: Apache-2.0 */
/* A server that opens its files as root, gives root up and goes on writing, also to files it opens later. */
#include "check.h"

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0600), later;

	if (getuid() != 0)
		SKIP("not root");
	put(fd, 1, 0, 1000);
	CHECK(mkdir("own", 0755) == 0 && chown("own", 65534, 65534) == 0);
	CHECK(setgid(65534) == 0 && setuid(65534) == 0);
	put(fd, 1, 1000, 50000);
	expect(fd, 1, 0, 51000);
	FAILS(open("f", O_RDWR), EACCES);
	CHECK((later = open("own/g", O_RDWR | O_CREAT, 0600)) >= 0);
	put(later, 2, 0, 60000);
	CHECK(fsync(later) == 0 && fsync(fd) == 0 && size_of(later) == 60000);
	expect(later, 2, 0, 60000);
	return 0;
}
