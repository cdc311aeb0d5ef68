/* SPDX-License-Identifier: Apache-2.0 */
/* preadv2 and pwritev2 with each flag, on bytes that have just been written; flags that nobody knows are refused. */
#include "check.h"

#include <sys/uio.h>

#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif

static char buf[70000];

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644), log = open("log", O_RDWR | O_CREAT | O_APPEND, 0644);
	struct iovec iov = {buf, 5000};
	off_t end = 0;
	ssize_t r;

	for (unsigned i = 0; i < 20; i++) {
		const int how[] = {0, RWF_DSYNC, RWF_SYNC, RWF_HIPRI, RWF_APPEND};

		for (size_t k = 0; k < sizeof(how) / sizeof(how[0]); k++) {
			fill(buf, 5000, i, (uint64_t)end);
			r = pwritev2(fd, &iov, 1, how[k] == RWF_APPEND ? 0 : end, how[k]);
			CHECK(r == 5000);
			expect(fd, i, end, 5000);
			end += 5000;
			CHECK(size_of(fd) == end && lseek(fd, 0, SEEK_CUR) == 0);
		}
	}
	/* at the offset, appending: the offset is the end then */
	CHECK(lseek(fd, 100, SEEK_SET) == 100 && pwritev2(fd, &iov, 1, -1, RWF_APPEND | RWF_DSYNC) == 5000);
	end += 5000;
	CHECK(size_of(fd) == end && lseek(fd, 0, SEEK_CUR) == end);
	/* reading */
	put(fd, 77, end, 3000);
	iov.iov_len = 3000;
	r = preadv2(fd, &iov, 1, end, RWF_NOWAIT);
	CHECK(r == 3000 || (r == -1 && (errno == EAGAIN || errno == EOPNOTSUPP)));
	for (int i = 0; r == 3000 && i < 3000; i++)
		CHECK((unsigned char)buf[i] == byte_at(77, (uint64_t)(end + i)));
	CHECK(preadv2(fd, &iov, 1, end, RWF_HIPRI) == 3000 && (unsigned char)buf[2999] == byte_at(77, (uint64_t)end + 2999));
	FAILS(preadv2(fd, &iov, 1, 0, 1 << 30), EOPNOTSUPP);
	FAILS(pwritev2(fd, &iov, 1, 0, 1 << 30), EOPNOTSUPP);
	/* RWF_NOAPPEND: in its place although the descriptor appends (Linux 6.9) */
	CHECK(write(log, "0123456789", 10) == 10);
	iov = (struct iovec){"--", 2};
	r = pwritev2(log, &iov, 1, 3, RWF_NOAPPEND);
	CHECK(r == 2 || (r == -1 && errno == EOPNOTSUPP));
	CHECK(pwritev2(log, &iov, 1, 0, 0) == 2);
	expect_file("log", r == 2 ? "012--56789--" : "0123456789--");
	return 0;
}
