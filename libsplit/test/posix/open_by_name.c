/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that was written and closed is opened again by its name; so is whatever else that name leads to by then, with the rights that
 * there are by then. (On our own ext4 the library opens such a file by a call of its own.)
 */
#include "check.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* A file with this content, closed. */
static void made(const char *name, const char *text)
{
	const int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);

	CHECK(fd >= 0);
	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	CHECK(close(fd) == 0);
}

#define SHOWN (O_ACCMODE | O_APPEND | O_NONBLOCK)
static void reads(const char *name, int flags, const char *text)
{
	char buf[64] = "";
	const int fd = open(name, flags);

	CHECK(fd >= 0);
	CHECK(lseek(fd, 0, SEEK_CUR) == 0);
	CHECK(read(fd, buf, sizeof(buf)) == (ssize_t)strlen(text));
	CHECK(memcmp(buf, text, strlen(text)) == 0);
	CHECK(fcntl(fd, F_GETFD) == (flags & O_CLOEXEC ? FD_CLOEXEC : 0));
	CHECK((fcntl(fd, F_GETFL) & SHOWN) == (flags & SHOWN));
	CHECK(close(fd) == 0);
}

static void fails(const char *name, int flags, int err)
{
	FAILS(open(name, flags), err);
}

static void other_files(void)
{
	made("a", "first");
	reads("a", O_RDONLY, "first");
	reads("a", O_RDWR | O_CLOEXEC, "first");
	reads("a", O_RDWR | O_APPEND | O_NONBLOCK, "first");
	made("b", "second");
	CHECK(rename("b", "a") == 0);
	reads("a", O_RDWR, "second");
	fails("b", O_RDONLY, ENOENT);
	CHECK(rename("a", "c") == 0);
	fails("a", O_RDWR, ENOENT);
	reads("c", O_RDWR, "second");
	CHECK(symlink("c", "a") == 0);
	reads("a", O_RDWR, "second");
	made("d", "third");
	CHECK(unlink("a") == 0);
	CHECK(symlink("d", "a") == 0);
	reads("a", O_RDWR, "third");
	CHECK(mkdir("dir", 0755) == 0);
	made("dir/d", "below");
	CHECK(chdir("dir") == 0);
	reads("d", O_RDWR, "below");
	CHECK(chdir("..") == 0);
	reads("d", O_RDWR, "third");
	CHECK(unlink("d") == 0);
	CHECK(mkdir("d", 0755) == 0);
	fails("d", O_RDWR, EISDIR);
	CHECK(rmdir("d") == 0);
	fails("d/x", O_RDWR, ENOENT);
	fails("c/x", O_RDWR, ENOTDIR);
}

/* Two descriptions at a time, neither of which the other one moves, and what one writes the other reads. */
static void twice(void)
{
	char buf[16] = "";
	int one, two;

	made("t", "0123456789");
	one = open("t", O_RDWR);
	two = open("t", O_RDWR);
	CHECK(one >= 0 && two == one + 1);
	CHECK(read(one, buf, 4) == 4);
	CHECK(lseek(two, 0, SEEK_CUR) == 0);
	CHECK(write(two, "ab", 2) == 2);
	CHECK(lseek(one, 0, SEEK_END) == 10);
	CHECK(write(one, "cd", 2) == 2);
	CHECK(read(two, buf, sizeof(buf)) == 10);
	CHECK(memcmp(buf, "23456789cd", 10) == 0);
	CHECK(close(one) + close(two) == 0);
	reads("t", O_RDONLY, "ab23456789cd");
}

static void rights(void)
{
	int status;

	made("r", "right");
	reads("r", O_RDWR, "right");
	if (fork() == 0) {
		/* The child has its own idea of the file first: it has to be known, too. */
		reads("r", O_RDWR, "right");
		made("own", "x");
		CHECK(chmod("r", 0444) + chmod("own", 0400) == 0);
		CHECK(setegid(65534) + seteuid(65534) == 0);
		fails("r", O_RDWR, EACCES);
		fails("r", O_WRONLY, EACCES);
		fails("own", O_RDONLY, EACCES);
		reads("r", O_RDONLY, "right");
		exit(0);
	}
	CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(chmod("r", 0000) == 0);
	CHECK(chmod("r", 0644) == 0);
	reads("r", O_RDWR, "right");
}

/*
 * A child opens a file that its parent goes on writing, for a program with no environment (so without any library), which finds everything
 * that was written before.
 */
static void for_another(const char *self)
{
	int go[2];
	char c = 0;

	made("o", "begun");
	reads("o", O_RDWR, "begun");
	CHECK(pipe(go) == 0);
	for (int i = 0; i < 20; i++) {
		const int fd = open("o", O_RDWR);
		pid_t pid;

		CHECK(fd >= 0 && lseek(fd, 0, SEEK_END) == 5 + i);
		if ((pid = fork()) == 0) {
			char last[16];
			int own;

			CHECK(read(go[0], &c, 1) == 1);
			CHECK((own = open("o", O_RDONLY)) >= 0 && dup2(own, 0) == 0);
			snprintf(last, sizeof(last), "%d", 6 + i);
			execle(self, "open_by_name", last, NULL, (char *[]){NULL});
			_exit(127);
		}
		CHECK(write(fd, "+", 1) == 1 && write(go[1], &c, 1) == 1);
		CHECK(status_of(pid) == 0);
		CHECK(close(fd) == 0);
	}
	close(go[0]);
	close(go[1]);
}

/* Names that can't be read are errors. */
static void bad_names(void)
{
	const long page = sysconf(_SC_PAGESIZE);
	char *two = mmap(NULL, 2 * (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(two != MAP_FAILED);
	CHECK(mprotect(two + page, (size_t)page, PROT_NONE) == 0);
	fails((const char *)8, O_RDWR, EFAULT);
	fails(two + page, O_RDWR, EFAULT);
	memset(two, 'x', (size_t)page);
	fails(two + page - 20, O_RDWR, EFAULT);
	strcpy(two + page - 2, "r");
	reads(two + page - 2, O_RDWR, "right");
	memset(two, '/', (size_t)page);
	memcpy(two + page - 2, "r", 2);
	fails(two + page - 300, O_RDWR, ENOENT);
	munmap(two, 2 * (size_t)page);
}

int main(int argc, char **argv)
{
	char buf[64];

	if (argc > 1)
		return read(0, buf, sizeof(buf)) == atoi(argv[1]) ? 0 : 5;
	other_files();
	twice();
	for_another("/proc/self/exe");
	if (geteuid() == 0)
		rights();
	else
		made("r", "right");
	bad_names();
	return 0;
}
