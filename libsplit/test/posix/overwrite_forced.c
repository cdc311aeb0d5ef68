/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Short overwrites, forced after every few: right beside a mapping, a bad buffer and another thread's close, and no page fault for each of them.
 */
#include "check.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { PAGES = 64, SIZE = PAGES * 4096, FORCED = 20 };

static unsigned char model[SIZE];

static long faults(void)
{
	struct rusage u;

	CHECK(getrusage(RUSAGE_SELF, &u) == 0);
	return u.ru_minflt;
}

/* Page after page, as a log does that begins anew: a short head, then the rest. */
static void overwrite(int fd, int from, int to)
{
	static unsigned char buf[4096];

	for (int i = from; i < to; i++) {
		const size_t n = i % 2 ? 4072 : 24, off = (size_t)(i / 2 % PAGES) * 4096 + (i % 2 ? 24 : 0);

		fill(buf, n, (unsigned)i, off);
		memcpy(model + off, buf, n);
		CHECK(pwrite(fd, buf, n, (off_t)off) == (ssize_t)n);
		if (i % FORCED == FORCED - 1)
			CHECK(fdatasync(fd) == 0);
	}
}

static void same(int fd, const unsigned char *map)
{
	static unsigned char got[SIZE];

	CHECK(pread(fd, got, SIZE, 0) == SIZE);
	CHECK(memcmp(got, model, SIZE) == 0);
	CHECK(memcmp(map, model, SIZE) == 0);
}

/* The second page of the buffer is none: what is before it is written, as the kernel does, or nothing. */
static void bad_buffer(int fd)
{
	unsigned char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ssize_t r;

	CHECK(p != MAP_FAILED && munmap(p + 4096, 4096) == 0);
	memset(p, 'b', 4096);
	FAILS(pwrite(fd, p + 4096, 100, 0), EFAULT);
	r = pwrite(fd, p + 4096 - 1000, 2000, 4096);
	CHECK(r == 1000 || (r == -1 && errno == EFAULT));
	if (r > 0)
		memset(model + 4096, 'b', 1000);
	CHECK(munmap(p, 4096) == 0);
}

static int shared_fd;

static void *opens_and_closes(void *arg)
{
	for (int i = 0; i < 300; i++) {
		const int fd = open(i % 2 ? "other" : "third", O_RDWR);

		CHECK(fd >= 0);
		CHECK(dup2(fd, shared_fd) == shared_fd);
		CHECK(close(fd) == 0);
	}
	return arg;
}

/* Which of the two files a write goes to is not said while their number changes hands; no third one gets it. */
static void number_changes_hands(int bystander)
{
	static const char mark[512] = "overwritten";
	char got[512];
	pthread_t t;
	int other;

	other = open("other", O_RDWR | O_CREAT, 0644);
	shared_fd = open("third", O_RDWR | O_CREAT, 0644);
	CHECK(other >= 0 && shared_fd >= 0);
	put(other, 1, 0, SIZE);
	put(shared_fd, 1, 0, SIZE);
	CHECK(pthread_create(&t, NULL, opens_and_closes, NULL) == 0);
	for (int i = 0; i < 3000; i++) {
		CHECK(pwrite(shared_fd, mark, sizeof(mark), i % PAGES * 4096) == sizeof(mark));
		CHECK(pread(shared_fd, got, sizeof(got), i % PAGES * 4096) == sizeof(got));
		if (i % 8 == 7)
			CHECK(fdatasync(shared_fd) == 0);
	}
	CHECK(pthread_join(t, NULL) == 0);
	CHECK(close(other) == 0 && close(shared_fd) == 0);
	CHECK(size_of(bystander) == SIZE);
}

int main(void)
{
	const int fd = open("f", O_RDWR | O_CREAT, 0644), other = open("f", O_RDONLY);
	unsigned char *map;
	long before;

	CHECK(fd >= 0 && other >= 0);
	put(fd, 7, 0, SIZE);
	fill(model, SIZE, 7, 0);
	CHECK(fsync(fd) == 0);
	overwrite(fd, 0, 400);
	before = faults();
	overwrite(fd, 400, 4400);
	/* One for each page that is written between two calls of fdatasync are 2,000. */
	CHECK(faults() - before < 1000);
	map = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, other, 0);
	CHECK(map != MAP_FAILED);
	same(other, map);
	overwrite(fd, 4400, 4800);
	same(other, map);
	bad_buffer(fd);
	same(other, map);
	number_changes_hands(fd);
	same(other, map);
	CHECK(close(fd) == 0);
	same(other, map);
	return 0;
}
