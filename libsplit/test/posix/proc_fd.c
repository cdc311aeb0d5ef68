/* SPDX-License-Identifier: Apache-2.0 */
/* Files opened by way of /proc/self/fd, /dev/fd and a handle: of what was just written, with an offset of their own. */
#include "check.h"

int main(void)
{
	struct {
		struct file_handle h;
		char room[128];
	} handle = {.h.handle_bytes = 128};
	int fd = open("f", O_RDWR | O_CREAT, 0644), again, path, mount, dir;
	char name[64];

	put(fd, 1, 0, 5000);
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	CHECK((again = open(name, O_RDWR)) >= 0 && lseek(again, 0, SEEK_CUR) == 0 && size_of(again) == 5000);
	expect(again, 1, 0, 5000);
	put(again, 2, 5000, 5000);
	expect(fd, 2, 5000, 5000);
	CHECK(close(again) == 0 && (again = open(name, O_WRONLY | O_APPEND)) >= 0 && write(again, "end", 3) == 3);
	CHECK(size_of(fd) == 10003 && close(again) == 0);
	CHECK((again = open(name, O_WRONLY | O_TRUNC)) >= 0 && size_of(fd) == 0 && close(again) == 0);
	put(fd, 3, 0, 100);
	/* O_PATH, and opened by way of that; also when the name is gone */
	CHECK((path = open("f", O_PATH)) >= 0);
	FAILS(write(path, "x", 1), EBADF);
	CHECK(unlink("f") == 0);
	snprintf(name, sizeof(name), "/dev/fd/%d", path);
	CHECK((again = open(name, O_RDWR)) >= 0);
	expect(again, 3, 0, 100);
	put(again, 4, 100, 100);
	expect(fd, 4, 100, 100);
	/* a name again, and a handle */
	CHECK(close(again) == 0 && close(path) == 0 && close(fd) == 0 && (fd = open("g", O_RDWR | O_CREAT, 0644)) >= 0);
	put(fd, 5, 0, 6000);
	CHECK((dir = open(".", O_RDONLY | O_DIRECTORY)) >= 0);
	if (name_to_handle_at(AT_FDCWD, "g", &handle.h, &mount, 0) == 0 &&
	    (again = open_by_handle_at(dir, &handle.h, O_RDWR)) >= 0) {
		expect(again, 5, 0, 6000);
		put(again, 6, 6000, 10);
		CHECK(size_of(fd) == 6010 && close(again) == 0);
		put(fd, 7, 6010, 1000);
		CHECK((again = open_by_handle_at(dir, &handle.h, O_WRONLY | O_TRUNC)) >= 0 && size_of(fd) == 0);
		put(again, 8, 0, 7);
		expect(fd, 8, 0, 7);
	} else {
		CHECK(errno == EOPNOTSUPP || errno == EPERM || errno == ENOSYS);
	}
	return 0;
}
