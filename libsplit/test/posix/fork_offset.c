/* SPDX-License-Identifier: Apache-2.0 */
/* Parent and child share one offset, in both directions, and see each other's bytes at once. */
#include "check.h"

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	char buf[32];
	pid_t pid;

	CHECK(write(fd, "parent.", 7) == 7);
	if ((pid = fork()) == 0) {
		CHECK(lseek(fd, 0, SEEK_CUR) == 7 && pread(fd, buf, 7, 0) == 7 && memcmp(buf, "parent.", 7) == 0);
		CHECK(write(fd, "child.", 6) == 6);
		_exit(0);
	}
	CHECK(status_of(pid) == 0 && lseek(fd, 0, SEEK_CUR) == 13);
	CHECK(write(fd, "again.", 6) == 6 && lseek(fd, 3, SEEK_SET) == 3);
	if ((pid = fork()) == 0) {
		CHECK(read(fd, buf, 4) == 4 && memcmp(buf, "ent.", 4) == 0);
		exit(0);
	}
	CHECK(status_of(pid) == 0 && read(fd, buf, 6) == 6 && memcmp(buf, "child.", 6) == 0);
	expect_file("f", "parent.child.again.");
	return 0;
}
