/* SPDX-License-Identifier: Apache-2.0 */
/* renameat2: exchange two open files, refuse to replace. */
#include "check.h"

int main(void)
{
	int a = open("a", O_RDWR | O_CREAT, 0644), b = open("b", O_RDWR | O_CREAT, 0644), fd;

	CHECK(write(a, "first", 5) == 5 && write(b, "second", 6) == 6);
	FAILS(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_NOREPLACE), EEXIST);
	if (renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE) < 0)
		SKIP("no RENAME_EXCHANGE on this file system");
	CHECK(write(a, "!", 1) == 1 && write(b, "?", 1) == 1);
	expect_file("a", "second?");
	expect_file("b", "first!");
	CHECK((fd = open("a", O_WRONLY | O_APPEND)) >= 0 && write(fd, "+", 1) == 1);
	expect_file("a", "second?+");
	return 0;
}
