/* SPDX-License-Identifier: Apache-2.0 */
/* aio_write, aio_read, lio_listio, io_submit and a ring beside write: one content. */
#include "check.h"

#include <aio.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>

static ssize_t finish(struct aiocb *cb)
{
	const struct aiocb *list[1] = {cb};

	while (aio_error(cb) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	CHECK(aio_error(cb) == 0);
	return aio_return(cb);
}

static void posix_aio(int fd)
{
	char buf[100];
	struct aiocb cb = {.aio_fildes = fd, .aio_buf = buf, .aio_nbytes = 100, .aio_offset = 50};

	put(fd, 1, 0, 1000);
	CHECK(aio_read(&cb) == 0 && finish(&cb) == 100);
	for (unsigned i = 0; i < 100; i++)
		CHECK((unsigned char)buf[i] == byte_at(1, 50 + i));
	fill(buf, 100, 2, 1000);
	cb.aio_offset = 1000;
	CHECK(aio_write(&cb) == 0 && finish(&cb) == 100 && size_of(fd) == 1100);
	expect(fd, 2, 1000, 100);
	put(fd, 3, 1100, 100);
	expect(fd, 1, 0, 1000);
	CHECK(aio_fsync(O_SYNC, &cb) == 0 && finish(&cb) == 0);
	CHECK(lio_listio(LIO_WAIT, (struct aiocb *[]){NULL}, 1, NULL) == 0);
}

static void kernel_aio(int fd)
{
	char buf[64];
	struct iocb cb = {.aio_fildes = (unsigned)fd, .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_nbytes = 64, .aio_offset = 1200};
	struct iocb *list[1] = {&cb};
	struct io_event event;
	aio_context_t ctx = 0;

	if (syscall(SYS_io_setup, 4L, &ctx) < 0)
		return;
	put(fd, 3, 1100, 100);
	fill(buf, 64, 4, 1200);
	cb.aio_buf = (uint64_t)(uintptr_t)buf;
	CHECK(syscall(SYS_io_submit, ctx, 1L, list) == 1);
	CHECK(syscall(SYS_io_getevents, ctx, 1L, 1L, &event, NULL) == 1 && event.res == 64 && size_of(fd) == 1264);
	expect(fd, 4, 1200, 64);
	expect(fd, 3, 1100, 100);
	CHECK(syscall(SYS_io_destroy, ctx) == 0);
}

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644), other = open("g", O_RDWR | O_CREAT, 0644);
	struct io_uring_params params = {0};
	int ring;

	put(other, 1, 0, 5000);
	posix_aio(fd);
	kernel_aio(fd);
	ring = (int)syscall(SYS_io_uring_setup, 4L, &params);
	put(other, 2, 5000, 5000);
	expect(other, 1, 0, 5000);
	expect(other, 2, 5000, 5000);
	if (ring >= 0)
		CHECK(close(ring) == 0);
	return 0;
}
