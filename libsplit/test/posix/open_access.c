/* SPDX-License-Identifier: Apache-2.0 */
/* What a descriptor was opened for: writing to O_RDONLY and reading from O_WRONLY fail, O_WRONLY writes all forms. */
#include "check.h"

int main(void)
{
	int w = open("f", O_WRONLY | O_CREAT, 0644), r, a;
	char buf[16];

	put(w, 5, 0, 9000);
	CHECK(lseek(w, 0, SEEK_END) == 9000 && write(w, "tail", 4) == 4);
	FAILS(read(w, buf, 1), EBADF);
	FAILS(pread(w, buf, 1, 0), EBADF);
	CHECK((r = open("f", O_RDONLY)) >= 0 && size_of(r) == 9004);
	FAILS(write(r, buf, 1), EBADF);
	FAILS(pwrite(r, buf, 1, 0), EBADF);
	FAILS(ftruncate(r, 0), EINVAL);
	expect(r, 5, 0, 9000);
	CHECK((a = open("f", O_WRONLY | O_APPEND)) >= 0 && write(a, "more", 4) == 4);
	CHECK(pread(r, buf, 16, 9000) == 8 && memcmp(buf, "tailmore", 8) == 0);
	CHECK((fcntl(w, F_GETFL) & O_ACCMODE) == O_WRONLY && (fcntl(r, F_GETFL) & O_ACCMODE) == O_RDONLY);
	return 0;
}
