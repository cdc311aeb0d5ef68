/* SPDX-License-Identifier: Apache-2.0 */
/* The file as the kernel has it: its window, and reads below what is staged. */
#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "io/io.h"

/* inode.lock held by sfs_inode_lock(). */
int sfs_io_prepare(struct sfs_ofd *ofd, struct sfs_inode *in, int fd)
{
	int r = sfs_inode_ready(in, fd, ofd->flags);

	if (r < 0)
		return r;
	if (sfs_inode_served(in)) {
		if (sfs_window_due(&in->window, in->ksize)) {
			if (sfs_window_short(&in->window, in->ksize))
				sfs_inode_unmap(in);
			sfs_window_map(&in->window, in->vol->dax, in->writable, in->fd, in->ksize);
		}
		sfs_window_dense(&in->window, in->fd, in->ksize);
		if (in->vol->dax)
			sfs_window_judge(&in->window, in->fd, in->ksize);
	}
	return 0;
}

/*
 * n, or fewer: what comes behind those bytes can't be read, or stored. An error where that is the first one. -ESTALE, if that is asked for: somebody
 * has cut the file off without our knowing it, and the kernel can be asked how long it is now.
 */
static ssize_t by_kernel(struct sfs_inode *in, uint8_t *dst, uint64_t off, size_t n, bool stale)
{
	size_t have = off < in->ksize ? (in->ksize - off < n ? (size_t)(in->ksize - off) : n) : 0;

	for (size_t done = 0; done < have;) {
		ssize_t r = sys_pread(in->fd, dst + done, have - done, (off_t)(off + done));

		if (r < 0 && r != -EINTR)
			return done ? (ssize_t)done : r;
		if (r == 0 && stale && __atomic_load_n(&in->staging.count, __ATOMIC_RELAXED) == 0)
			return -ESTALE;
		if (r == 0)
			have = done;
		if (r > 0)
			done += (size_t)r;
	}
	memset(dst + have, 0, n - have);
	return (ssize_t)n;
}

int sfs_read_kernel(struct sfs_inode *in, uint8_t *dst, uint64_t off, size_t n)
{
	const ssize_t r = by_kernel(in, dst, off, n, false);

	return r < 0 ? (int)r : (size_t)r < n ? -EIO : 0;
}

/*
 * A small file that is read once, as most are, is read by the kernel: a fault for each of its pages costs more. The counter is only
 * about right where several threads read.
 */
static bool cold(struct sfs_inode *in, size_t n)
{
	if (likely(sfs_read_warm(in, n)))
		return false;
	in->window.cold += n;
	return true;
}

ssize_t sfs_read_base(struct sfs_inode *in, uint8_t *dst, uint64_t off, size_t n)
{
	const size_t have = off < in->ksize ? (in->ksize - off < n ? (size_t)(in->ksize - off) : n) : 0;

	if (have > 0 && (!(in->window.dense && in->window.base && off + have <= in->window.len) || cold(in, have)))
		return by_kernel(in, dst, off, n, true);
	memcpy(dst, in->window.base + off, have);
	memset(dst + have, 0, n - have);
	return (ssize_t)n;
}
