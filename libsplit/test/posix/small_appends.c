/* SPDX-License-Identifier: Apache-2.0 */
/* 50,000 records of 1 to 256 bytes, some files, fsync now and then: every record is where it was put. */
#include "check.h"

int main(void)
{
	int fd[3], n = 50000;
	off_t size[3] = {0};
	char name[8];

	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "log%d", i);
		CHECK((fd[i] = open(name, O_WRONLY | O_CREAT | (i ? O_APPEND : 0), 0644)) >= 0);
	}
	for (int i = 0; i < n; i++) {
		unsigned char buf[256];
		int k = i % 3;
		size_t len = (size_t)i * 7 % 256 + 1;

		fill(buf, len, (unsigned)k, (uint64_t)size[k]);
		CHECK(write(fd[k], buf, len) == (ssize_t)len);
		size[k] += (off_t)len;
		if (i % 5000 == 4999)
			CHECK(fdatasync(fd[k]) == 0);
	}
	for (int i = 0; i < 3; i++) {
		int r;

		snprintf(name, sizeof(name), "log%d", i);
		CHECK((r = open(name, O_RDONLY)) >= 0 && size_of(r) == size[i]);
		expect(r, (unsigned)i, 0, (size_t)size[i]);
	}
	return 0;
}
