/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process keeps its locks when it executes another program, and that one when it executes a third: nobody else gets them, until the
 * descriptor is closed. Where exec fails nothing has changed.
 */
#include "lock.h"

/* Is the whole file locked, for others? */
static bool taken(void)
{
	return lock_refused(0);
}

static void next(int fd, int other, int round)
{
	char number[16], second[16], left[16];

	snprintf(number, sizeof(number), "%d", fd);
	snprintf(second, sizeof(second), "%d", other);
	snprintf(left, sizeof(left), "%d", round);
	execl("/proc/self/exe", "lock_exec", number, second, left, NULL);
	CHECK(!"exec");
}

/* The lock was taken through fd, and the file is used through the other descriptor first. */
static int go_on(int fd, int other, int round)
{
	char c;

	CHECK(taken());
	if (round == 3)
		CHECK(pread(other, &c, 1, 2) == 1 && c == 'r' && pwrite(other, "F", 1, 0) == 1 && taken());
	if (round == 2) { /* one that uses the file, one that does not */
		CHECK(lseek(fd, 0, SEEK_END) == 5);
		CHECK(write(fd, "second", 6) == 6 && size_of(fd) == 11);
	}
	CHECK(taken());
	if (round > 0)
		next(fd, other, round - 1);
	CHECK(close(other) == 0 && !taken() && close(fd) == 0);
	return 0;
}

/* How many descriptors this process has of the file. */
static int opens(int fd)
{
	struct stat st, one;
	int n = 0;

	CHECK(fstat(fd, &st) == 0);
	for (int i = 0; i < 4096; i++)
		n += unseen(SYS_fstat, i, (long)&one, 0, 0) == 0 && one.st_ino == st.st_ino && one.st_dev == st.st_dev;
	return n;
}

/* Locks that are not the child's own: the program that it executes has the descriptors that the child had, and no others. */
static void others(int fd)
{
	struct flock part = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 100, .l_len = 1};
	char number[16];
	pid_t pid;

	snprintf(number, sizeof(number), "%d", fd);
	CHECK(fcntl(fd, F_OFD_SETLK, &part) == 0);
	if ((pid = fork()) == 0) {
		execl("/proc/self/exe", "lock_exec", number, NULL);
		_exit(1);
	}
	CHECK(status_of(pid) == 0);
	part.l_type = F_UNLCK;
	CHECK(fcntl(fd, F_OFD_SETLK, &part) == 0);
}

int main(int argc, char **argv)
{
	struct flock f = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd, other;

	if (argc == 2)
		return opens(atoi(argv[1])) != 2;
	if (argc == 4)
		return go_on(atoi(argv[1]), atoi(argv[2]), atoi(argv[3]));
	CHECK((fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
	CHECK((other = open("f", O_RDWR)) >= 0);
	CHECK(write(fd, "first", 5) == 5);
	others(fd);
	CHECK(fcntl(fd, F_SETLK, &f) == 0);
	CHECK(taken());
	execl("missing", "missing", NULL);
	CHECK(errno == ENOENT && taken());
	next(fd, other, 3);
	return 1;
}
