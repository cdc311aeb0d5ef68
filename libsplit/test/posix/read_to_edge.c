/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory ends in the middle of a read: it returns what there was room for, and the file offset is behind that, whatever the bytes come from: written just
 * now, forced, or found when the file was opened.
 */
#include "check.h"

#include <sys/mman.h>
#include <sys/uio.h>

enum { PAGE = 4096, SIZE = 5 * PAGE + 100 };

static char *edge; /* behind the last byte there is no memory */

static void same(const char *at, size_t n, off_t off)
{
	for (size_t i = 0; i < n; i++)
		CHECK((unsigned char)at[i] == byte_at(1, (uint64_t)off + i));
}

static void reads(int fd, off_t off)
{
	static const size_t goods[] = {1, 15, 100, 600, PAGE};

	for (size_t i = 0; i < sizeof(goods) / sizeof(goods[0]); i++) {
		const size_t good = goods[i], n = good + 1 + 900 * i;
		char *at = edge - good, first[20];
		struct iovec iov[2] = {{first, sizeof(first)}, {at, n}};

		memset(at, 0, good);
		CHECK(pread(fd, at, n, off) == (ssize_t)good);
		same(at, good, off);
		memset(at, 0, good);
		CHECK(lseek(fd, off, SEEK_SET) == off && read(fd, at, n) == (ssize_t)good);
		CHECK(lseek(fd, 0, SEEK_CUR) == off + (off_t)good);
		same(at, good, off);
		memset(at, 0, good);
		CHECK(preadv(fd, iov, 2, off) == (ssize_t)(sizeof(first) + good));
		same(first, sizeof(first), off);
		same(at, good, off + (off_t)sizeof(first));
	}
	FAILS(pread(fd, edge, 10, off), EFAULT);
}

int main(void)
{
	char *p = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);

	CHECK(p != MAP_FAILED && fd >= 0 && munmap(p + 2 * PAGE, PAGE) == 0);
	edge = p + 2 * PAGE;
	for (int round = 0; round < 2; round++) {
		put(fd, 1, 0, SIZE);
		reads(fd, 0);
		reads(fd, 3000);
		CHECK(fsync(fd) == 0);
		reads(fd, 0);
		reads(fd, PAGE - 7);
		put(fd, 1, PAGE, 50); /* some of it written just now, and some not */
		reads(fd, PAGE - 7);
		CHECK(close(fd) == 0 && (fd = open("f", O_RDWR)) >= 0);
		reads(fd, 0);
		reads(fd, 3000);
	}
	return 0;
}
