/* SPDX-License-Identifier: Apache-2.0 */
/* A process that waits in the first read of a pipe, which it has opened by its name, keeps nobody from writing a file. */
#include "check.h"

enum { LONG = 20 }; /* seconds, for what takes none */

static void writes_meanwhile(int ready)
{
	int fd, fifo;

	alarm(LONG);
	hear(ready);
	usleep(50000); /* it waits by now */
	fd = open("g", O_RDWR | O_CREAT, 0644);
	CHECK(fd >= 0);
	for (int i = 0; i < 100; i++)
		put(fd, 5, i * 100, 100);
	CHECK(fsync(fd) == 0 && close(fd) == 0);
	fifo = open("pipe", O_WRONLY);
	CHECK(fifo >= 0);
	tell(fifo);
	_exit(0);
}

int main(void)
{
	int ready[2], fd, status, fifo;
	pid_t pid;

	CHECK(mkfifo("pipe", 0600) == 0 && pipe(ready) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		writes_meanwhile(ready[0]);
	fd = open("f", O_RDWR | O_CREAT, 0644);
	CHECK(fd >= 0);
	put(fd, 4, 0, 100);
	CHECK(close(fd) == 0);
	usleep(1500000); /* what it has written is everybody's by now */
	fifo = open("pipe", O_RDWR);
	CHECK(fifo >= 0);
	tell(ready[1]);
	hear(fifo);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	fd = open("g", O_RDONLY);
	CHECK(fd >= 0);
	expect(fd, 5, 0, 10000);
	return 0;
}
