/* SPDX-License-Identifier: Apache-2.0 */
/* FICLONE, FICLONERANGE and FIDEDUPERANGE of freshly written bytes, named and by number, and FALLOC_FL_INSERT_RANGE and UNSHARE_RANGE. */
#include "check.h"

#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

enum { BLOCK = 65536 }; /* a multiple of the block size of every file system */

static int by_name(int fd, unsigned long request, void *arg)
{
	return ioctl(fd, request, arg);
}

static int by_number(int fd, unsigned long request, void *arg)
{
	return (int)syscall(SYS_ioctl, fd, request, arg);
}

static void clones(int (*call)(int, unsigned long, void *))
{
	int in = open("in", O_RDWR | O_CREAT | O_TRUNC, 0644), out = open("out", O_RDWR | O_CREAT | O_TRUNC, 0644);
	struct file_clone_range range = {.src_fd = in, .src_offset = BLOCK, .src_length = BLOCK, .dest_offset = 2 * BLOCK};
	struct {
		struct file_dedupe_range head;
		struct file_dedupe_range_info info;
	} same = {.head = {.src_length = BLOCK, .dest_count = 1}, .info = {.dest_fd = out}};

	put(in, 1, 0, 2 * BLOCK);
	put(out, 2, 0, 100);
	if (call(out, FICLONE, (void *)(long)in) < 0) {
		CHECK(errno == EOPNOTSUPP || errno == ENOTTY || errno == EINVAL || errno == ENOSYS);
		SKIP("this file system can't clone");
	}
	CHECK(size_of(out) == 2 * BLOCK);
	expect(out, 1, 0, 2 * BLOCK);
	put(in, 3, BLOCK + 100, 5000);
	CHECK(call(out, FICLONERANGE, &range) == 0 && size_of(out) == 3 * BLOCK);
	for (unsigned i = 0; i < 5000; i++) {
		unsigned char c;

		CHECK(pread(out, &c, 1, 2 * BLOCK + 100 + (off_t)i) == 1 && c == byte_at(3, BLOCK + 100 + i));
	}
	expect(out, 1, 0, BLOCK);
	/* the clone is a copy */
	put(out, 4, 0, 100);
	expect(in, 1, 0, 100);
	/* shared again where equal */
	put(out, 1, 0, 100);
	CHECK(call(in, FIDEDUPERANGE, &same) == 0);
	CHECK(same.info.status == FILE_DEDUPE_RANGE_SAME && same.info.bytes_deduped == BLOCK);
	put(in, 5, 0, 10);
	same.info.bytes_deduped = 0;
	CHECK(call(in, FIDEDUPERANGE, &same) == 0 && same.info.status == FILE_DEDUPE_RANGE_DIFFERS);
	expect(out, 1, 0, BLOCK);
	CHECK(close(in) == 0 && close(out) == 0);
}

int main(void)
{
	int fd;

	clones(by_name);
	clones(by_number);
	CHECK((fd = open("f", O_RDWR | O_CREAT, 0644)) >= 0);
	put(fd, 6, 0, 2 * BLOCK);
	CHECK(fallocate(fd, FALLOC_FL_INSERT_RANGE, 0, BLOCK) == 0 && size_of(fd) == 3 * BLOCK);
	expect_zeros(fd, 0, BLOCK);
	put(fd, 7, 0, 1000);
	CHECK(fallocate(fd, FALLOC_FL_UNSHARE_RANGE, 0, 3 * BLOCK) == 0 && size_of(fd) == 3 * BLOCK);
	expect(fd, 7, 0, 1000);
	for (unsigned i = 0; i < 2 * BLOCK; i += 977) {
		unsigned char c;

		CHECK(pread(fd, &c, 1, BLOCK + (off_t)i) == 1 && c == byte_at(6, i));
	}
	return 0;
}
