/* SPDX-License-Identifier: Apache-2.0 */
/* read and write in all their forms. */
#include "preload.h"

#include <unistd.h>

/* The description behind fd where a short way may be tried: it is known, and nothing about the call needs a look. */
static inline struct sfs_ofd *quick(int fd, const void *buf, size_t n)
{
	struct sfs_ofd *ofd = sfs_known(fd);

	return ofd && likely(!pl_bad_buffer(buf, n) && !pl_cancel_used) ? ofd : NULL;
}

WRAPPER ssize_t w_read(int fd, void *buf, size_t n)
{
	struct sfs_ofd *ofd = quick(fd, buf, n);

	if (ofd && sfs_read_window(ofd, fd, buf, n, -1))
		return (ssize_t)n;
	SERVE(fd, unlikely(pl_bad_buffer(buf, n)) ? -EFAULT : sfs_read(fd, buf, n, -1), REAL(read)(fd, buf, n));
}
EXPORT(read, w_read);
EXPORT(__read, w_read);

WRAPPER ssize_t w_write(int fd, const void *buf, size_t n)
{
	struct sfs_ofd *ofd = quick(fd, buf, n);

	if (ofd && sfs_append(ofd, fd, buf, n))
		return (ssize_t)n;
	SERVE(fd, unlikely(pl_bad_buffer(buf, n)) ? -EFAULT : sfs_write(fd, buf, n, -1), REAL(write)(fd, buf, n));
}
EXPORT(write, w_write);
EXPORT(__write, w_write);

/* A negative offset would mean "at the file offset" to the core; here it is an error, and the real call knows which. */
WRAPPER ssize_t w_pread(int fd, void *buf, size_t n, off_t off)
{
	struct sfs_ofd *ofd = quick(fd, buf, n);

	if (ofd && off >= 0 && sfs_read_window(ofd, fd, buf, n, off))
		return (ssize_t)n;
	SERVE(fd,
	      off < 0				? SFS_PASS
	      : unlikely(pl_bad_buffer(buf, n)) ? -EFAULT
						: sfs_read(fd, buf, n, off),
	      REAL(pread)(fd, buf, n, off));
}
EXPORT(pread, w_pread);
EXPORT(pread64, w_pread);
EXPORT(__pread64, w_pread);

WRAPPER ssize_t w_pwrite(int fd, const void *buf, size_t n, off_t off)
{
	SERVE(fd,
	      off < 0				? SFS_PASS
	      : unlikely(pl_bad_buffer(buf, n)) ? -EFAULT
						: sfs_write(fd, buf, n, off),
	      REAL(pwrite)(fd, buf, n, off));
}
EXPORT(pwrite, w_pwrite);
EXPORT(pwrite64, w_pwrite);
EXPORT(__pwrite64, w_pwrite);

WRAPPER ssize_t w_readv(int fd, const struct iovec *iov, int cnt)
{
	SERVE(fd, sfs_readv(fd, iov, cnt, -1, 0), REAL(readv)(fd, iov, cnt));
}
EXPORT(readv, w_readv);

WRAPPER ssize_t w_writev(int fd, const struct iovec *iov, int cnt)
{
	SERVE(fd, sfs_writev(fd, iov, cnt, -1, 0), REAL(writev)(fd, iov, cnt));
}
EXPORT(writev, w_writev);

WRAPPER ssize_t w_preadv(int fd, const struct iovec *iov, int cnt, off_t off)
{
	SERVE(fd, off < 0 ? SFS_PASS : sfs_readv(fd, iov, cnt, off, 0), REAL(preadv)(fd, iov, cnt, off));
}
EXPORT(preadv, w_preadv);
EXPORT(preadv64, w_preadv);

WRAPPER ssize_t w_pwritev(int fd, const struct iovec *iov, int cnt, off_t off)
{
	SERVE(fd, off < 0 ? SFS_PASS : sfs_writev(fd, iov, cnt, off, 0), REAL(pwritev)(fd, iov, cnt, off));
}
EXPORT(pwritev, w_pwritev);
EXPORT(pwritev64, w_pwritev);

/* Offset -1 is the file offset here. */
WRAPPER ssize_t w_preadv2(int fd, const struct iovec *iov, int cnt, off_t off, int flags)
{
	SERVE(fd, off < -1 ? SFS_PASS : sfs_readv(fd, iov, cnt, off, flags), REAL(preadv2)(fd, iov, cnt, off, flags));
}
EXPORT(preadv2, w_preadv2);
EXPORT(preadv64v2, w_preadv2);

WRAPPER ssize_t w_pwritev2(int fd, const struct iovec *iov, int cnt, off_t off, int flags)
{
	SERVE(fd, off < -1 ? SFS_PASS : sfs_writev(fd, iov, cnt, off, flags), REAL(pwritev2)(fd, iov, cnt, off, flags));
}
EXPORT(pwritev2, w_pwritev2);
EXPORT(pwritev64v2, w_pwritev2);

/* Fortified forms: the C library ends a program that would overrun its buffer. */
WRAPPER ssize_t w_read_chk(int fd, void *buf, size_t n, size_t room)
{
	if (unlikely(n > room))
		return REAL_AS(ssize_t(*)(int, void *, size_t, size_t), __read_chk)(fd, buf, n, room);
	return w_read(fd, buf, n);
}
EXPORT(__read_chk, w_read_chk);

WRAPPER ssize_t w_pread_chk(int fd, void *buf, size_t n, off_t off, size_t room)
{
	if (unlikely(n > room))
		return REAL_AS(ssize_t(*)(int, void *, size_t, off_t, size_t), __pread_chk)(fd, buf, n, off, room);
	return w_pread(fd, buf, n, off);
}
EXPORT(__pread_chk, w_pread_chk);
EXPORT(__pread64_chk, w_pread_chk);

WRAPPER off_t w_lseek(int fd, off_t off, int whence)
{
	SERVE(fd, sfs_lseek(fd, off, whence), REAL(lseek)(fd, off, whence));
}
EXPORT(lseek, w_lseek);
EXPORT(lseek64, w_lseek);
EXPORT(__lseek, w_lseek);
