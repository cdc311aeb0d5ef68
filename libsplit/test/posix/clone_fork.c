/* SPDX-License-Identifier: Apache-2.0 */
/* Children by clone, clone3, _Fork and daemon: parent and child write on at one offset, and each to files of its own. */
#include "check.h"

#include <linux/sched.h>
#include <sched.h>
#include <signal.h>

static int fd;

static int child(void *arg)
{
	int own;

	(void)arg;
	CHECK(write(fd, "child ", 6) == 6 && lseek(fd, 0, SEEK_CUR) == 13);
	CHECK((own = open("own", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
	put(own, 1, 0, 30000);
	expect(own, 1, 0, 30000);
	return 0;
}

static pid_t by_clone(void)
{
	static char stack[1 << 18] __attribute__((aligned(16)));

	return clone(child, stack + sizeof(stack), SIGCHLD, NULL);
}

static pid_t by_clone3(void)
{
	struct clone_args args = {.exit_signal = SIGCHLD};
	pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));

	if (pid == 0)
		_exit(child(NULL));
	return pid;
}

static pid_t by_number(void)
{
	pid_t pid = (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);

	if (pid == 0)
		_exit(child(NULL));
	return pid;
}

static pid_t unseen_fork(void)
{
	pid_t pid = (pid_t)unseen(SYS_clone, SIGCHLD, 0, 0, 0);

	if (pid == 0)
		_exit(child(NULL));
	return pid;
}

static pid_t by_daemon(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		CHECK(daemon(1, 0) == 0);
		child(NULL);
		CHECK(creat("daemon", 0644) >= 0);
		exit(0);
	}
	return pid;
}

int main(void)
{
	pid_t (*const ways[])(void) = {by_clone, by_clone3, by_number, by_daemon};
	pid_t pid;

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		struct stat st;
		int own;

		CHECK((fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0 && write(fd, "parent ", 7) == 7);
		pid = ways[i]();
		if (pid < 0 && errno == ENOSYS)
			continue; /* no clone3 */
		CHECK(pid > 0 && status_of(pid) == 0);
		for (int wait = 0; ways[i] == by_daemon && stat("daemon", &st) != 0; wait++)
			CHECK(wait < 2000 && usleep(5000) == 0);
		CHECK(write(fd, "again", 5) == 5 && lseek(fd, 0, SEEK_CUR) == 18 && close(fd) == 0);
		expect_file("f", "parent child again");
		CHECK((own = open("own", O_RDONLY)) >= 0 && size_of(own) == 30000);
		expect(own, 1, 0, 30000);
		CHECK(close(own) == 0);
	}
	/* a fork that no library sees: files of one's own work; of a shared one the kernel knows the offset only after an fsync */
	CHECK((fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0 && write(fd, "parent ", 7) == 7 && fsync(fd) == 0);
	CHECK(lseek(fd, 7, SEEK_SET) == 7 && close(fd) == 0 && (fd = open("f", O_RDWR | O_APPEND)) >= 0);
	pid = unseen_fork();
	CHECK(pid > 0 && status_of(pid) == 0 && write(fd, "again", 5) == 5);
	expect_file("f", "parent child again");
	return 0;
}
