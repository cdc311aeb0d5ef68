/* SPDX-License-Identifier: Apache-2.0 */
/* Walking an iovec. */
#ifndef SFS_IOV_H
#define SFS_IOV_H

#include <string.h>
#include <sys/uio.h>

#include "base/arch.h"

#define SFS_IO_MAX 0x7ffff000ul /* the kernel's limit of one call */

/* Bytes for a file, of several: struct splitfs_range. */
struct sfs_range {
	int fd;
	off_t off;
	const void *buf;
	size_t len;
};

struct sfs_cursor {
	const struct iovec *iov;
	size_t at; /* bytes of *iov that are done */
};

/*
 * The sum of the lengths, cut at the kernel's limit and before the first piece that no program has; -EINVAL (-22) where the kernel says so,
 * -EFAULT (-14) where it does, or where there is nothing before such a piece. Another bad address is met when it is copied.
 */
static inline ssize_t sfs_iov_total(const struct iovec *iov, int cnt)
{
	size_t total = 0, good = 0;
	bool cut = false;

	if (cnt < 0 || cnt > 1024)
		return -22;
	for (int i = 0; i < cnt; i++) {
		if ((ssize_t)iov[i].iov_len < 0)
			return -22;
		total += iov[i].iov_len;
		if ((ssize_t)total < 0)
			return -22;
		if (iov[i].iov_len > 0 && sfs_user_kernel(iov[i].iov_base, iov[i].iov_len))
			return -14;
		cut = cut || sfs_user_never(iov[i].iov_base, iov[i].iov_len);
		good = cut ? good : total;
	}
	if (cut && good == 0)
		return -14;
	return (ssize_t)(good > SFS_IO_MAX ? SFS_IO_MAX : good);
}

/* The next contiguous piece of at most n bytes; its length in *got. Advances. */
static inline void *sfs_cursor_next(struct sfs_cursor *c, size_t n, size_t *got)
{
	void *p;

	while (c->at == c->iov->iov_len) {
		c->iov++;
		c->at = 0;
	}
	p = (char *)c->iov->iov_base + c->at;
	*got = c->iov->iov_len - c->at < n ? c->iov->iov_len - c->at : n;
	c->at += *got;
	return p;
}

#endif
