/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel moves data from one descriptor to another: both are made true, and either may be ours. */
#include "preload.h"

#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <unistd.h>

static int both_true(int a, int b)
{
	int err = sfs_ours(a) ? sfs_make_true(a, false) : 0;

	if (err >= 0 && sfs_ours(b))
		err = sfs_make_true(b, false);
	return err < 0 ? err : 0;
}

static void both_changed(int a, int b)
{
	if (sfs_ours(a))
		sfs_changed(a);
	if (sfs_ours(b))
		sfs_changed(b);
}

#define BOTH_TRUE_THEN(a, b, call)                                                                                             \
	do {                                                                                                                   \
		long r_;                                                                                                       \
                                                                                                                               \
		if (likely(!sfs_ours(a) && !sfs_ours(b)))                                                                      \
			return call;                                                                                           \
		r_ = both_true(a, b);                                                                                          \
		if (r_ < 0)                                                                                                    \
			return (__typeof__(call))pl_ret(r_);                                                                   \
		r_ = (long)(call);                                                                                             \
		both_changed(a, b);                                                                                            \
		return (__typeof__(call))r_;                                                                                   \
	} while (0)

WRAPPER ssize_t w_copy_file_range(int in, off_t *in_off, int out, off_t *out_off, size_t n, unsigned flags)
{
	BOTH_TRUE_THEN(in, out, REAL(copy_file_range)(in, in_off, out, out_off, n, flags));
}
EXPORT(copy_file_range, w_copy_file_range);

WRAPPER ssize_t w_sendfile(int out, int in, off_t *off, size_t n)
{
	BOTH_TRUE_THEN(in, out, REAL(sendfile)(out, in, off, n));
}
EXPORT(sendfile, w_sendfile);
EXPORT(sendfile64, w_sendfile);

WRAPPER ssize_t w_splice(int in, off_t *in_off, int out, off_t *out_off, size_t n, unsigned flags)
{
	BOTH_TRUE_THEN(in, out, REAL(splice)(in, in_off, out, out_off, n, flags));
}
EXPORT(splice, w_splice);

/* A second descriptor that an ioctl names, or -1. */
static int other_fd(unsigned request, const void *arg)
{
	switch (request) {
	case FICLONE:
		return (int)(long)arg;
	case FICLONERANGE:
		return arg ? (int)((const struct file_clone_range *)arg)->src_fd : -1;
	default:
		return -1;
	}
}

/* Requests on an open file that concern the descriptor or a terminal, not the data; isatty() is one of them. */
static bool harmless(unsigned request)
{
	return request == TCGETS || request == TIOCGWINSZ || request == TIOCGPGRP || request == FIOCLEX || request == FIONCLEX;
}

/* FIDEDUPERANGE, EXT4_IOC_MOVE_EXT and XFS_IOC_EXCHANGE_RANGE name more files: they are rare, so everything is made true for them. */
static bool names_more_files(unsigned request)
{
	return request == FIDEDUPERANGE || (_IOC_TYPE(request) == 'f' && _IOC_NR(request) == 15) ||
	       (_IOC_TYPE(request) == 'X' && _IOC_NR(request) == 129);
}

static int ioctl_prepare(int fd, unsigned request, const void *arg, int *other)
{
	*other = -1;
	if (names_more_files(request)) {
		sfs_all_true();
		return 0;
	}
	*other = other_fd(request, arg);
	return both_true(fd, *other);
}

WRAPPER int w_ioctl(int fd, unsigned long request, void *arg)
{
	int other, r;

	if (likely(!sfs_active()) || harmless((unsigned)request))
		return REAL_AS(int (*)(int, unsigned long, ...), ioctl)(fd, request, arg);
	r = ioctl_prepare(fd, (unsigned)request, arg, &other);
	if (unlikely(r < 0))
		return (int)pl_ret(r);
	r = REAL_AS(int (*)(int, unsigned long, ...), ioctl)(fd, request, arg);
	both_changed(fd, other);
	return r;
}
EXPORT(ioctl, w_ioctl);

long pl_ioctl_raw(int fd, unsigned long request, void *arg)
{
	int other;
	long r = harmless((unsigned)request) ? 0 : ioctl_prepare(fd, (unsigned)request, arg, &other);

	if (r < 0)
		return r;
	r = sys_ioctl(fd, request, arg);
	if (!harmless((unsigned)request))
		both_changed(fd, other);
	return r;
}
