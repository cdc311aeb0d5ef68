/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appends to a file, and reads and writes it by system calls of its own in between, which the library can't see: two violations of what
 * test/apps/gate watches over. What comes of them is not looked at.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static long behind(long nr, long fd, void *buf, long n, long at)
{
	long ret;
	register long r10 __asm__("r10") = at;

	__asm__ volatile("syscall" : "=a"(ret) : "a"(nr), "D"(fd), "S"(buf), "d"(n), "r"(r10) : "rcx", "r11", "memory");
	return ret;
}

int main(void)
{
	const int fd = open("violated", O_RDWR | O_CREAT | O_TRUNC, 0644);
	char buf[10000];

	memset(buf, 'x', sizeof(buf));
	if (fd < 0 || write(fd, buf, sizeof(buf)) != sizeof(buf))
		return 1;
	if (behind(SYS_pread64, fd, buf, 100, 0) < 0)
		return 1;
	if (write(fd, buf, sizeof(buf)) != sizeof(buf) || behind(SYS_pwrite64, fd, buf, 100, 0) != 100)
		return 1;
	return fsync(fd) || close(fd);
}
