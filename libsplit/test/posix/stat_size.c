/* SPDX-License-Identifier: Apache-2.0 */
/* Every form of stat shows the size and a fresh time right after a write. */
#include "check.h"

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644), path;
	struct timespec past[2] = {{1000, 0}, {1000, 0}};
	struct statx stx;
	struct stat st;

	CHECK(symlink("f", "s") == 0 && link("f", "h") == 0);
	for (off_t n = 100; n < 100000; n = n * 3 + 1) {
		put(fd, 1, n - 100, 100);
		CHECK(fstat(fd, &st) == 0 && st.st_size == n);
		CHECK(stat("f", &st) == 0 && st.st_size == n && stat("s", &st) == 0 && st.st_size == n);
		CHECK(lstat("h", &st) == 0 && st.st_size == n && lstat("s", &st) == 0 && st.st_size == 1);
		CHECK(fstatat(fd, "", &st, AT_EMPTY_PATH) == 0 && st.st_size == n);
		CHECK(fstatat(AT_FDCWD, "f", &st, 0) == 0 && st.st_size == n);
		CHECK(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &stx) == 0 && stx.stx_size == (uint64_t)n);
		CHECK((path = open("f", O_PATH)) >= 0 && fstat(path, &st) == 0 && st.st_size == n && close(path) == 0);
		/* a time that was set stays, and a later write changes it */
		CHECK(futimens(fd, past) == 0 && stat("f", &st) == 0 && st.st_mtime == 1000 && st.st_size == n);
		CHECK(fsync(fd) == 0 && stat("f", &st) == 0 && st.st_mtime == 1000);
		put(fd, 1, 0, 1);
		CHECK(stat("f", &st) == 0 && st.st_mtime > 1000);
		CHECK(utimensat(AT_FDCWD, "f", past, 0) == 0);
		put(fd, 1, n, 1);
		CHECK(fstat(fd, &st) == 0 && st.st_mtime > 1000);
	}
	CHECK(utimensat(AT_FDCWD, "f", past, 0) == 0 && close(fd) == 0 && stat("f", &st) == 0 && st.st_mtime == 1000);
	return 0;
}
