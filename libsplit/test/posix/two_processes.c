/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes with one file: what one has written, the other reads, with no call in between, in turns. */
#include "check.h"

static void turn(int to, int from)
{
	char c = 1;

	CHECK((to < 0 || write(to, &c, 1) == 1) && (from < 0 || read(from, &c, 1) == 1));
}

static void play(int fd, int me, int to, int from)
{
	off_t size = 0;

	for (int i = 0; i < 100; i++) {
		if (i % 2 == me) {
			put(fd, (unsigned)i, size, 1000);
			put(fd, (unsigned)i + 500, i * 10, 10);
			turn(to, -1);
		} else {
			turn(-1, from);
			CHECK(size_of(fd) == size + 1000);
			expect(fd, (unsigned)i, size + 990, 10);
			expect(fd, (unsigned)i + 500, i * 10, 10);
		}
		size += 1000;
	}
}

int main(void)
{
	int there[2], back[2], fd;
	pid_t pid;

	alarm(20); /* a failed partner must not leave the other waiting */
	CHECK(pipe(there) == 0 && pipe(back) == 0 && close(creat("f", 0644)) == 0);
	if ((pid = fork()) == 0) {
		CHECK((fd = open("f", O_RDWR)) >= 0);
		play(fd, 1, back[1], there[0]);
		exit(0);
	}
	CHECK((fd = open("f", O_RDWR)) >= 0);
	play(fd, 0, there[1], back[0]);
	CHECK(status_of(pid) == 0 && size_of(fd) == 100000);
	return 0;
}
