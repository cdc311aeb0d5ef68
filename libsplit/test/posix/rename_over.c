/* SPDX-License-Identifier: Apache-2.0 */
/* Write, rename over a file that is open: the name has all the new bytes, the open descriptor all the old ones. */
#include "check.h"

int main(void)
{
	int old, new;

	for (int i = 0; i < 20; i++) {
		CHECK((old = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
		put(old, 100 + (unsigned)i, 0, 20000);
		CHECK((new = open("f.tmp", O_WRONLY | O_CREAT | O_EXCL, 0644)) >= 0);
		put(new, 200 + (unsigned)i, 0, 30000);
		CHECK((i & 1 || close(new) == 0) && rename("f.tmp", "f") == 0);
		put(old, 100 + (unsigned)i, 20000, 100);
		expect(old, 100 + (unsigned)i, 0, 20100);
		CHECK(size_of(old) == 20100 && close(old) == 0);
		CHECK((old = open("f", O_RDONLY)) >= 0 && size_of(old) == 30000);
		expect(old, 200 + (unsigned)i, 0, 30000);
		if (i & 1) {
			put(new, 200 + (unsigned)i, 30000, 5);
			expect(old, 200 + (unsigned)i, 29000, 1005);
			CHECK(close(new) == 0);
		}
		CHECK(close(old) == 0);
	}
	return 0;
}
