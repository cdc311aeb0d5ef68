/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asynchronous I/O: the kernel, or a thread inside the C library, reads and writes later and without our seeing it. A file that
 * is used so is the kernel's for good.
 */
#include "preload.h"

#include <aio.h>
#include <linux/aio_abi.h>

static int hand_over(int fd)
{
	return sfs_ours(fd) ? pl_hand_over(fd) : 0;
}

WRAPPER int w_aio_read(struct aiocb *cb)
{
	int err = hand_over(cb->aio_fildes);

	return err < 0 ? (int)pl_ret(err) : REAL(aio_read)(cb);
}
EXPORT(aio_read, w_aio_read);
EXPORT(aio_read64, w_aio_read);

WRAPPER int w_aio_write(struct aiocb *cb)
{
	int err = hand_over(cb->aio_fildes);

	return err < 0 ? (int)pl_ret(err) : REAL(aio_write)(cb);
}
EXPORT(aio_write, w_aio_write);
EXPORT(aio_write64, w_aio_write);

WRAPPER int w_aio_fsync(int op, struct aiocb *cb)
{
	int err = hand_over(cb->aio_fildes);

	return err < 0 ? (int)pl_ret(err) : REAL(aio_fsync)(op, cb);
}
EXPORT(aio_fsync, w_aio_fsync);
EXPORT(aio_fsync64, w_aio_fsync);

WRAPPER int w_lio_listio(int mode, struct aiocb *const list[], int n, struct sigevent *sig)
{
	for (int i = 0; i < n; i++) {
		int err = list[i] ? hand_over(list[i]->aio_fildes) : 0;

		if (err < 0)
			return (int)pl_ret(err);
	}
	return REAL(lio_listio)(mode, list, n, sig);
}
EXPORT(lio_listio, w_lio_listio);
EXPORT(lio_listio64, w_lio_listio);

/* libaio: results are negative errno values. */
WRAPPER int w_io_submit(void *ctx, long n, struct iocb **list)
{
	for (long i = 0; sfs_active() && i < n; i++) {
		int err = hand_over((int)list[i]->aio_fildes);

		if (err < 0)
			return err;
	}
	return REAL_AS(int (*)(void *, long, struct iocb **), io_submit)(ctx, n, list);
}
EXPORT(io_submit, w_io_submit);

/* liburing makes its system calls inline, and submissions are not calls at all: with a ring, nothing is staged any more. */
static void ring(void)
{
	if (sfs_active())
		sfs_stop_staging();
}

WRAPPER int w_io_uring_queue_init(unsigned entries, void *r, unsigned flags)
{
	ring();
	return REAL_AS(int (*)(unsigned, void *, unsigned), io_uring_queue_init)(entries, r, flags);
}
EXPORT(io_uring_queue_init, w_io_uring_queue_init);

WRAPPER int w_io_uring_queue_init_params(unsigned entries, void *r, void *params)
{
	ring();
	return REAL_AS(int (*)(unsigned, void *, void *), io_uring_queue_init_params)(entries, r, params);
}
EXPORT(io_uring_queue_init_params, w_io_uring_queue_init_params);

WRAPPER int w_io_uring_queue_init_mem(unsigned entries, void *r, void *params, void *buf, size_t n)
{
	ring();
	return REAL_AS(int (*)(unsigned, void *, void *, void *, size_t), io_uring_queue_init_mem)(entries, r, params, buf, n);
}
EXPORT(io_uring_queue_init_mem, w_io_uring_queue_init_mem);

WRAPPER int w_io_uring_setup(unsigned entries, void *params)
{
	ring();
	return REAL_AS(int (*)(unsigned, void *), io_uring_setup)(entries, params);
}
EXPORT(io_uring_setup, w_io_uring_setup);
