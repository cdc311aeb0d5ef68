/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For a second, one process takes snapshots and looks whether they stay what they were, while another one with the
 * library and one without write the file, by turns and at once, opening it anew each time. Now and then the file is
 * this process's alone.
 */
#include <time.h>

#include "peek.h"

enum { SIZE = 20 * BLOCK + 77, KEPT = 5, MS = 1000 };

static unsigned long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (unsigned long)t.tv_sec * 1000 + (unsigned long)t.tv_nsec / 1000000;
}

static void writes(unsigned seed)
{
	int fd = open("file", O_RDWR);

	CHECK(fd >= 0);
	put(fd, seed, seed % 5 * 3000, 9000);
	if (seed % 7 == 0)
		CHECK(ftruncate(fd, SIZE - 5000) == 0 && ftruncate(fd, SIZE) == 0);
	CHECK(close(fd) == 0);
}

static void writes_unseen(unsigned seed)
{
	const int fd = (int)unseen(SYS_openat, AT_FDCWD, (long)"file", O_WRONLY, 0);
	char buf[7000];

	CHECK(fd >= 0);
	memset(buf, (int)seed, sizeof(buf));
	CHECK(unseen(SYS_pwrite64, fd, (long)buf, sizeof(buf), seed % 10 * BLOCK) == sizeof(buf));
	CHECK(unseen(SYS_close, fd, 0, 0, 0) == 0);
}

static pid_t writer(void (*write)(unsigned), unsigned pause_us)
{
	const pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		const unsigned long end = now_ms() + MS;

		for (unsigned i = 1; now_ms() < end; i++) {
			write(i);
			usleep(i % 20 ? pause_us : 50 * pause_us);
		}
		_exit(0);
	}
	return pid;
}

int main(void)
{
	static unsigned char was[KEPT][SIZE];
	const unsigned char *kept[KEPT] = {0};
	unsigned own = 0, taken = 0;
	pid_t with, without;
	int fd = open("file", O_RDWR | O_CREAT, 0600);

	splitfs_flags(SPLITFS_COPY);
	put(fd, 0, 0, SIZE);
	CHECK(close(fd) == 0);
	with = writer(writes, 1500);
	without = writer(writes_unseen, 2500);
	for (const unsigned long end = now_ms() + MS; now_ms() < end; taken++) {
		const unsigned k = taken % KEPT;
		size_t got;

		if (kept[k])
			CHECK(memcmp(kept[k], was[k], SIZE - 5000) == 0 && splitfs_unpeek(kept[k]) == 0);
		/* Anew, so that it is asked each time whether the file can be had alone. */
		fd = open("file", O_RDONLY);
		kept[k] = splitfs_peek(fd, 0, SIZE, &got);
		CHECK(kept[k] && got >= SIZE - 5000);
		own += in_file(kept[k], fd);
		CHECK(close(fd) == 0);
		memcpy(was[k], kept[k], got);
		usleep(200);
	}
	for (unsigned k = 0; k < KEPT; k++)
		if (kept[k])
			CHECK(memcmp(kept[k], was[k], SIZE - 5000) == 0 && splitfs_unpeek(kept[k]) == 0);
	CHECK(status_of(with) == 0 && status_of(without) == 0);
	fprintf(stderr, "%u snapshots, %u without a copy\n", taken, own);
	return 0;
}
