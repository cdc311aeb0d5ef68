/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One write of 200 MB, more than the staging pool has, and pieces of it read back. The kernel, posix and sync write the whole of it; strict, where
 * a call is whole or not at all, as much as there is staging space for.
 */
#include "check.h"

#include <sys/mman.h>

#define MB (1u << 20)

int main(void)
{
	const size_t n = 200 * MB;
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	uint64_t *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const char *mode = getenv("SPLITFS_CONFIG");
	ssize_t written;
	uint64_t word;

	CHECK(p != MAP_FAILED);
	for (size_t i = 0; i < n / 8; i++)
		p[i] = i * 0x9e3779b97f4a7c15ull;
	CHECK(write(fd, "12345678", 8) == 8);
	written = write(fd, p, n);
	CHECK(written == (ssize_t)n || (written > 0 && mode && strncmp(mode, "strict", 6) == 0));
	write_all(fd, (char *)p + written, n - (size_t)written);
	CHECK(size_of(fd) == (off_t)n + 8 && lseek(fd, 0, SEEK_CUR) == (off_t)n + 8);
	for (size_t i = 0; i < n / 8; i += 65521)
		CHECK(pread(fd, &word, 8, (off_t)i * 8 + 8) == 8 && word == p[i]);
	memset(p, 0, n);
	CHECK(pread(fd, p, n, 8) == (ssize_t)n);
	for (size_t i = 0; i < n / 8; i++)
		CHECK(p[i] == i * 0x9e3779b97f4a7c15ull);
	CHECK(fsync(fd) == 0 && ftruncate(fd, 0) == 0 && close(fd) == 0 && unlink("f") == 0);
	return 0;
}
