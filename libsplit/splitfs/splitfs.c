/* SPDX-License-Identifier: Apache-2.0 */
/* libsplitfs.so: the calls of splitfs.h by the core of libsplit.so, where the process has that, or by copying. */
#include "splitfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "copied_buffers.h"
#include "copies.h"
#include "splitfs_core.h"

/* libsplit.so is preloaded: the dynamic linker has found its table before ours is asked for. */
extern const struct splitfs_core splitfs_core __attribute__((weak));

#define EXPORT __attribute__((visibility("default")))

static atomic_uint flags_now;

/* The core, if it has so many entries. */
static const struct splitfs_core *core_with(uint32_t entries)
{
	return &splitfs_core && splitfs_core.entries >= entries ? &splitfs_core : NULL;
}

static const struct splitfs_core *core(void)
{
	return core_with(SPLITFS_CORE_PEEK);
}

static bool copies_wanted(void)
{
	return atomic_load(&flags_now) & SPLITFS_COPY;
}

EXPORT unsigned splitfs_flags(unsigned flags)
{
	return atomic_exchange(&flags_now, flags & SPLITFS_COPY);
}

/* What is wrong with the arguments, whoever would serve the call; 0: nothing. */
static int wrong(int fd, off_t off, size_t len, const size_t *got)
{
	int flags;

	if (off < 0 || len > SSIZE_MAX || !got)
		return EINVAL;
	flags = fcntl(fd, F_GETFL);
	return flags < 0 || (flags & O_ACCMODE) == O_WRONLY || (flags & O_PATH) ? EBADF : 0;
}

EXPORT const void *splitfs_peek(int fd, off_t off, size_t len, size_t *got)
{
	const void *p = NULL;
	int r = -ENOTSUP;

	if (core() && off >= 0 && len <= SSIZE_MAX && got)
		r = core()->peek(fd, off, len, &p, got);
	if (r == 0)
		return p ? p : splitfs_copy_empty();
	if (r == -ENOTSUP) {
		const int err = wrong(fd, off, len, got);

		if (err)
			r = -err;
		else if (copies_wanted())
			r = SPLITFS_CORE_COPY;
	}
	if (r == SPLITFS_CORE_COPY)
		return splitfs_copy_peek(fd, off, len, got);
	errno = -r;
	return NULL;
}

EXPORT int splitfs_peekv(int fd, off_t off, size_t len, struct iovec *iov, int max, size_t *got)
{
	const void *p;

	if (max < 1 || !iov) {
		errno = EINVAL;
		return -1;
	}
	p = splitfs_peek(fd, off, len, got);
	if (!p)
		return -1;
	if (*got == 0) {
		splitfs_unpeek(p);
		return 0;
	}
	/* A snapshot is one piece in every core that there is; programs count on no more than `max`. */
	iov->iov_base = (void *)p;
	iov->iov_len = *got;
	return 1;
}

EXPORT int splitfs_unpeek(const void *p)
{
	const int r = core() && p ? core()->unpeek(p) : -EINVAL;

	if (r == 0)
		return 0;
	if (r != -EINVAL) {
		errno = -r;
		return -1;
	}
	return splitfs_copy_unpeek(p);
}

/* ---- pools, buffers */

/* -1 with errno where r is an error. */
static long result(long r)
{
	if (r >= 0)
		return r;
	errno = (int)-r;
	return -1;
}

EXPORT int splitfs_pool_create(int dirfd, size_t size)
{
	int r = -ENOTSUP;

	if (core_with(SPLITFS_CORE_PATCH) && size > 0 && size <= SSIZE_MAX)
		r = splitfs_core.pool_create(dirfd, size);
	else if (fcntl(dirfd, F_GETFD) < 0)
		r = -EBADF;
	else if (size == 0 || size > SSIZE_MAX)
		r = -EINVAL;
	return (int)result(r == -ENOTSUP && copies_wanted() ? splitfs_copied_pool(size) : r);
}

EXPORT int splitfs_pool_destroy(int pool)
{
	if (pool >= SPLITFS_CORE_POOLS_END)
		return (int)result(splitfs_copied_pool_end(pool));
	return (int)result(core_with(SPLITFS_CORE_PATCH) ? splitfs_core.pool_destroy(pool) : -EINVAL);
}

EXPORT void *splitfs_alloc(int pool, off_t off, size_t len)
{
	void *p = NULL;
	int r = -EINVAL;

	if (off >= 0 && len > 0 && len <= SSIZE_MAX) {
		if (pool >= SPLITFS_CORE_POOLS_END)
			r = splitfs_copied_alloc(pool, off, len, &p);
		else if (core_with(SPLITFS_CORE_PATCH))
			r = splitfs_core.alloc(pool, off, len, &p);
	}
	return result(r) < 0 ? NULL : p;
}

EXPORT int splitfs_free(void *buf)
{
	const int r = core_with(SPLITFS_CORE_PATCH) ? splitfs_core.free(buf) : -EINVAL;

	return (int)result(r == -EINVAL ? splitfs_copied_free(buf) : r);
}

EXPORT ssize_t splitfs_patch(int fd, void *buf, size_t len, off_t off)
{
	const ssize_t r = core_with(SPLITFS_CORE_PATCH) ? splitfs_core.patch(fd, buf, len, off) : -EINVAL;

	return result(r == -EINVAL ? splitfs_copied_patch(fd, buf, len, off) : r);
}

EXPORT int splitfs_write_atomic(const struct splitfs_range *ranges, int n)
{
	if (n < 1 || !ranges)
		return (int)result(-EINVAL);
	return (int)result(core_with(SPLITFS_CORE_ATOMIC) ? splitfs_core.write_atomic(ranges, n) : -ENOTSUP);
}

EXPORT int splitfs_swap(int fd1, off_t off1, int fd2, off_t off2, size_t len)
{
	return (int)result(core_with(SPLITFS_CORE_SWAP) ? splitfs_core.swap(fd1, off1, fd2, off2, len) : -ENOTSUP);
}
