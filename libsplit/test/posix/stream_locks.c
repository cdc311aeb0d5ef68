/* SPDX-License-Identifier: Apache-2.0 */
/* Truncating a file by name, or by a FILE that can't be made, drops no lock that the process has on the file. */
#include "check.h"

#include <mntent.h>
#include <wchar.h>

static short seen_lock(void)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	const pid_t pid = fork();

	if (pid == 0) {
		int fd = open("f", O_RDWR);

		_exit(fd < 0 || fcntl(fd, F_GETLK, &l) < 0 ? 100 : l.l_type);
	}
	return (short)status_of(pid);
}

int main(void)
{
	/* The second has what only the C library's own FILEs can do. */
	const char *const modes[] = {"w", "w,ccs=UTF-8", "w+", "wc"};
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	FILE *f;
	int fd;

	CHECK((fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0 && fcntl(fd, F_SETLK, &l) == 0);
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		put(fd, 1, 0, 10000);
		f = fopen("f", modes[i]);
		CHECK(f && size_of(fd) == 0 && seen_lock() == F_WRLCK);
		CHECK((strchr(modes[i], ',') ? fputws(L"text", f) : fputs("text", f)) >= 0 && fflush(f) == 0 &&
		      size_of(fd) == 4 && seen_lock() == F_WRLCK);
		/* Closing drops it, as on the plain kernel. */
		CHECK(fclose(f) == 0 && seen_lock() == F_UNLCK && fcntl(fd, F_SETLK, &l) == 0);
		expect_file("f", "text");
		CHECK(fcntl(fd, F_SETLK, &l) == 0);
	}
	put(fd, 1, 0, 10000);
	/* glibc's freopen closes a second descriptor of the file: there is no lock to keep. */
	CHECK((f = fopen("g", "w")) && (f = freopen("f", "w", f)) && size_of(fd) == 0);
	CHECK(fclose(f) == 0 && fcntl(fd, F_SETLK, &l) == 0);
	put(fd, 1, 0, 10000);
	CHECK((f = setmntent("f", "w")) && size_of(fd) == 0 && seen_lock() == F_WRLCK);
	CHECK(endmntent(f) == 1 && seen_lock() == F_UNLCK);
	return 0;
}
