/* SPDX-License-Identifier: Apache-2.0 */
/* What has to be so before a write is planned. */
#include <errno.h>

#include "files/privileges.h"
#include "io/attempt.h"
#include "io/offset.h"

uint64_t sfs_attempt_about(const struct sfs_attempt *a)
{
	if (a->append)
		return a->in->size;
	return (uint64_t)(a->at_offset && !a->reserved ? sfs_offset_now(a) : a->pos);
}

bool sfs_attempt_ready(const struct sfs_attempt *a)
{
	const struct sfs_inode *in = a->in;

	return sfs_io_prepared(in) && in->writable && !in->privileged && in->grant.state != GRANT_ONCE &&
	       !((a->append || sfs_ofd_shared(a->ofd)) && in->staging.count == 0) && !sfs_far_apart(in, sfs_attempt_about(a));
}

int sfs_attempt_make_ready(struct sfs_attempt *a)
{
	struct sfs_inode *in = a->in;
	int r = sfs_io_prepare(a->ofd, in, a->fd);

	if (r < 0)
		return r;
	if ((in->vol->mode == SFS_STRICT || a->alone) && sfs_grant_deleg(&in->grant) == SFS_DELEG_SHARED &&
	    !sfs_by_kernel(in)) {
		/* Atomic writes need the file to ourselves; the others get it back when they ask. */
		if (in->vol->agent.state != VOL_READY)
			return sfs_volume_refuses(in->vol);
		/* Asking gives up what we share, and another process may come first. */
		if (in->by_kernel > 0) {
			sfs_kernel_calls_end(in);
			return SFS_BUSY;
		}
		r = sfs_inode_acquire(in, in->fd, SFS_ACQ_EXCLUSIVE);
		if (r == SFS_TURN)
			return r;
		if (r < 0 || sfs_grant_deleg(&in->grant) != SFS_DELEG_EXCLUSIVE)
			return r == -ENOSPC ? r : -EIO;
		sfs_inode_reload(in);
		sfs_io_prepare(a->ofd, in, a->fd);
	}
	/* A process without the library may share the description and have written through it, or have appended. */
	if ((a->append || sfs_ofd_shared(a->ofd)) && in->staging.count == 0 && sfs_inode_served(in)) {
		sfs_inode_resize(in);
		sfs_io_prepare(a->ofd, in, a->fd);
	}
	if (unlikely(in->privileged))
		sfs_privileges_end(in);
	return sfs_inode_served(in) && sfs_far_apart(in, sfs_attempt_about(a)) ? sfs_flush(in, SFS_PUBLISH) : 0;
}

int sfs_attempt_prepare(struct sfs_ofd *ofd, struct sfs_inode *in, int fd, uint64_t off, bool alone)
{
	struct sfs_attempt a;
	uint64_t *op;
	int r = SFS_GONE;

	sfs_attempt_begin(&a, ofd, fd, NULL, 0, 0);
	a.in = in;
	a.pos = (off_t)off;
	a.alone = alone;
	if (unlikely(!sfs_op_begin(in, &op)))
		return -EDEADLK;
	sfs_inode_lock(in);
	if (likely(sfs_fd_still(fd, ofd, in)))
		r = sfs_attempt_make_ready(&a);
	if (r == 0)
		r = sfs_io_prepare(ofd, in, fd); /* privileges that have been ended leave a question about holes */
	if (r == 0 && sfs_by_kernel(in))
		r = -ENOTSUP;
	else if (r == 0 && !sfs_inode_served(in))
		r = -EIO;
	sfs_io_leave(in, true, op);
	return r;
}
