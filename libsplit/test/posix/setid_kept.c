/* SPDX-License-Identifier: Apache-2.0 */
/* root may write to a set-user-ID file, which stays one: appends, overwrites, long ones. */
#include "check.h"

int main(void)
{
	int fd = open("file", O_RDWR | O_CREAT, 0755);
	struct stat st;

	if (geteuid() != 0)
		SKIP("only root keeps the bits");
	CHECK(fd >= 0 && fchmod(fd, 04755) == 0);
	for (int i = 0; i < 20; i++) {
		put(fd, 1, i * 100, 100);
		put(fd, 1, 2000 + i * 9000, 9000);
	}
	put(fd, 2, 50, 20000);
	expect(fd, 1, 0, 50);
	expect(fd, 2, 50, 20000);
	expect(fd, 1, 20050, 2000 + 20 * 9000 - 20050);
	CHECK(fstat(fd, &st) == 0 && (st.st_mode & 07777) == 04755);
	CHECK(fsync(fd) == 0 && close(fd) == 0);
	return 0;
}
