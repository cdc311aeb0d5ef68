/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong calls fail as the kernel's do, and calls that succeed leave errno alone. */
#include "check.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644), dir = open(".", O_RDONLY);
	char *bad = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), c;

	CHECK(bad != MAP_FAILED && munmap(bad, 8192) == 0);
	errno = 4242;
	put(fd, 1, 0, 10000);
	expect(fd, 1, 0, 10000);
	CHECK(lseek(fd, 5, SEEK_SET) == 5 && fsync(fd) == 0 && ftruncate(fd, 9000) == 0 && size_of(fd) == 9000 &&
	      errno == 4242);
	FAILS(read(-1, &c, 1), EBADF);
	FAILS(write(1 << 30, &c, 1), EBADF);
	FAILS(read(dir, &c, 1), EISDIR);
	FAILS(write(dir, &c, 1), EBADF);
	FAILS(pread(fd, &c, 1, -1), EINVAL);
	FAILS(pwrite(fd, &c, 1, -7), EINVAL);
	CHECK(read(fd, NULL, 0) == 0 && write(fd, NULL, 0) == 0 && pread(fd, bad, 0, 0) == 0);
	FAILS(pwrite(fd, &c, 1, INT64_MAX), EINVAL);
	FAILS(lseek(fd, INT64_MIN, SEEK_CUR), EINVAL);
	CHECK(size_of(fd) == 9000);
	FAILS(fsync(999), EBADF);
	FAILS(ftruncate(999, 1), EBADF);
	FAILS(openat(fd, "x", O_RDONLY), ENOTDIR);
	FAILS(open("f", O_RDONLY | O_CREAT | O_DIRECTORY), errno == EINVAL ? EINVAL : ENOTDIR);
	CHECK(close(dir) == 0);
	FAILS(close(dir), EBADF);
	/* a size limit: SIGXFSZ when not ignored, else EFBIG; a write up to the limit is short */
	CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &(struct rlimit){9010, 9010}) == 0);
	CHECK(lseek(fd, 9000, SEEK_SET) == 9000 && write(fd, "0123456789abcdef", 16) == 10);
	FAILS(write(fd, "x", 1), EFBIG);
	FAILS(ftruncate(fd, 9011), EFBIG);
	CHECK(size_of(fd) == 9010 && pwrite(fd, "yz", 2, 9008) == 2);
	return 0;
}
