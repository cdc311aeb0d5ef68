/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was written to a file and not brought to the file system yet is seen by whoever still has the file when its name goes: by another
 * name, by a process that opened or mapped it, with the library or without. Where nobody has it, its blocks are free at once.
 */
#include "check.h"

#include <sys/mman.h>
#include <sys/statfs.h>

#define BYTES 30000u

static int to_child[2], to_parent[2];

/* By so many short calls that a grant pays: without one nothing is staged. */
static void append(int fd, unsigned seed, off_t from, off_t to)
{
	for (off_t at = from; at < to; at += 100)
		put(fd, seed, at, 100);
}

/* Written, not forced, and closed. */
static void make(const char *name, unsigned seed)
{
	const int fd = open(name, O_RDWR | O_CREAT, 0644);

	CHECK(fd >= 0);
	append(fd, seed, 0, BYTES);
	CHECK(close(fd) == 0);
}

/* It has the file open, and looks when the name is gone. `how`: by read, or by a mapping. */
static int holder(const char *how)
{
	const int fd = open("f", O_RDONLY);
	char *p;

	CHECK(fd >= 0);
	p = how[0] == 'm' ? mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0) : NULL;
	CHECK(p != MAP_FAILED);
	tell(to_parent[1]);
	hear(to_child[0]);
	FAILS(open("f", O_RDONLY), ENOENT);
	for (unsigned i = 0; p && i < BYTES; i++)
		CHECK((unsigned char)p[i] == byte_at(7, i));
	expect(fd, 7, 0, BYTES);
	CHECK(size_of(fd) == BYTES);
	return 0;
}

static void held(const char *how, char *const env[])
{
	char *argv[] = {(char *)"unlink_staged", (char *)how, NULL}, fds[4][12], *all[6] = {argv[0], argv[1]};
	pid_t pid;
	int fd;

	CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0 && (fd = open("f", O_RDWR | O_CREAT, 0644)) >= 0);
	snprintf(fds[0], sizeof(fds[0]), "%d", to_child[0]);
	snprintf(fds[1], sizeof(fds[1]), "%d", to_parent[1]);
	all[2] = fds[0];
	all[3] = fds[1];
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		execve("/proc/self/exe", all, env);
		_exit(127);
	}
	hear(to_parent[0]);
	append(fd, 7, 0, BYTES);
	CHECK(close(fd) == 0 && unlink("f") == 0);
	tell(to_child[1]);
	CHECK(status_of(pid) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(close(to_child[i]) == 0 && close(to_parent[i]) == 0);
}

/* A child that was forked while it was open has it by the same description. */
static void inherited(void)
{
	pid_t pid;
	int fd;

	CHECK(pipe(to_child) == 0 && (fd = open("f", O_RDWR | O_CREAT, 0644)) >= 0);
	append(fd, 7, 0, 10000);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		hear(to_child[0]);
		expect(fd, 7, 0, BYTES);
		_exit(0);
	}
	append(fd, 7, 10000, BYTES);
	CHECK(close(fd) == 0 && unlink("f") == 0);
	tell(to_child[1]);
	CHECK(status_of(pid) == 0 && close(to_child[0]) == 0 && close(to_child[1]) == 0);
}

static void other_name(void)
{
	int fd;

	make("f", 7);
	CHECK(link("f", "g") == 0);
	make("f", 7);
	CHECK(unlink("f") == 0 && (fd = open("g", O_RDONLY)) >= 0);
	expect(fd, 7, 0, BYTES);
	CHECK(close(fd) == 0 && unlink("g") == 0);
}

/* A new file of that name has nothing of the old one. */
static void again(void)
{
	for (unsigned i = 0; i < 50; i++) {
		int fd;

		make("f", i);
		CHECK(unlink("f") == 0);
		CHECK((fd = open("f", O_RDWR | O_CREAT | O_EXCL, 0644)) >= 0 && size_of(fd) == 0);
		put(fd, i + 1, 5000, 100);
		expect_zeros(fd, 0, 5000);
		expect(fd, i + 1, 5000, 100);
		CHECK(close(fd) == 0 && unlink("f") == 0);
	}
}

/* Of a directory, a missing name and one that may not go nothing is lost. */
static void refused(void)
{
	int fd;

	make("f", 7);
	CHECK(mkdir("d", 0755) == 0);
	FAILS(unlink("d/f"), ENOENT);
	CHECK(unlink("d") == -1 && rmdir("d") == 0);
	FAILS(unlinkat(AT_FDCWD, "f", AT_REMOVEDIR), ENOTDIR);
	CHECK((fd = open("f", O_RDONLY)) >= 0);
	expect(fd, 7, 0, BYTES);
	CHECK(close(fd) == 0 && unlink("f") == 0);
}

int main(int argc, char **argv)
{
	if (argc == 4) {
		to_child[0] = atoi(argv[2]);
		to_parent[1] = atoi(argv[3]);
		return holder(argv[1]);
	}
	other_name();
	again();
	refused();
	inherited();
	held("read", environ);
	held("mapped", environ);
	held("read", (char *[]){NULL});
	return 0;
}
