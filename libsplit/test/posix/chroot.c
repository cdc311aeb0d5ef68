/* SPDX-License-Identifier: Apache-2.0 */
/* chroot and chdir while files are open: they go on, and paths mean other files. */
#include "check.h"

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644), other;

	put(fd, 1, 0, 5000);
	CHECK(mkdir("jail", 0755) == 0 && mkdir("jail/sub", 0755) == 0);
	if (chroot("jail") < 0 && errno == EPERM)
		SKIP("chroot needs privileges");
	CHECK(chdir("/") == 0);
	put(fd, 2, 5000, 5000);
	CHECK((other = open("/f", O_RDWR | O_CREAT | O_EXCL, 0644)) >= 0 && size_of(fd) == 10000);
	put(other, 3, 0, 9000);
	CHECK(rename("/f", "/sub/g") == 0 && truncate("/sub/g", 4000) == 0 && size_of(other) == 4000 && chdir("sub") == 0);
	put(other, 4, 4000, 100);
	CHECK(close(other) == 0 && (other = open("g", O_RDONLY)) >= 0 && size_of(other) == 4100);
	expect(other, 3, 0, 4000);
	expect(other, 4, 4000, 100);
	expect(fd, 1, 0, 5000);
	expect(fd, 2, 5000, 5000);
	return close(fd);
}
