/* SPDX-License-Identifier: Apache-2.0 */
/* Open file descriptions: from their first descriptor to the close of the last one. */
#include "calls/attach.h"

#include <sys/mman.h>

#include "base/sys.h"
#include "calls/calls.h"
#include "files/kernel_offset.h"
#include "files/leased.h"
#include "io/io.h"
#include "lease/ask.h"

#define SLAB_BYTES (64ul << 10)
#define LINGER_MAX 128u

/* The description behind fd; NULL for everything that is not ours. Notices a fork that nobody announced. */
struct sfs_ofd *sfs_ofd_of(int fd)
{
	struct sfs_ofd *ofd;

	sfs_check_fork();
	if ((unsigned)fd >= (unsigned)sfs_fds_len)
		return NULL;
	while ((ofd = load_acquire(&sfs_fds[fd])) <= SFS_PRIVATE) {
		/* Another thread may be changing it, again and again: it is no less ours meanwhile. */
		if (ofd == SFS_FOREIGN || ofd == SFS_PRIVATE || !sfs_ours_unknown(fd))
			return NULL;
	}
	/* In the child of a fork, before any lock is held. */
	if (unlikely(sfs.unmet))
		sfs_volume_await(ofd->inode->vol, fd);
	return ofd;
}

/*
 * A free one, its lock held. A call may still be at work with one that was closed under it, and would leave its offset there: that one is
 * passed over.
 */
static struct sfs_ofd *ofd_free_locked(void)
{
	for (struct sfs_ofd **p = &sfs_files.free_ofds; *p; p = &(*p)->next_free) {
		struct sfs_ofd *ofd = *p;

		if (sfs_mutex_trylock(&ofd->lock)) {
			*p = ofd->next_free;
			return ofd;
		}
	}
	return NULL;
}

/* One whose memory has not been touched before. */
static struct sfs_ofd *ofd_new_locked(void)
{
	struct sfs_ofd *ofd;

	if (!sfs_files.new_ofds || sfs_files.new_ofds == sfs_files.new_ofds_end) {
		ofd = sys_mmap(NULL, SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (sys_is_err(ofd))
			return NULL;
		/* In this order: another thread may fork, and the child goes on with what it finds. */
		store_release(&sfs_files.new_ofds, (struct sfs_ofd *)NULL);
		store_release(&sfs_files.new_ofds_end, ofd + SLAB_BYTES / sizeof(*ofd));
		store_release(&sfs_files.new_ofds, ofd);
	}
	ofd = sfs_files.new_ofds;
	store_release(&sfs_files.new_ofds, ofd + 1);
	/* On the path of every read and write: sfs_op_begin() knows who is inside. */
	ofd->lock.brief = true;
	sfs_mutex_lock(&ofd->lock);
	return ofd;
}

struct sfs_ofd *sfs_ofd_new_locked(struct sfs_inode *in, int flags)
{
	struct sfs_ofd *ofd = ofd_free_locked();

	if (!ofd)
		ofd = ofd_new_locked();
	if (!ofd)
		return NULL;
	in->opens++;
	ofd->inode = in;
	ofd->refs = 1;
	ofd->number++;
	ofd->flags = flags;
	ofd->kernel_off = false;
	sfs_offset_lazy(ofd, false);
	ofd->uncounted = UNCOUNTED_NO;
	ofd->off = 0;
	ofd->pushes = 0;
	sfs_mutex_unlock(&ofd->lock);
	return ofd;
}

/* Stores in place have changed the file, and after the last close nobody may come by to say so. */
static void times(struct sfs_inode *in)
{
	sfs_inode_lock(in);
	sfs_inode_times(in);
	sfs_inode_unlock(in);
}

/*
 * Nothing to relink at the last close: it has been done, or nobody without the library looks, and the inode stays for the service thread
 * to do it.
 */
static bool rests(const struct sfs_inode *in)
{
	if (!in->vol->dax)
		return false;
	if (in->staging.count == 0 && !in->touched && in->counted.relinked != RELINKED_KEPT &&
	    sfs_records_durable(&in->counted))
		return true;
	return !sfs_outside(in->vol, in->ino) && sfs_inode_parks(in);
}

/* The file stays open here, and the kernel serves it: sfs_files.lock held. With a grant ours is narrowed when that goes. */
static bool narrows(const struct sfs_inode *in, const struct sfs_ofd *ofd)
{
	return sfs_may_write(ofd->flags) && in->opens > 0 && in->fd >= 0 && in->writable &&
	       sfs_grant_deleg(&in->grant) != SFS_DELEG_EXCLUSIVE;
}

static void narrow_own(struct sfs_inode *in)
{
	sfs_inode_lock(in);
	if (sfs_grant_deleg(&in->grant) != SFS_DELEG_EXCLUSIVE && !sfs_inode_pending(in))
		sfs_inode_narrow(in);
	sfs_inode_unlock(in);
}

/*
 * Drop one descriptor's hold on its description; with the last one relink what is staged, so that a closed file is what
 * everybody sees. Returns what close(2) should report.
 */
int sfs_ofd_put(struct sfs_ofd *ofd)
{
	struct sfs_inode *in = ofd->inode;
	bool last, gone = false, many = false, publish = false, touched = false, narrow = false;
	uint64_t *op;
	int r = 0;

	sfs_mutex_lock(&sfs_files.lock);
	last = --ofd->refs == 0;
	if (last) {
		ofd->next_free = sfs_files.free_ofds;
		sfs_files.free_ofds = ofd;
		if (--in->opens == 0)
			store_release(&in->unsure, true);
		/* Records that go on counting keep the inode, and its descriptor: not too many. */
		many = load_acquire(&in->vol->live) > LINGER_MAX;
		publish = sfs_inode_pending(in) && (many || !rests(in));
		touched = in->touched && in->staging.count == 0;
		narrow = narrows(in, ofd);
		if (!publish && !touched && !narrow)
			gone = sfs_inode_put_locked(in);
	}
	sfs_mutex_unlock(&sfs_files.lock);
	if (gone)
		sfs_inode_end(in);
	if (!publish && !touched && !narrow)
		return 0;
	/* In a signal handler in the middle of a call on this file, which has the lock, it is left to the service thread. */
	if (likely(sfs_op_begin(in, &op))) {
		if (publish)
			r = sfs_flush_unlocked(in, many ? SFS_RETIRE : SFS_PUBLISH);
		else
			times(in);
		if (narrow)
			narrow_own(in);
		sfs_op_end(op);
	}
	sfs_inode_put(in);
	return r;
}
