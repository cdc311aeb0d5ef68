/* SPDX-License-Identifier: Apache-2.0 */
#include "io/offset.h"

#include <errno.h>

#include "base/sys.h"

/* The kernel's offset of a->fd is the description's: for as long as the inode's lock is held (sfs_kernel_offset_drain()). */
static bool still(const struct sfs_attempt *a)
{
	return likely(sfs_fd_still(a->fd, a->ofd, a->in));
}

off_t sfs_offset_now(const struct sfs_attempt *a)
{
	const struct sfs_ofd *ofd = a->ofd;
	off_t off;

	if (!load_acquire(&ofd->kernel_off))
		return ofd->off;
	off = still(a) ? sys_lseek(a->fd, 0, SEEK_CUR) : SFS_GONE;
	return load_acquire(&ofd->kernel_off) ? off : ofd->off; /* made ours meanwhile, and moved perhaps */
}

void sfs_offset_set(const struct sfs_attempt *a, off_t to)
{
	struct sfs_ofd *ofd = a->ofd;

	sfs_mutex_take(&ofd->lock);
	if (ofd->number != a->number)
		; /* closed meanwhile, and another description now */
	else if (!ofd->kernel_off)
		ofd->off = to;
	else if (still(a))
		sys_lseek(a->fd, to, SEEK_SET);
	sfs_mutex_drop(&ofd->lock);
}

off_t sfs_offset_adopt(const struct sfs_attempt *a)
{
	struct sfs_ofd *ofd = a->ofd;
	off_t off;

	sfs_mutex_take(&ofd->lock);
	off = still(a) ? sys_lseek(a->fd, 0, SEEK_CUR) : -EBADF;
	if (ofd->number == a->number && !ofd->kernel_off && off >= 0)
		ofd->off = off;
	sfs_mutex_drop(&ofd->lock);
	return off;
}

int sfs_attempt_offset(struct sfs_attempt *a)
{
	struct sfs_ofd *ofd = a->ofd;

	/* Where an append goes only its end tells. */
	if (!a->at_offset || a->append || a->reserved)
		return 0;
	if (!sfs_ofd_shared(ofd)) {
		a->pos = sfs_offset_now(a);
		return a->pos < 0 ? (int)a->pos : 0;
	}
	a->pos = still(a) ? sys_lseek(a->fd, (off_t)a->n, SEEK_CUR) : SFS_GONE;
	if (a->pos < 0)
		return (int)a->pos;
	a->reserved = (off_t)a->n;
	a->pos -= a->reserved;
	return 0;
}

void sfs_attempt_reserve(struct sfs_attempt *a)
{
	if (!a->at_offset || a->append || a->reserved)
		return;
	sfs_offset_set(a, a->pos + (off_t)a->n);
	a->reserved = (off_t)a->n;
}

void sfs_attempt_settle(struct sfs_attempt *a, ssize_t r)
{
	const off_t less = a->reserved ? a->reserved - (r > 0 ? r : 0) : 0;
	struct sfs_ofd *ofd = a->ofd;
	uint64_t *op;

	a->reserved = 0;
	if (likely(less == 0) || !sfs_op_begin(a->in, &op))
		return;
	sfs_mutex_take(&ofd->lock);
	if (ofd->number != a->number)
		; /* closed meanwhile, and another description now */
	else if (!ofd->kernel_off)
		ofd->off -= less;
	else if (still(a))
		sys_lseek(a->fd, -less, SEEK_CUR);
	sfs_mutex_drop(&ofd->lock);
	sfs_op_end(op);
}
