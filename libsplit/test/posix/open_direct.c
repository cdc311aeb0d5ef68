/* SPDX-License-Identifier: Apache-2.0 */
/* O_DIRECT and buffered descriptors of one file see the same bytes. */
#include "check.h"

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT | O_DIRECT, 0644), plain;
	char *buf;

	if (fd < 0 && errno == EINVAL)
		SKIP("no O_DIRECT on this file system");
	CHECK(fd >= 0 && posix_memalign((void **)&buf, 4096, 65536) == 0);
	fill(buf, 65536, 7, 0);
	CHECK(write(fd, buf, 65536) == 65536);
	CHECK((plain = open("f", O_RDWR)) >= 0 && size_of(plain) == 65536);
	expect(plain, 7, 0, 65536);
	put(plain, 8, 4096, 8192);
	memset(buf, 0, 65536);
	CHECK(pread(fd, buf, 16384, 0) == 16384);
	for (int i = 0; i < 16384; i++)
		CHECK((unsigned char)buf[i] == byte_at(i >= 4096 && i < 12288 ? 8 : 7, (uint64_t)i));
	return 0;
}
