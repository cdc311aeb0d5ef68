/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the programs of this folder: each shows one behaviour of files in its working directory, knows nothing of the library and
 * is right on the plain kernel. Exit 0: as expected, 1: not, 77: cannot be tried here (the last line printed says why).
 */
#ifndef SFS_TEST_POSIX_CHECK_H
#define SFS_TEST_POSIX_CHECK_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(cond)                                                                                                            \
	do {                                                                                                                   \
		if (!(cond)) {                                                                                                 \
			int errno_ = errno;                                                                                    \
                                                                                                                               \
			fprintf(stderr, "%s:%d: not so: %s (errno %d, %s)\n", __FILE__, __LINE__, #cond, errno_,               \
				strerror(errno_));                                                                             \
			_exit(1);                                                                                              \
		}                                                                                                              \
	} while (0)

#define SKIP(why)                                                                                                              \
	do {                                                                                                                   \
		fprintf(stderr, "%s\n", why);                                                                                  \
		exit(77);                                                                                                      \
	} while (0)

/* The call fails with this errno. */
#define FAILS(call, err)                                                                                                       \
	do {                                                                                                                   \
		errno = 0;                                                                                                     \
		CHECK((call) == -1 && errno == (err));                                                                         \
	} while (0)

/* Between processes, through a pipe: go on; wait until told so. */
static inline void tell(int fd)
{
	CHECK(write(fd, "x", 1) == 1);
}

static inline void hear(int fd)
{
	char c;

	CHECK(read(fd, &c, 1) == 1);
}

static inline off_t size_of(int fd)
{
	struct stat st;

	CHECK(fstat(fd, &st) == 0);
	return st.st_size;
}

/* The byte that pattern `seed` has at offset `off`. */
static inline unsigned char byte_at(unsigned seed, uint64_t off)
{
	uint64_t x = (off + 1) * 0x9e3779b97f4a7c15ull + seed * 0xd6e8feb86659fd93ull;

	return (unsigned char)(x >> 56 ^ x >> 29);
}

static inline void fill(void *buf, size_t n, unsigned seed, uint64_t off)
{
	unsigned char *p = buf;

	for (size_t i = 0; i < n; i++)
		p[i] = byte_at(seed, off + i);
}

static inline void write_all(int fd, const void *buf, size_t n)
{
	const char *p = buf;

	while (n) {
		ssize_t w = write(fd, p, n);

		CHECK(w > 0);
		p += w;
		n -= (size_t)w;
	}
}

/* Write n bytes of the pattern at off. */
static inline void put(int fd, unsigned seed, off_t off, size_t n)
{
	char *buf = malloc(n);

	CHECK(buf);
	fill(buf, n, seed, (uint64_t)off);
	for (size_t done = 0; done < n;) {
		ssize_t w = pwrite(fd, buf + done, n - done, off + (off_t)done);

		CHECK(w > 0);
		done += (size_t)w;
	}
	free(buf);
}

/* The n bytes at off are those of the pattern. */
static inline void expect(int fd, unsigned seed, off_t off, size_t n)
{
	unsigned char *buf = malloc(n);

	CHECK(buf);
	for (size_t done = 0; done < n;) {
		ssize_t r = pread(fd, buf + done, n - done, off + (off_t)done);

		CHECK(r > 0);
		done += (size_t)r;
	}
	for (size_t i = 0; i < n; i++)
		if (buf[i] != byte_at(seed, (uint64_t)off + i)) {
			fprintf(stderr, "offset %lld: %02x instead of %02x\n", (long long)off + (long long)i, buf[i],
				byte_at(seed, (uint64_t)off + i));
			_exit(1);
		}
	free(buf);
}

static inline void expect_zeros(int fd, off_t off, size_t n)
{
	unsigned char *buf = malloc(n);

	CHECK(buf && pread(fd, buf, n, off) == (ssize_t)n);
	for (size_t i = 0; i < n; i++)
		CHECK(buf[i] == 0);
	free(buf);
}

/* The whole file at path is exactly this. */
static inline void expect_file(const char *path, const char *content)
{
	size_t n = strlen(content);
	char *buf = malloc(n + 2);
	int fd = open(path, O_RDONLY);

	CHECK(buf && fd >= 0);
	buf[read(fd, buf, n + 1) < 0 ? 0 : n] = 0;
	if (size_of(fd) != (off_t)n || memcmp(buf, content, n) != 0) {
		fprintf(stderr, "%s: %lld bytes: '%s' instead of '%s'\n", path, (long long)size_of(fd), buf, content);
		_exit(1);
	}
	CHECK(close(fd) == 0);
	free(buf);
}

/* The child's exit status; 128 + signal when it was killed. */
static inline int status_of(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A system call that no library sees. */
static inline long unseen(long number, long a, long b, long c, long d)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d;
	long r;

	__asm__ volatile("syscall" : "=a"(r) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
	return r;
#else
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;

	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory", "cc");
	return x0;
#endif
}

/* The size that others see. */
static inline off_t unseen_size(int fd)
{
	struct stat st;

	CHECK(unseen(SYS_fstat, fd, (long)&st, 0, 0) == 0);
	return st.st_size;
}

#endif
