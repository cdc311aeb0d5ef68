/* SPDX-License-Identifier: Apache-2.0 */
/* A file without a name gets its name, and its content, by linkat. */
#include "check.h"

int main(void)
{
	int fd = open(".", O_RDWR | O_TMPFILE, 0644), other;
	char path[64];

	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR))
		SKIP("no O_TMPFILE on this file system");
	CHECK(fd >= 0);
	put(fd, 3, 0, 70000);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW) == 0);
	CHECK((other = open("named", O_RDONLY)) >= 0 && size_of(other) == 70000);
	expect(other, 3, 0, 70000);
	put(fd, 3, 70000, 10);
	expect(other, 3, 69990, 20);
	CHECK(close(fd) == 0 && size_of(other) == 70010);
	return 0;
}
