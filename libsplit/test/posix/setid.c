/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Set-user-ID and set-group-ID bits and file capabilities go with the first write by another user, however the write is made. They stay
 * when they are given to a file after it was written.
 */
#include "check.h"

#include <linux/capability.h>
#include <stdbool.h>
#include <sys/uio.h>
#include <sys/xattr.h>

enum { SIZE = 20000 };
static const char capabilities[] = "security.capability";

static mode_t bits(const char *name)
{
	struct stat st;

	CHECK(stat(name, &st) == 0);
	return st.st_mode & (S_ISUID | S_ISGID);
}

static void by_write(int fd)
{
	CHECK(write(fd, "x", 1) == 1);
}

static void by_append(int fd)
{
	CHECK(lseek(fd, 0, SEEK_END) == SIZE && write(fd, "x", 1) == 1);
}

static void by_long_write(int fd)
{
	put(fd, 2, 1000, 3 * SIZE);
}

static void by_writev(int fd)
{
	struct iovec iov[2] = {{"a", 1}, {"b", 1}};

	CHECK(writev(fd, iov, 2) == 2);
}

static void by_number(int fd)
{
	CHECK(syscall(SYS_pwrite64, fd, "x", 1l, 100l) == 1);
}

static void by_truncate(int fd)
{
	CHECK(ftruncate(fd, 100) == 0);
}

static void (*const ways[])(int fd) = {by_write, by_append, by_long_write, by_writev, by_number, by_truncate};

/* A file of root's that everybody may write. */
static void make(void)
{
	int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0666);

	CHECK(fd >= 0);
	put(fd, 1, 0, SIZE);
	CHECK(close(fd) == 0);
}

static void become_another(void)
{
	CHECK(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
}

static void in_child(void (*run)(int arg), int arg)
{
	pid_t pid = fork();

	if (pid == 0) {
		run(arg);
		_exit(0);
	}
	CHECK(status_of(pid) == 0);
}

/* again: the file was open, and written to, when it got the bits. */
static void another_writes(void (*way)(int fd), bool again)
{
	int fd;

	if (!again)
		become_another();
	CHECK((fd = open("f", O_RDWR)) >= 0);
	if (again) {
		put(fd, 1, 0, 1000);
		CHECK(chmod("f", 06777) == 0 && bits("f") == (S_ISUID | S_ISGID) && lseek(fd, 0, SEEK_SET) == 0);
		become_another();
	}
	CHECK(bits("f") == (S_ISUID | S_ISGID));
	way(fd);
	CHECK(bits("f") == 0);
	way == by_append ? by_write(fd) : way(fd);
}

static void opened_later(int way)
{
	another_writes(ways[way], false);
}

static void opened_before(int way)
{
	another_writes(ways[way], true);
}

static void with_capabilities(int way)
{
	int fd = open("f", O_RDWR);

	CHECK(fd >= 0 && fgetxattr(fd, capabilities, NULL, 0) > 0);
	ways[way](fd);
	FAILS(fgetxattr(fd, capabilities, NULL, 0), ENODATA);
}

/* Of a user who installs a program of his own: it is written, gets its mode, and is closed. */
static void written_before(int size)
{
	int fd;

	become_another();
	CHECK(chdir("own") == 0 && (fd = open("g", O_RDWR | O_CREAT | O_TRUNC, 0755)) >= 0);
	put(fd, 1, 0, (size_t)size);
	CHECK(fchmod(fd, 04755) == 0 && bits("g") == S_ISUID && fsync(fd) == 0 && bits("g") == S_ISUID && close(fd) == 0);
	CHECK(bits("g") == S_ISUID);
	CHECK((fd = open("g", O_RDWR)) >= 0);
	expect(fd, 1, 0, (size_t)size);
	CHECK(bits("g") == S_ISUID && close(fd) == 0);
}

int main(void)
{
	const struct vfs_cap_data caps = {.magic_etc = VFS_CAP_REVISION_2, .data = {{.permitted = 1 << CAP_CHOWN}}};

	if (getuid() != 0)
		SKIP("not root");
	umask(0);
	CHECK(mkdir("own", 0777) == 0);
	for (int i = 0; i < (int)(sizeof(ways) / sizeof(ways[0])); i++) {
		make();
		CHECK(chmod("f", 06777) == 0);
		in_child(opened_later, i);
		make();
		in_child(opened_before, i);
		make();
		CHECK(chmod("f", 0755) == 0);
		if (setxattr("f", capabilities, &caps, XATTR_CAPS_SZ_2, 0) == 0)
			in_child(with_capabilities, i);
	}
	in_child(written_before, 5);
	in_child(written_before, SIZE);
	return 0;
}
