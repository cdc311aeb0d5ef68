/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bad buffer is EFAULT (or a short result), not the end of the program: NULL and its neighbours, the kernel's addresses, and any other
 * that is not mapped. bad_buffer.c has every kind of read and write.
 */
#include "check.h"

#include <sys/mman.h>

#ifdef __x86_64__
#define HIGH (1ull << 47)
#else
#define HIGH (1ull << 56)
#endif

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	/* hidden from the compiler, which would refuse them */
	char *volatile null = NULL, *volatile low = (char *)16, *volatile high = (char *)HIGH, *volatile page = (char *)4096;
	ssize_t n;

	put(fd, 1, 0, 10000);
	CHECK(p != MAP_FAILED && munmap(p + 4096, 4096) == 0);
	FAILS(read(fd, null, 10), EFAULT);
	FAILS(pwrite(fd, high, 10, 0), EFAULT);
	FAILS(pread(fd, low, 10, 0), EFAULT);
	FAILS(pwrite(fd, low, 10, 10000), EFAULT);
	FAILS(pwrite(fd, page, 10, 0), EFAULT);
	FAILS(syscall(SYS_pwrite64, fd, page, 10l, 0l), EFAULT);
	FAILS(syscall(SYS_pread64, fd, page, 10l, 0l), EFAULT);
	CHECK(size_of(fd) == 10000);
	FAILS(read(fd, p + 4096, 10), EFAULT);
	FAILS(pwrite(fd, p + 4096, 10, 0), EFAULT);
	n = pread(fd, p + 4000, 200, 0);
	CHECK(n == 96 || (n == -1 && errno == EFAULT));
	n = pwrite(fd, p + 4000, 200, 10000);
	CHECK((n >= 0 && n <= 96) || (n == -1 && errno == EFAULT));
	CHECK(size_of(fd) == 10000 + (n > 0 ? n : 0));
	expect(fd, 1, 0, 10000);
	return 0;
}
