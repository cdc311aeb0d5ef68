/* SPDX-License-Identifier: Apache-2.0 */
/* preadv2(2) and pwritev2(2) also where there are none: Linux before 4.6, and processors that are emulated in user mode. */
#include "base/sys.h"

#include <errno.h>

ssize_t sys_preadv2(int fd, const struct iovec *iov, int cnt, off_t off, int flags)
{
	ssize_t r = sys_call6(SYS_preadv2, fd, (long)iov, cnt, off, 0, flags);

	if (r != -ENOSYS)
		return r;
	if (flags)
		return -EOPNOTSUPP;
	return off < 0 ? sys_call3(SYS_readv, fd, (long)iov, cnt) : sys_call4(SYS_preadv, fd, (long)iov, cnt, off);
}

ssize_t sys_pwritev2(int fd, const struct iovec *iov, int cnt, off_t off, int flags)
{
	ssize_t r = sys_call6(SYS_pwritev2, fd, (long)iov, cnt, off, 0, flags);
	int err;

	if (r != -ENOSYS)
		return r;
	if (flags & ~(RWF_DSYNC | RWF_SYNC))
		return -EOPNOTSUPP;
	r = off < 0 ? sys_call3(SYS_writev, fd, (long)iov, cnt) : sys_call4(SYS_pwritev, fd, (long)iov, cnt, off);
	if (r <= 0 || !flags)
		return r;
	err = flags & RWF_SYNC ? sys_fsync(fd) : sys_fdatasync(fd);
	return err < 0 ? err : r;
}
