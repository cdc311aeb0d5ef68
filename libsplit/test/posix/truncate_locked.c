/* SPDX-License-Identifier: Apache-2.0 */
/* truncate by name, with bytes just written, of a file that this process has open and locked: it keeps its locks. */
#include "check.h"

static short seen_lock(const char *name)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	const pid_t pid = fork();
	int status;

	if (pid == 0) {
		int fd = open(name, O_RDWR);

		_exit(fd < 0 || fcntl(fd, F_GETLK, &l) < 0 ? 100 : l.l_type);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	return (short)WEXITSTATUS(status);
}

int main(void)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd, readable;

	CHECK((fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
	CHECK(fcntl(fd, F_SETLK, &l) == 0 && seen_lock("f") == F_WRLCK);
	put(fd, 1, 0, 10000);
	CHECK(truncate("f", 5000) == 0 && size_of(fd) == 5000 && seen_lock("f") == F_WRLCK);
	expect(fd, 1, 0, 5000);
	CHECK(lseek(fd, 10000, SEEK_SET) == 10000 && write(fd, "tail", 4) == 4 && size_of(fd) == 10004);
	CHECK(syscall(SYS_truncate, "f", 6000l) == 0 && size_of(fd) == 6000 && seen_lock("f") == F_WRLCK);
	CHECK(truncate("f", 20000) == 0 && size_of(fd) == 20000 && seen_lock("f") == F_WRLCK);
	FAILS(truncate("f", -1), EINVAL);
	FAILS(truncate("nothing", 1), ENOENT);
	CHECK(close(fd) == 0 && seen_lock("f") == F_UNLCK);

	/* open for reading only */
	CHECK((readable = open("f", O_RDONLY)) >= 0 && truncate("f", 100) == 0 && size_of(readable) == 100);
	expect(readable, 1, 0, 100);
	return 0;
}
