/* SPDX-License-Identifier: Apache-2.0 */
/* fcntl(F_DUPFD) counts from its argument; F_DUPFD_CLOEXEC sets the flag; both share the offset. */
#include "check.h"

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644), a, b;
	char c;

	put(fd, 2, 0, 5000);
	CHECK((a = fcntl(fd, F_DUPFD, 500)) == 500 && (b = fcntl(fd, F_DUPFD_CLOEXEC, 500)) == 501);
	CHECK(fcntl(a, F_GETFD) == 0 && fcntl(b, F_GETFD) == FD_CLOEXEC);
	CHECK(lseek(a, 4000, SEEK_SET) == 4000 && read(b, &c, 1) == 1 && (unsigned char)c == byte_at(2, 4000));
	CHECK(lseek(fd, 0, SEEK_CUR) == 4001);
	FAILS(fcntl(fd, F_DUPFD, -1), EINVAL);
	FAILS(fcntl(999, F_DUPFD, 0), EBADF);
	CHECK(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC && fcntl(a, F_GETFD) == 0);
	return 0;
}
