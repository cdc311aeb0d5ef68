/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads, writes, seeks, fsyncs and changes of the times in many orders of eight from a descriptor's opening on: bytes and offset are as they are by a
 * model. And a second process's bytes are seen by whichever call is the first, also by a number that has been another file's just before.
 */
#include "check.h"

#include <stdbool.h>

enum { KINDS = 9, CALLS = 8, ORDERS = 2000, SIZE = 6000, ROOM = 16384 };

static unsigned char model[ROOM];
static off_t size, offset;

static void check_read(int fd, off_t at, size_t n)
{
	unsigned char got[200];
	const off_t from = at < 0 ? offset : at;
	const size_t left = from < size ? (size_t)(size - from) : 0, want = n < left ? n : left;
	const ssize_t r = at < 0 ? read(fd, got, n) : pread(fd, got, n, at);

	CHECK(r == (ssize_t)want);
	CHECK(memcmp(got, model + from, want) == 0);
	if (at < 0)
		offset += r;
}

static void check_write(int fd, off_t at, size_t n, unsigned seed)
{
	unsigned char buf[200];
	const off_t to = at < 0 ? offset : at;
	ssize_t r;

	fill(buf, n, seed, (uint64_t)to);
	r = at < 0 ? write(fd, buf, n) : pwrite(fd, buf, n, at);
	CHECK(r == (ssize_t)n);
	memcpy(model + to, buf, n);
	size = to + r > size ? to + r : size;
	if (at < 0)
		offset += r;
}

static void times(int fd, unsigned seed)
{
	const struct timespec to[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000 + seed, .tv_nsec = 5}};
	struct stat st;

	CHECK(futimens(fd, to) == 0 && fstat(fd, &st) == 0);
	CHECK(st.st_mtim.tv_sec == to[1].tv_sec && st.st_mtim.tv_nsec == 5 && st.st_size == size);
}

static void step(int fd, int kind, unsigned seed)
{
	switch (kind) {
	case 0:
		check_read(fd, -1, 100);
		break;
	case 1:
		check_read(fd, 5950, 100);
		break;
	case 2:
		check_write(fd, -1, 70, seed);
		break;
	case 3:
		check_write(fd, 5990, 60, seed);
		break;
	case 4:
		offset = 300;
		CHECK(lseek(fd, offset, SEEK_SET) == offset);
		break;
	case 5:
		offset = size - 20;
		CHECK(lseek(fd, -20, SEEK_END) == offset);
		break;
	case 6:
		CHECK((seed % 2 ? fsync(fd) : fdatasync(fd)) == 0);
		break;
	case 7:
		times(fd, seed);
		break;
	default:
		CHECK(lseek(fd, 0, SEEK_CUR) == offset);
	}
}

static void in_many_orders(void)
{
	uint64_t random = 88172645463325252u;

	for (unsigned order = 0; order < ORDERS; order++) {
		const int fd = open("f", O_RDWR);

		CHECK(fd >= 0);
		offset = 0;
		for (int i = 0; i < CALLS; i++) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			step(fd, (int)(random % KINDS), order);
		}
		CHECK(lseek(fd, 0, SEEK_CUR) == offset && size_of(fd) == size);
		CHECK(close(fd) == 0);
		if (size > ROOM / 2) {
			size = SIZE;
			CHECK(truncate("f", size) == 0);
			memset(model + size, 0, ROOM - SIZE);
		}
	}
}

/* It has appended to the file and not forced it. */
static pid_t appends(const char *name, int ready, int end)
{
	const pid_t pid = fork();

	if (pid == 0) {
		const int fd = open(name, O_WRONLY | O_APPEND);

		for (int i = 0; i < 200; i++)
			put(fd, 9, size + i * 10, 10);
		tell(ready);
		hear(end);
		_exit(0);
	}
	CHECK(pid > 0);
	return pid;
}

/* The first call on the descriptor, of a file that another process has made 2,000 bytes longer. */
static void first_call(int fd, int kind)
{
	const unsigned char want = byte_at(9, (uint64_t)size + 1999);
	unsigned char last;

	size += 2000;
	switch (kind) {
	case 0:
		CHECK(lseek(fd, 0, SEEK_END) == size);
		break;
	case 1:
		CHECK(pread(fd, &last, 1, size - 1) == 1 && last == want);
		break;
	case 2:
		CHECK(pwrite(fd, "x", 1, size) == 1);
		size++;
		CHECK(pread(fd, &last, 1, size - 2) == 1 && last == want);
		break;
	case 3:
		CHECK(fsync(fd) == 0 && pread(fd, &last, 1, size - 1) == 1 && last == want);
		break;
	default:
		times(fd, 17);
	}
	CHECK(size_of(fd) == size);
}

/* again: the number has just been another file's, which nobody but this process has used, for two calls. */
static void beside_another(const char *name, bool again)
{
	for (int first = 0; first < 5; first++) {
		int ready[2], end[2], fd, other, status;
		char c;
		pid_t pid;

		CHECK(pipe(ready) == 0 && pipe(end) == 0);
		pid = appends(name, ready[1], end[0]);
		hear(ready[0]);
		other = again ? open("alone", O_RDWR) : -1;
		CHECK(!again || (other >= 0 && read(other, &c, 1) == 1 && fsync(other) == 0 && close(other) == 0));
		fd = open(name, O_RDWR);
		CHECK(fd >= 0 && (!again || fd == other));
		first_call(fd, first);
		tell(end[1]);
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
		CHECK(size_of(fd) == size && close(fd) == 0);
		CHECK(close(ready[0]) == 0 && close(ready[1]) == 0 && close(end[0]) == 0 && close(end[1]) == 0);
	}
}

/* Flags that open(2) does not know, and does not look at: reads go on where the last one ended, also when the file has become this process's. */
static void odd_flags(void)
{
	const int fd = open("f", (int)(O_RDONLY | 0x80000000u)), other = open("f", O_RDWR);

	CHECK(fd >= 0 && other >= 0);
	offset = 0;
	check_read(fd, -1, 40);
	check_read(fd, -1, 40);
	for (int i = 0; i < 200; i++)
		CHECK(pwrite(other, model + 10, 1, 10) == 1);
	check_read(fd, -1, 40);
	CHECK(lseek(fd, 0, SEEK_CUR) == 120 && close(fd) == 0 && close(other) == 0);
}

/* A new file of SIZE bytes. */
static void make(const char *name)
{
	const int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0644);

	CHECK(fd >= 0);
	size = SIZE;
	put(fd, 3, 0, SIZE);
	CHECK(close(fd) == 0);
}

int main(void)
{
	fill(model, SIZE, 3, 0);
	make("f");
	in_many_orders();
	odd_flags();
	beside_another("f", false);
	make("alone");
	make("g");
	beside_another("g", true);
	return 0;
}
