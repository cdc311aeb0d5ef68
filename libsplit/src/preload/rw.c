/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes: read and write in all their forms, and what else the core serves by descriptor. */
#include "preload.h"
#include "record/latency.h"

#include <unistd.h>

/* The description behind fd where a short way may be tried: it is known, and nothing about the call needs a look. */
static inline struct sfs_ofd *quick(int fd, const void *buf, size_t n)
{
	struct sfs_ofd *ofd = sfs_known(fd);

	return ofd && likely(!pl_bad_buffer(buf, n) && !pl_cancel_used) ? ofd : NULL;
}

/* Where speed matters: serve fd, and when it is not ours or the core passes, make the call. Both are expressions. */
#define SERVE(fd, serve, pass)                                                                                         \
	do {                                                                                                           \
		long r_;                                                                                               \
                                                                                                                       \
		if (likely(!sfs_ours(fd)))                                                                             \
			return pass;                                                                                   \
		pl_cancel_point();                                                                                     \
		r_ = (serve);                                                                                          \
		if (likely(r_ != SFS_PASS))                                                                            \
			return pl_ret(r_);                                                                             \
		r_ = (pass);                                                                                           \
		sfs_changed(fd);                                                                                       \
		return r_;                                                                                             \
	} while (0)

/*
 * A call that only the kernel knows the error of, or that it is none: what it looks at first is the descriptor, and at the end of a file no buffer is
 * needed. The file is true, so that the offset that the kernel has then is the file's.
 */
static __attribute__((noinline, cold)) long odd(enum pl_call call, int fd, const void *buf, size_t n, off_t off)
{
	const long args[6] = {fd, (long)buf, (long)n, off};
	const struct request q = {.call = call, .named = true, .a = args};

	return do_true_then(&q);
}

WRAPPER ssize_t w_read(int fd, void *buf, size_t n)
{
	struct sfs_ofd *ofd = quick(fd, buf, n);
	ssize_t r;

	if (unlikely(ofd && sfs_timed(false)))
		SERVE(fd, sfs_timed_read(ofd, fd, buf, n, -1), REAL(read)(fd, buf, n));
	if (ofd && sfs_read_window(ofd, fd, buf, n, -1))
		return (ssize_t)n;
	if (!ofd && !pl_cancel_used && sfs_first_read(fd, buf, n, -1, &r))
		return pl_ret(r);
	SERVE(fd, unlikely(pl_bad_buffer(buf, n)) ? odd(PL_read, fd, buf, n, 0) : sfs_read(fd, buf, n, -1),
	      REAL(read)(fd, buf, n));
}
EXPORT(read, w_read);
EXPORT(__read, w_read);

WRAPPER ssize_t w_write(int fd, const void *buf, size_t n)
{
	struct sfs_ofd *ofd = quick(fd, buf, n);
	ssize_t r;

	if (unlikely(ofd && sfs_timed(false)))
		SERVE(fd, sfs_timed_write(ofd, fd, buf, n, -1), REAL(write)(fd, buf, n));
	if (ofd && sfs_append(ofd, fd, buf, n))
		return (ssize_t)n;
	if (!ofd && !pl_cancel_used && sfs_first_write(fd, buf, n, -1, &r))
		return pl_ret(r);
	SERVE(fd, unlikely(pl_bad_buffer(buf, n)) ? odd(PL_write, fd, buf, n, 0) : sfs_write(fd, buf, n, -1),
	      REAL(write)(fd, buf, n));
}
EXPORT(write, w_write);
EXPORT(__write, w_write);

/* A negative offset would mean "at the file offset" to the core; one so high that the end would be negative is no less odd. */
static inline bool odd_place(const void *buf, size_t n, off_t off)
{
	return unlikely(off < 0 || (off_t)((size_t)off + n) < 0 || pl_bad_buffer(buf, n));
}

WRAPPER ssize_t w_pread(int fd, void *buf, size_t n, off_t off)
{
	struct sfs_ofd *ofd = quick(fd, buf, n);
	ssize_t r;

	if (unlikely(ofd && off >= 0 && sfs_timed(false)))
		SERVE(fd, sfs_timed_read(ofd, fd, buf, n, off), REAL(pread)(fd, buf, n, off));
	if (ofd && off >= 0 && sfs_read_window(ofd, fd, buf, n, off))
		return (ssize_t)n;
	if (!ofd && off >= 0 && !pl_cancel_used && sfs_first_read(fd, buf, n, off, &r))
		return pl_ret(r);
	SERVE(fd, odd_place(buf, n, off) ? odd(PL_pread, fd, buf, n, off) : sfs_read(fd, buf, n, off),
	      REAL(pread)(fd, buf, n, off));
}
EXPORT(pread, w_pread);
EXPORT(pread64, w_pread);
EXPORT(__pread64, w_pread);

WRAPPER ssize_t w_pwrite(int fd, const void *buf, size_t n, off_t off)
{
	struct sfs_ofd *ofd = quick(fd, buf, n);
	ssize_t r;

	if (unlikely(ofd && off >= 0 && sfs_timed(false)))
		SERVE(fd, sfs_timed_write(ofd, fd, buf, n, off), REAL(pwrite)(fd, buf, n, off));
	if (ofd && off >= 0 && sfs_store(ofd, fd, buf, n, off))
		return (ssize_t)n;
	if (!ofd && off >= 0 && !pl_cancel_used && sfs_first_write(fd, buf, n, off, &r))
		return pl_ret(r);
	SERVE(fd, odd_place(buf, n, off) ? odd(PL_pwrite, fd, buf, n, off) : sfs_write(fd, buf, n, off),
	      REAL(pwrite)(fd, buf, n, off));
}
EXPORT(pwrite, w_pwrite);
EXPORT(pwrite64, w_pwrite);
EXPORT(__pwrite64, w_pwrite);

WRAPPER off_t w_lseek(int fd, off_t off, int whence)
{
	off_t r;

	if (!sfs_known(fd) && sfs_first_lseek(fd, off, whence, &r))
		return pl_ret(r);
	SERVE(fd, sfs_lseek(fd, off, whence), REAL(lseek)(fd, off, whence));
}
EXPORT(lseek, w_lseek);
EXPORT(lseek64, w_lseek);
EXPORT(__lseek, w_lseek);
EXPORT(llseek, w_lseek);

static long serve_bytes(const struct request *q, int fd)
{
	void *buf = (void *)q->a[1];
	const size_t n = (size_t)q->a[2];
	const off_t off = q->a[3];

	switch (q->call) {
	case PL_read:
		return pl_bad_buffer(buf, n) ? do_true_then(q) : sfs_read(fd, buf, n, -1);
	case PL_write:
		return pl_bad_buffer(buf, n) ? do_true_then(q) : sfs_write(fd, buf, n, -1);
	case PL_pread:
		return odd_place(buf, n, off) ? do_true_then(q) : sfs_read(fd, buf, n, off);
	default:
		return odd_place(buf, n, off) ? do_true_then(q) : sfs_write(fd, buf, n, off);
	}
}

/* Offset -1 is the file offset to preadv2 and pwritev2 alone. */
static long serve_vector(const struct request *q, int fd)
{
	const struct iovec *iov = (const struct iovec *)q->a[1];
	const int cnt = (int)q->a[2];
	const bool two = q->call == PL_preadv2 || q->call == PL_pwritev2;
	const bool placed = two || q->call == PL_preadv || q->call == PL_pwritev;
	const off_t off = placed ? q->a[3] : -1;
	const int flags = two ? (int)q->a[q->named ? 4 : 5] : 0;

	if ((placed && off < (two ? -1 : 0)) || (cnt > 0 && pl_bad_buffer(iov, (size_t)cnt * sizeof(*iov))))
		return do_true_then(q);
	if (q->call == PL_readv || q->call == PL_preadv || q->call == PL_preadv2)
		return sfs_readv(fd, iov, cnt, off, flags);
	return sfs_writev(fd, iov, cnt, off, flags);
}

static long serve(const struct request *q, int fd)
{
	const long *a = q->a;

	switch (q->call) {
	case PL_read:
	case PL_write:
	case PL_pread:
	case PL_pwrite:
		return serve_bytes(q, fd);
	case PL_lseek:
		return sfs_lseek(fd, a[1], (int)a[2]);
	case PL_fsync:
	case PL_fdatasync:
		return sfs_timed(true) ? sfs_timed_fsync(fd, q->call == PL_fdatasync)
				       : sfs_fsync(fd, q->call == PL_fdatasync);
	case PL_ftruncate:
		return sfs_ftruncate(fd, a[1]);
	case PL_fallocate:
		return sfs_fallocate(fd, (int)a[1], a[2], a[3]);
	default:
		return serve_vector(q, fd);
	}
}

long do_serve(const struct request *q)
{
	const int fd = pl_fd(q);
	int forced;
	long r;

	if ((q->call == PL_fsync || q->call == PL_fdatasync) && !pl_cancel_used &&
	    sfs_first_fsync(fd, q->call == PL_fdatasync, &forced))
		return forced;
	if (!sfs_ours(fd))
		return pl_make(q);
	if (q->named)
		pl_cancel_point();
	r = serve(q, fd);
	if (likely(r != SFS_PASS))
		return r;
	r = pl_make(q);
	sfs_changed(fd);
	return r;
}

/* Fortified forms: the C library ends a program that would overrun its buffer. */
long do_read_chk(const struct request *q)
{
	const bool placed = q->call == PL___pread_chk;
	const struct request plain = {.call = placed ? PL_pread : PL_read, .named = q->named, .a = q->a};

	return (size_t)q->a[2] > (size_t)q->a[placed ? 4 : 3] ? pl_make(q) : do_serve(&plain);
}

/* Where the file system can't, the C library writes the blocks itself, behind our back. */
long do_posix_fallocate(const struct request *q)
{
	const int fd = pl_fd(q);
	struct sfs_change change;
	long r;

	if (!sfs_ours(fd))
		return pl_make(q);
	r = sfs_fallocate(fd, 0, q->a[1], q->a[2]);
	if (r != SFS_PASS && r != -EOPNOTSUPP)
		return r;
	r = sfs_true_to_change(fd, &change);
	if (r < 0)
		return r;
	r = pl_make(q);
	sfs_change_over(fd, &change, false);
	return r == 0 ? sfs_fd_durable(fd) : r;
}
