/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads, writes and seeks in every order of five from a descriptor's opening on: bytes and offset are as they are by a model. And a second process's
 * bytes are seen by whichever call is the first.
 */
#include "check.h"

enum { KINDS = 7, CALLS = 5, SIZE = 6000, ROOM = 16384 };

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
	default:
		CHECK(lseek(fd, 0, SEEK_CUR) == offset);
	}
}

static void in_every_order(void)
{
	unsigned orders = 1;

	for (int i = 0; i < CALLS; i++)
		orders *= KINDS;
	for (unsigned order = 0; order < orders; order += 1 + order % 19) {
		const int fd = open("f", O_RDWR);
		unsigned rest = order;

		CHECK(fd >= 0);
		offset = 0;
		for (int i = 0; i < CALLS; i++, rest /= KINDS)
			step(fd, (int)(rest % KINDS), order);
		CHECK(lseek(fd, 0, SEEK_CUR) == offset && size_of(fd) == size);
		CHECK(close(fd) == 0);
		if (size > ROOM / 2) {
			size = SIZE;
			CHECK(truncate("f", size) == 0);
			memset(model + size, 0, ROOM - SIZE);
		}
	}
}

/* It has appended and not forced. */
static pid_t appends(int ready, int end)
{
	const pid_t pid = fork();

	if (pid == 0) {
		const int fd = open("f", O_WRONLY | O_APPEND);

		for (int i = 0; i < 200; i++)
			put(fd, 9, size + i * 10, 10);
		tell(ready);
		hear(end);
		_exit(0);
	}
	CHECK(pid > 0);
	return pid;
}

static void beside_another(void)
{
	for (int first = 0; first < 3; first++) {
		int ready[2], end[2], fd, status;
		unsigned char last, want = byte_at(9, (uint64_t)size + 1999);
		pid_t pid;

		CHECK(pipe(ready) == 0 && pipe(end) == 0);
		pid = appends(ready[1], end[0]);
		hear(ready[0]);
		fd = open("f", O_RDWR);
		CHECK(fd >= 0);
		size += 2000;
		if (first == 0) {
			CHECK(lseek(fd, 0, SEEK_END) == size);
		} else if (first == 1) {
			CHECK(pread(fd, &last, 1, size - 1) == 1 && last == want);
		} else {
			CHECK(pwrite(fd, "x", 1, size) == 1);
			size++;
			CHECK(pread(fd, &last, 1, size - 2) == 1 && last == want);
		}
		CHECK(size_of(fd) == size);
		tell(end[1]);
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
		CHECK(size_of(fd) == size && close(fd) == 0);
		CHECK(close(ready[0]) == 0 && close(ready[1]) == 0 && close(end[0]) == 0 && close(end[1]) == 0);
	}
}

int main(void)
{
	const int fd = open("f", O_RDWR | O_CREAT, 0644);

	CHECK(fd >= 0);
	size = SIZE;
	fill(model, SIZE, 3, 0);
	put(fd, 3, 0, SIZE);
	CHECK(close(fd) == 0);
	in_every_order();
	beside_another();
	return 0;
}
