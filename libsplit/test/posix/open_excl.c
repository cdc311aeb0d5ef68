/* SPDX-License-Identifier: Apache-2.0 */
/* O_EXCL, O_CREAT with a mode, O_NOFOLLOW, O_DIRECTORY. */
#include "check.h"

int main(void)
{
	struct stat st;
	int fd;

	umask(027);
	CHECK((fd = open("f", O_RDWR | O_CREAT | O_EXCL, 0666)) >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0640);
	FAILS(open("f", O_RDWR | O_CREAT | O_EXCL, 0666), EEXIST);
	CHECK(symlink("f", "s") == 0 && close(fd) == 0);
	FAILS(open("s", O_RDONLY | O_NOFOLLOW), ELOOP);
	FAILS(open("f", O_RDONLY | O_DIRECTORY), ENOTDIR);
	FAILS(open("missing", O_RDONLY), ENOENT);
	FAILS(open("f/x", O_RDONLY), ENOTDIR);
	CHECK((fd = open("s", O_WRONLY)) >= 0 && write(fd, "through", 7) == 7 && close(fd) == 0);
	expect_file("f", "through");
	CHECK((fd = open("f", O_RDWR | O_CLOEXEC)) >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
	return 0;
}
