/* SPDX-License-Identifier: Apache-2.0 */
/* A counter in a file, under fcntl and flock locks, by processes with descriptors of their own: no increment is lost. */
#include "check.h"

#include <sys/file.h>

enum { PROCESSES = 3, TIMES = 200 };

static void increment(int fd, int how)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char buf[16] = {0};
	int n;

	CHECK((how ? flock(fd, LOCK_EX) : fcntl(fd, F_SETLKW, &lock)) == 0);
	CHECK((n = (int)pread(fd, buf, 15, 0)) >= 0);
	n = snprintf(buf, sizeof(buf), "%010d", n ? atoi(buf) + 1 : 1);
	CHECK(pwrite(fd, buf, (size_t)n, 0) == n);
	CHECK(lseek(fd, 0, SEEK_END) >= 10 && write(fd, ".", 1) == 1);
	lock.l_type = F_UNLCK;
	CHECK((how ? flock(fd, LOCK_UN) : fcntl(fd, F_SETLK, &lock)) == 0);
}

int main(void)
{
	for (int how = 0; how < 2; how++) {
		pid_t pid[PROCESSES];
		char buf[16] = {0};
		int fd;

		unlink("f");
		CHECK((fd = open("f", O_RDWR | O_CREAT, 0644)) >= 0);
		for (int p = 0; p < PROCESSES; p++) {
			if ((pid[p] = fork()) == 0) {
				CHECK((fd = open("f", O_RDWR)) >= 0);
				for (int i = 0; i < TIMES; i++)
					increment(fd, how);
				exit(0);
			}
		}
		for (int p = 0; p < PROCESSES; p++)
			CHECK(status_of(pid[p]) == 0);
		CHECK(pread(fd, buf, 10, 0) == 10 && atoi(buf) == PROCESSES * TIMES && size_of(fd) == 10 + PROCESSES * TIMES);
		CHECK(close(fd) == 0);
	}
	return 0;
}
