/* SPDX-License-Identifier: Apache-2.0 */
/* Files by directory descriptor, relative to a changing working directory, through links and under new names. */
#include "check.h"

int main(void)
{
	int dir, fd, other;

	CHECK(mkdir("d", 0755) == 0 && mkdir("d/e", 0755) == 0 && (dir = open("d", O_RDONLY | O_DIRECTORY)) >= 0);
	CHECK((fd = openat(dir, "f", O_RDWR | O_CREAT, 0644)) >= 0 && write(fd, "one", 3) == 3);
	CHECK(linkat(dir, "f", dir, "e/hard", 0) == 0 && symlinkat("../f", dir, "e/soft") == 0 && chdir("d/e") == 0);
	expect_file("hard", "one");
	CHECK(write(fd, "two", 3) == 3 && (other = open("soft", O_WRONLY | O_APPEND)) >= 0 && write(other, "three", 5) == 5);
	expect_file("../f", "onetwothree");
	CHECK(rename("../../d", "../../moved") == 0 && unlinkat(dir, "f", 0) == 0 && write(other, "four", 4) == 4);
	expect_file("hard", "onetwothreefour");
	CHECK(fchdir(dir) == 0);
	expect_file("e/hard", "onetwothreefour");
	return 0;
}
