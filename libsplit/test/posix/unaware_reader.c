/* SPDX-License-Identifier: Apache-2.0 */
/* A program without any environment (so without whatever was preloaded) sees all bytes within two seconds. */
#include "check.h"

#include <time.h>

static int reader(void)
{
	struct timespec step = {0, 20000000};
	int fd = open("f", O_RDONLY);

	CHECK(fd >= 0);
	for (int i = 0; i < 100 && size_of(fd) < 50000; i++)
		nanosleep(&step, NULL);
	CHECK(size_of(fd) == 50000);
	expect(fd, 1, 0, 20000);
	expect(fd, 2, 20000, 5000);
	expect(fd, 1, 25000, 25000);
	return 0;
}

int main(int argc, char **argv)
{
	int fd, pipes[2];
	pid_t pid;
	char c;

	(void)argv;
	if (argc == 2)
		return reader();
	CHECK(pipe(pipes) == 0 && (fd = open("f", O_RDWR | O_CREAT, 0644)) >= 0);
	/* started before the bytes are written, so that nothing is handed over to it */
	if ((pid = fork()) == 0) {
		CHECK(read(pipes[0], &c, 1) == 1);
		execle("/proc/self/exe", "unaware_reader", "read", NULL, (char *[]){NULL});
		_exit(127);
	}
	put(fd, 1, 0, 50000);
	put(fd, 2, 20000, 5000);
	CHECK(write(pipes[1], "x", 1) == 1 && status_of(pid) == 0);
	return 0;
}
