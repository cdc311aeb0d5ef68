/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors that are shared, duplicated or passed on before their first use, and files that are opened again soon after they were
 * closed: changed, executed and removed by others in between.
 */
#include "check.h"

#include <time.h>

/* What another program, with an empty environment, does with the file: so it has nothing preloaded. */
static void by_another(const char *verb, const char *path)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		execle("/proc/self/exe", "open_again", verb, path, NULL, (char *[]){NULL});
		_exit(127);
	}
	CHECK(status_of(pid) == 0);
}

static int another(const char *verb, const char *path)
{
	int fd;

	if (strcmp(verb, "truncate") == 0)
		return truncate(path, 3) != 0;
	if (strcmp(verb, "append") == 0)
		return (fd = open(path, O_WRONLY | O_APPEND)) < 0 || write(fd, "!", 1) != 1;
	return strcmp(verb, "replace") == 0
		       ? unlink(path) != 0 || (fd = open(path, O_WRONLY | O_CREAT, 0644)) < 0 || write(fd, "another", 7) != 7
		       : 2;
}

static void shared_before_use(void)
{
	int fd, copy;
	pid_t pid;

	CHECK((fd = open("shared", O_RDWR | O_CREAT, 0644)) >= 0);
	if ((pid = fork()) == 0)
		_exit(write(fd, "child ", 6) != 6);
	CHECK(status_of(pid) == 0);
	CHECK(write(fd, "parent", 6) == 6 && close(fd) == 0);
	expect_file("shared", "child parent");

	CHECK((fd = open("shared", O_RDWR)) >= 0 && (copy = dup(fd)) >= 0);
	CHECK(write(copy, "CHILD", 5) == 5 && lseek(fd, 0, SEEK_CUR) == 5 && close(copy) == 0);
	CHECK(write(fd, "-", 1) == 1 && close(fd) == 0);
	expect_file("shared", "CHILD-parent");

	/* A number that is used again: for a pipe, and for another file. */
	CHECK((fd = open("shared", O_RDWR)) >= 0 && close(fd) == 0);
	CHECK((copy = open("/dev/null", O_WRONLY)) == fd && write(copy, "x", 1) == 1 && close(copy) == 0);
	CHECK((fd = open("shared", O_RDWR | O_APPEND)) >= 0 && write(fd, "s", 1) == 1 && close(fd) == 0);
	expect_file("shared", "CHILD-parents");
}

static void changed_while_closed(void)
{
	char buf[16];
	int fd;

	for (int round = 0; round < 20; round++) {
		CHECK((fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0 && write(fd, "0123456789", 10) == 10);
		CHECK((round % 2 || fsync(fd) == 0) && close(fd) == 0);
		by_another("truncate", "f");
		expect_file("f", "012");
		CHECK((fd = open("f", O_WRONLY | O_APPEND)) >= 0 && write(fd, "ab", 2) == 2 && close(fd) == 0);
		by_another("append", "f");
		expect_file("f", "012ab!");
		CHECK((fd = open("f", O_RDWR)) >= 0 && read(fd, buf, 16) == 6 && pwrite(fd, "X", 1, 0) == 1 && close(fd) == 0);
		by_another("replace", "f");
		expect_file("f", "another");
		CHECK(unlink("f") == 0);
	}
}

/* A program that was just written can be run, by a process that was there before. */
static void executed(void)
{
	int fd, go[2];
	pid_t pid;
	char c;

	CHECK(pipe(go) == 0 && (pid = fork()) >= 0);
	if (pid == 0) {
		/* The library may be looking at the file at this moment, but does not keep it open as it does with others. */
		for (int i = 0; read(go[0], &c, 1) == 1 && i < 25; i++) {
			execle("./script", "script", NULL, (char *[]){NULL});
			if (errno != ETXTBSY)
				_exit(67);
			nanosleep(&(struct timespec){0, 20000000}, NULL);
		}
		_exit(66);
	}
	CHECK((fd = open("script", O_RDWR | O_CREAT | O_TRUNC, 0755)) >= 0);
	CHECK(write(fd, "#!/bin/sh\nexit 7\n", 17) == 17 && fsync(fd) == 0 && close(fd) == 0);
	CHECK(write(go[1], "xxxxxxxxxxxxxxxxxxxxxxxxxx", 26) == 26 && status_of(pid) == 7);
}

int main(int argc, char **argv)
{
	if (argc == 3)
		return another(argv[1], argv[2]);
	shared_before_use();
	changed_while_closed();
	executed();
	return 0;
}
