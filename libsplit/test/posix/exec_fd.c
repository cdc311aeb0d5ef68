/* SPDX-License-Identifier: Apache-2.0 */
/* A descriptor inherited over exec: right offset, right content, also when the new program has no environment at all. */
#include "check.h"

static int reader(const char *number)
{
	int fd = atoi(number);
	char buf[16];

	CHECK(lseek(fd, 0, SEEK_CUR) == 4 && read(fd, buf, 16) == 6 && memcmp(buf, "456789", 6) == 0);
	CHECK(write(fd, "child", 5) == 5 && size_of(fd) == 15);
	return 0;
}

int main(int argc, char **argv)
{
	char number[16];
	int fd;

	if (argc == 2)
		return reader(argv[1]);
	for (int round = 0; round < 2; round++) {
		pid_t pid;

		CHECK((fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
		CHECK(write(fd, "0123456789", 10) == 10 && lseek(fd, 4, SEEK_SET) == 4);
		snprintf(number, sizeof(number), "%d", fd);
		if ((pid = fork()) == 0) {
			if (round)
				execle("/proc/self/exe", "exec_fd", number, NULL, (char *[]){NULL});
			else
				execl("/proc/self/exe", "exec_fd", number, NULL);
			_exit(127);
		}
		CHECK(status_of(pid) == 0 && lseek(fd, 0, SEEK_CUR) == 15);
		CHECK(write(fd, ".", 1) == 1 && close(fd) == 0);
		expect_file("f", "0123456789child.");
	}
	/* in this very process, without a fork, and with bytes just written */
	CHECK((fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
	CHECK(write(fd, "0123456789", 10) == 10 && lseek(fd, 4, SEEK_SET) == 4);
	snprintf(number, sizeof(number), "%d", fd);
	execl("missing", "missing", NULL);
	CHECK(errno == ENOENT && lseek(fd, 0, SEEK_CUR) == 4);
	execl("/proc/self/exe", "exec_fd", number, NULL);
	return 1;
}
