/* SPDX-License-Identifier: Apache-2.0 */
/* An unlinked file lives as long as it is open; a new file of the same name is another file, even with its inode number. */
#include "check.h"

int main(void)
{
	for (int i = 0; i < 200; i++) {
		int fd = open("f", O_RDWR | O_CREAT | O_EXCL, 0644), again;
		struct stat st;

		put(fd, (unsigned)i, 0, 5000);
		CHECK(unlink("f") == 0 && fstat(fd, &st) == 0 && st.st_nlink == 0 && st.st_size == 5000);
		FAILS(open("f", O_RDONLY), ENOENT);
		put(fd, (unsigned)i, 5000, 100);
		expect(fd, (unsigned)i, 0, 5100);
		CHECK((i & 1 || close(fd) == 0));
		CHECK((again = open("f", O_RDWR | O_CREAT | O_EXCL, 0644)) >= 0 && size_of(again) == 0);
		put(again, 1000 + (unsigned)i, 10, 10);
		expect_zeros(again, 0, 10);
		expect(again, 1000 + (unsigned)i, 10, 10);
		CHECK(size_of(again) == 20 && close(again) == 0 && unlink("f") == 0 && (!(i & 1) || close(fd) == 0));
	}
	return 0;
}
