/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers that are no memory, or only in part: EFAULT, or fewer bytes, as from the kernel, for every kind of read and write, and
 * the file is what the results say. A handler that the program has for SIGSEGV is not called by read and write, and is called for a fault
 * of the program's own.
 */
#include "check.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/uio.h>

enum { PAGE = 4096, SIZE = 16 * PAGE };

static uint8_t *half; /* SIZE bytes, of which the second half can't be used */
static uint8_t content[2 * SIZE], found[2 * SIZE];
static size_t size;
static int fd;
static volatile sig_atomic_t called;
static sigjmp_buf out;

static void handler(int sig)
{
	called = sig;
	siglongjmp(out, 1);
}

static void same(void)
{
	CHECK(size_of(fd) == (off_t)size && pread(fd, found, sizeof(found), 0) == (ssize_t)size);
	CHECK(memcmp(found, content, size) == 0);
}

/* n bytes from the middle of `half` on are bad: `good` before them. */
static void write_at(size_t good, size_t n, off_t off)
{
	const uint8_t *from = half + SIZE / 2 - good;
	ssize_t r;

	errno = 0;
	r = pwrite(fd, from, n, off);
	CHECK(good > 0 ? r == -1 || (r > 0 && (size_t)r <= good) : r == -1);
	CHECK(r > 0 || errno == EFAULT);
	if (r > 0) {
		memcpy(content + off, from, (size_t)r);
		size = (size_t)off + (size_t)r > size ? (size_t)off + (size_t)r : size;
	} else if (good > 0) {
		/* A call that fails may have stored what it could. */
		CHECK(pread(fd, content, sizeof(content), 0) == (ssize_t)size);
	}
	same();
}

static void read_at(size_t good, size_t n, off_t off)
{
	uint8_t *to = half + SIZE / 2 - good;
	ssize_t r;

	memset(to, 0, good);
	errno = 0;
	r = pread(fd, to, n, off);
	if (off >= (off_t)size) {
		CHECK(r == 0);
		return;
	}
	CHECK(r == -1 ? errno == EFAULT : r > 0 && memcmp(to, content + off, (size_t)r < good ? (size_t)r : good) == 0);
	if (good == 0)
		CHECK(r == -1);
	same();
}

static void every_kind(void)
{
	static const size_t goods[] = {0, 1, 100, 512, 513, PAGE - 1, PAGE, PAGE + 7, 2 * PAGE},
			    more[] = {1, 64, 700, PAGE, 3 * PAGE};

	for (size_t g = 0; g < sizeof(goods) / sizeof(goods[0]); g++) {
		for (size_t m = 0; m < sizeof(more) / sizeof(more[0]); m++) {
			const size_t n = goods[g] + more[m];

			write_at(goods[g], n, 0);
			write_at(goods[g], n, 777);
			write_at(goods[g], n, PAGE);
			write_at(goods[g], n, (off_t)size);
			read_at(goods[g], n, 0);
			read_at(goods[g], n, 777);
			if (size > SIZE) {
				CHECK(ftruncate(fd, SIZE) == 0);
				size = SIZE;
			}
		}
		CHECK(g % 3 || fsync(fd) == 0);
	}
}

/* At the file offset, which moves by what was written, and not where nothing was. */
static void at_offset(void)
{
	const off_t end = (off_t)size;
	uint8_t *bad = half + SIZE / 2;
	struct iovec iov[3] = {{half, 10}, {half, 20}, {bad, 30}};
	ssize_t r;

	CHECK(lseek(fd, 0, SEEK_END) == end);
	CHECK(write(fd, bad, 100) == -1 && errno == EFAULT && lseek(fd, 0, SEEK_CUR) == end);
	CHECK(write(fd, bad, 10000) == -1 && errno == EFAULT && lseek(fd, 0, SEEK_CUR) == end);
	r = writev(fd, iov, 3);
	CHECK(r == -1 || (r > 0 && r <= 30));
	CHECK(lseek(fd, 0, SEEK_CUR) == end + (r > 0 ? r : 0) && size_of(fd) == end + (r > 0 ? r : 0));
	CHECK(writev(fd, (struct iovec *)bad, 2) == -1 && errno == EFAULT);
	CHECK(readv(fd, (struct iovec *)bad, 2) == -1 && errno == EFAULT);
	CHECK(lseek(fd, 0, SEEK_SET) == 0 && read(fd, bad, 50) == -1 && errno == EFAULT && lseek(fd, 0, SEEK_CUR) == 0);
	CHECK(ftruncate(fd, end) == 0);
}

int main(void)
{
	struct sigaction was;
	uint8_t *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED && sigaction(SIGSEGV, &(struct sigaction){.sa_handler = handler}, &was) == 0);
	CHECK(was.sa_handler == SIG_DFL && sigaction(SIGSEGV, NULL, &was) == 0 && was.sa_handler == handler);
	half = p;
	fill(half, SIZE, 3, 0);
	CHECK(mprotect(half + SIZE / 2, SIZE / 2, PROT_NONE) == 0);
	CHECK((fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
	fill(content, 2 * PAGE + 100, 9, 0);
	size = 2 * PAGE + 100;
	CHECK(write(fd, content, size) == (ssize_t)size);
	every_kind();
	CHECK(fsync(fd) == 0 && close(fd) == 0 && (fd = open("f", O_RDWR)) >= 0);
	same();
	every_kind();
	at_offset();
	CHECK(called == 0);
	if (sigsetjmp(out, 1) == 0)
		*(volatile uint8_t *)(half + SIZE - 1) = 1;
	CHECK(called == SIGSEGV);
	CHECK(pwrite(fd, half + SIZE / 2, 100, 0) == -1 && errno == EFAULT);
	same();
	return 0;
}
