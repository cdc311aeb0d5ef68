/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong has an errno, and nothing is lost by it. */
#include <sys/mman.h>

#include "peek.h"

#define PEEK_FAILS(fd, off, len, got, err)                                                                                     \
	do {                                                                                                                   \
		errno = 0;                                                                                                     \
		CHECK(splitfs_peek(fd, off, len, got) == NULL && errno == (err));                                              \
	} while (0)

/* Where a file can't be served without a copy it is ENOTSUP, until the program asks for copies. */
static void not_ours(void)
{
	int fd = open("/proc/self/exe", O_RDONLY), pipes[2];
	size_t got = 1;
	const char *p;

	CHECK(fd >= 0 && pipe(pipes) == 0);
	PEEK_FAILS(fd, 0, 4, &got, ENOTSUP);
	PEEK_FAILS(pipes[0], 0, 4, &got, ENOTSUP);
	CHECK(splitfs_flags(SPLITFS_COPY | 0x80) == 0);
	p = splitfs_peek(fd, 0, 4, &got);
	CHECK(p && got == 4 && memcmp(p, "\177ELF", 4) == 0);
	CHECK(splitfs_unpeek(p) == 0);
	FAILS(splitfs_unpeek(p), EINVAL);
	PEEK_FAILS(pipes[0], 0, 4, &got, ESPIPE);
	CHECK(splitfs_flags(0) == SPLITFS_COPY);
	CHECK(close(fd) == 0 && close(pipes[0]) == 0 && close(pipes[1]) == 0);
}

/* A copy has what pread gives, also of a file that says its size is 0. */
static void sizeless(void)
{
	const int fd = open("/proc/version", O_RDONLY);
	char want[BLOCK];
	const ssize_t n = fd < 0 ? 0 : pread(fd, want, sizeof(want), 3);
	const void *p;
	size_t got;

	splitfs_flags(SPLITFS_COPY);
	p = fd < 0 ? NULL : splitfs_peek(fd, 3, SSIZE_MAX, &got);
	CHECK(fd < 0 || (n > 0 && p && got == (size_t)n && memcmp(p, want, got) == 0 && splitfs_unpeek(p) == 0));
	splitfs_flags(0);
	CHECK(fd < 0 || close(fd) == 0);
}

static void mapped(int fd)
{
	size_t got;
	void *m = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	const char *p;

	/* Stores to the program's own mapping are not seen. */
	CHECK(m != MAP_FAILED);
	PEEK_FAILS(fd, 0, BLOCK, &got, ENOTSUP);
	splitfs_flags(SPLITFS_COPY);
	p = snapshot(fd, 1, 0, BLOCK);
	memset(m, 'x', BLOCK);
	expect_snapshot(p, 1, 0, BLOCK);
	CHECK(splitfs_unpeek(p) == 0 && munmap(m, BLOCK) == 0);
	splitfs_flags(0);
}

int main(void)
{
	int fd = open("file", O_RDWR | O_CREAT, 0600), out = open("file", O_WRONLY), path = open("file", O_PATH);
	const char *p, *q;
	struct iovec iov[1];
	size_t got = 7;

	CHECK(fd >= 0 && out >= 0 && path >= 0);
	put(fd, 1, 0, 5 * BLOCK);
	splitfs_flags(served() ? 0 : SPLITFS_COPY);
	PEEK_FAILS(-1, 0, 1, &got, EBADF);
	PEEK_FAILS(999, 0, 1, &got, EBADF);
	PEEK_FAILS(out, 0, 1, &got, EBADF);
	PEEK_FAILS(path, 0, 1, &got, EBADF);
	PEEK_FAILS(fd, -1, 1, &got, EINVAL);
	PEEK_FAILS(fd, 0, (size_t)SSIZE_MAX + 1, &got, EINVAL);
	PEEK_FAILS(fd, 0, SIZE_MAX, &got, EINVAL);
	PEEK_FAILS(fd, 0, 1, NULL, EINVAL);
	FAILS(splitfs_peekv(fd, 0, 1, iov, 0, &got), EINVAL);
	FAILS(splitfs_peekv(fd, 0, 1, NULL, 1, &got), EINVAL);
	FAILS(splitfs_peekv(out, 0, 1, iov, 1, &got), EBADF);
	CHECK(got == 7);
	/* Foreign pointers, NULL, the middle of a snapshot, and what was given back. */
	p = snapshot(fd, 1, 10, 3 * BLOCK);
	FAILS(splitfs_unpeek(&got), EINVAL);
	FAILS(splitfs_unpeek(NULL), EINVAL);
	FAILS(splitfs_unpeek(p + 1), EINVAL);
	FAILS(splitfs_unpeek((void *)-1), EINVAL);
	q = snapshot(fd, 1, 10, BLOCK);
	CHECK(splitfs_unpeek(q) == 0);
	expect_snapshot(p, 1, 10, 3 * BLOCK);
	CHECK(splitfs_unpeek(p) == 0);
	FAILS(splitfs_unpeek(p), EINVAL);
	p = splitfs_peek(fd, 5 * BLOCK, 1, &got);
	CHECK(p && got == 0 && splitfs_unpeek(p) == 0);
	FAILS(splitfs_unpeek(p), EINVAL);
	splitfs_flags(0);
	not_ours();
	sizeless();
	mapped(fd);
	/* A snapshot is a buffer as any other, but not one to read into. */
	splitfs_flags(SPLITFS_COPY);
	p = snapshot(fd, 1, BLOCK, BLOCK);
	FAILS(pread(fd, (void *)p, 100, 0), EFAULT);
	CHECK(pwrite(fd, p, BLOCK, 3 * BLOCK) == BLOCK);
	CHECK(splitfs_unpeek(p) == 0);
	expect(fd, 1, BLOCK, BLOCK);
	return 0;
}
