/* SPDX-License-Identifier: Apache-2.0 */
/* A write that the kernel makes, because the file or this part of it is not ours to serve. */
#include <errno.h>

#include "base/sys.h"
#include "files/unheld.h"
#include "io/io.h"
#include "io/offset.h"
#include "pm/pm.h"

/*
 * What is staged is older, so it is relinked first. in->by_kernel says that a write is under way: nothing is staged on top of it.
 */
static int before_kernel(struct sfs_attempt *a)
{
	struct sfs_inode *in = a->in;
	int r = sfs_fd_still(a->fd, a->ofd, in) ? sfs_inode_ready(in, a->fd, a->ofd->flags) : SFS_GONE;

	if (r == 0)
		r = sfs_untold_change(in);
	if (r == 0 && !a->append)
		r = sfs_attempt_offset(a);
	if (r == 0 && sfs_inode_pending(in))
		r = sfs_flush(in, SFS_RETIRE);
	if (r == 0)
		r = sfs_pins_save(&in->pins, a->append ? in->size : (uint64_t)a->pos, UINT64_MAX);
	if (r == 0) {
		sfs_attempt_reserve(a);
		in->by_kernel++;
		sfs_flights_void(in);
	}
	return r;
}

/* Does it have to be forced, to keep what the mode promises? After sfs_attempt_reserve(). */
static bool forced(const struct sfs_attempt *a)
{
	const struct sfs_inode *in = a->in;

	if (in->vol->mode != SFS_POSIX)
		return sfs_volume_durable(in->vol);
	if (!in->vol->dax || a->append)
		return false;
	if (sfs_inode_served(in))
		return (uint64_t)a->pos + a->n <= in->size;
	return sfs_overwrites(a->fd, a->pos, a->n);
}

/*
 * What the caller gave us, where nothing of it is written; otherwise what follows in one piece, for who calls to go on behind. *asked: bytes, at
 * least those of this operation or of that piece.
 */
static ssize_t make(const struct sfs_attempt *a, int flags, size_t *asked)
{
	/* An append at the file offset: the kernel makes those of several threads one after another, and its offset stands behind the last one. */
	const off_t pos = !a->append ? a->pos : a->at_offset ? -1 : 0;
	struct sfs_cursor c = sfs_attempt_bytes(a);
	struct iovec one = {a->mem, a->n};

	*asked = a->n;
	if (!a->mem && a->start == 0 && !a->cut)
		return sys_pwritev2(a->fd, a->iov, a->cnt, pos, flags);
	if (!a->mem)
		one.iov_base = sfs_cursor_next(&c, a->n, &one.iov_len);
	*asked = one.iov_len;
	return sys_pwritev2(a->fd, &one, 1, pos, flags);
}

/* r bytes at the end, as far as can be told from here: others append, too. */
static void appended(struct sfs_attempt *a, ssize_t r)
{
	struct stat st;

	if (a->at_offset)
		a->at = sfs_offset_adopt(a) - r;
	else if (sys_fstat(a->fd, &st) == 0 && st.st_size >= r)
		a->at = st.st_size - r;
}

ssize_t sfs_attempt_kernel(struct sfs_attempt *a)
{
	struct sfs_inode *in = a->in;
	int flags = a->flags;
	size_t asked;
	uint64_t *op;
	ssize_t r;

	if (unlikely(!sfs_op_begin(in, &op)))
		return -EDEADLK;
	sfs_inode_lock(in);
	r = before_kernel(a);
	if (r == 0 && forced(a))
		flags |= RWF_DSYNC;
	sfs_inode_unlock(in);
	if (r < 0) {
		sfs_op_end(op);
		return r;
	}
	r = make(a, flags, &asked);
	/* To persistent memory the kernel stores past the caches, and does not wait: in posix an overwrite survives when it returns. */
	if (in->vol->dax && !(flags & RWF_DSYNC))
		pm_fence();
	a->at = a->pos;
	if (a->append && r > 0)
		appended(a, r);
	sfs_inode_lock(in);
	in->by_kernel--;
	in->kdirty = in->kdirty || !(flags & RWF_DSYNC);
	count(in->vol, passthrough_ops, 1);
	if (r > 0 && sfs_inode_served(in))
		sfs_inode_resize(in);
	sfs_inode_unlock(in);
	sfs_op_end(op);
	a->last = r > 0 ? r : 0;
	a->by_kernel += (size_t)a->last;
	a->cut = a->cut || (r >= 0 && (size_t)r < asked);
	return r;
}
