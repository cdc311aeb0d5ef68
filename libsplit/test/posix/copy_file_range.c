/* SPDX-License-Identifier: Apache-2.0 */
/* copy_file_range and FICLONE of freshly written bytes, within one file and between two. */
#include "check.h"

#include <linux/fs.h>
#include <sys/ioctl.h>

int main(void)
{
	int in = open("in", O_RDWR | O_CREAT, 0644), out = open("out", O_RDWR | O_CREAT, 0644), clone;
	off_t from = 5000, to = 100000;

	put(in, 1, 0, 80000);
	put(out, 2, 0, 1000);
	CHECK(lseek(in, 0, SEEK_SET) == 0 && copy_file_range(in, NULL, out, NULL, 80000, 0) == 80000);
	expect(out, 1, 0, 80000);
	CHECK(size_of(out) == 80000 && lseek(in, 0, SEEK_CUR) == 80000);
	put(in, 3, 5000, 100);
	CHECK(copy_file_range(in, &from, out, &to, 100, 0) == 100 && from == 5100 && to == 100100 && size_of(out) == 100100);
	expect_zeros(out, 80000, 20000);
	expect(in, 1, 0, 5000);
	put(out, 4, 100100, 50);
	CHECK((clone = open("clone", O_RDWR | O_CREAT, 0644)) >= 0);
	put(clone, 9, 0, 10);
	if (ioctl(clone, FICLONE, out) == 0) {
		CHECK(size_of(clone) == 100150);
		expect(clone, 4, 100100, 50);
		put(out, 7, 0, 100);
		expect(clone, 1, 0, 80000);
	} else {
		CHECK(errno == EOPNOTSUPP || errno == ENOTTY || errno == EINVAL);
	}
	FAILS(copy_file_range(in, NULL, 999, NULL, 1, 0), EBADF);
	return 0;
}
