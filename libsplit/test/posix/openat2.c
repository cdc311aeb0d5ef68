/* SPDX-License-Identifier: Apache-2.0 */
/* openat2 creates, truncates what this and another process have just written, and keeps its rules. */
#include "check.h"

#include <linux/openat2.h>

static int openat2_(const char *path, struct open_how how)
{
	return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
}

int main(void)
{
	int fd = openat2_("f", (struct open_how){.flags = O_RDWR | O_CREAT, .mode = 0640}), other, pipes[2];
	struct stat st;
	char c;
	pid_t pid;

	if (fd < 0 && errno == ENOSYS)
		SKIP("no openat2 here");
	CHECK(fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 0777) == 0640);
	put(fd, 1, 0, 20000);
	CHECK((other = openat2_("f", (struct open_how){.flags = O_RDWR | O_TRUNC})) >= 0);
	CHECK(size_of(fd) == 0 && size_of(other) == 0 && pread(fd, &c, 1, 0) == 0);
	put(fd, 2, 0, 500);
	expect(other, 2, 0, 500);
	CHECK(close(other) == 0 && pipe(pipes) == 0);
	/* another process truncates what this one has in hand */
	put(fd, 3, 500, 9000);
	if ((pid = fork()) == 0) {
		CHECK(read(pipes[0], &c, 1) == 1);
		CHECK((other = openat2_("f", (struct open_how){.flags = O_WRONLY | O_TRUNC})) >= 0 &&
		      write(other, "child", 5) == 5);
		_exit(0);
	}
	put(fd, 4, 9500, 9000); /* after the fork: this process's own again */
	CHECK(write(pipes[1], "x", 1) == 1 && status_of(pid) == 0 && size_of(fd) == 5);
	expect_file("f", "child");
	CHECK(close(fd) == 0);
	expect_file("f", "child");
	/* read-only and truncating; rules */
	CHECK((fd = openat2_("f", (struct open_how){.flags = O_RDONLY | O_TRUNC})) >= 0 && size_of(fd) == 0 && close(fd) == 0);
	FAILS(openat2_("f", (struct open_how){.flags = O_RDWR | O_CREAT | O_EXCL, .mode = 0600}), EEXIST);
	FAILS(openat2_("f", (struct open_how){.flags = O_RDWR, .mode = 0600}), EINVAL);
	FAILS(openat2_("f", (struct open_how){.flags = 1ull << 40}), EINVAL);
	FAILS(openat2_("f", (struct open_how){.flags = O_RDONLY, .resolve = 1ull << 40}), EINVAL);
	FAILS(openat2_("/etc", (struct open_how){.flags = O_RDONLY, .resolve = RESOLVE_BENEATH}), EXDEV);
	FAILS(openat2_("missing", (struct open_how){.flags = O_RDWR | O_TRUNC}), ENOENT);
	CHECK(mkdir("d", 0755) == 0);
	FAILS(openat2_("d", (struct open_how){.flags = O_RDWR | O_TRUNC}), EISDIR);
	return 0;
}
