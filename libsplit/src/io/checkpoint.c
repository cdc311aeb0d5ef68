/* SPDX-License-Identifier: Apache-2.0 */
/* The log is full: everything is relinked, and the log cleared. */
#include "io/io.h"

#include <errno.h>

#include "base/sys.h"

struct walk {
	bool wait;
	int err;
};

static bool take(struct sfs_inode *in, const struct walk *w)
{
	if (!w->wait)
		return sfs_inode_lock_soon(in);
	sfs_inode_lock(in);
	return true;
}

/* From here on the inode needs new slots for a record, and there are none. */
static int close_one(struct sfs_inode *in, void *arg)
{
	struct walk *w = arg;

	if (!take(in, w)) {
		w->err = -EBUSY;
		return 1;
	}
	sfs_log_drop_slots(in);
	sfs_inode_unlock(in);
	return 0;
}

/* posix on persistent memory: what is relinked next is to survive a power loss as a whole, see flush.c. */
static int commit_all(struct sfs_volume *vol)
{
	const int r = (int)sys_call1(SYS_syncfs, vol->log.fd); /* see sfs_commit_base() */

	if (r < 0)
		return r;
	sfs_log_commit(&vol->log, vol->log.closed_at, 0, 0); /* every flush fences before it relinks */
	return 0;
}

static int relink_one(struct sfs_inode *in, void *arg)
{
	struct walk *w = arg;
	int r;

	if (!take(in, w)) {
		w->err = -EBUSY;
		return 1;
	}
	if (sfs_records_any(&in->counted) && in->vol->dax)
		sfs_records_set(&in->counted, RECORDS_DURABLE);
	r = sfs_inode_pending(in) ? sfs_flush(in, SFS_PUBLISH) : 0;
	sfs_inode_unlock(in);
	if (r < 0 && r != -EAGAIN)
		w->err = r;
	return 0;
}

/*
 * The epoch has changed: nothing counts. An inode that is busy is retired by its next flush instead; it can't have written a
 * record of the new epoch, because the log is still closed.
 */
static int retire_one(struct sfs_inode *in, void *arg)
{
	if (!take(in, arg))
		return 0;
	if (in->staging.count == 0)
		sfs_stage_retired(in);
	sfs_inode_unlock(in);
	return 0;
}

/*
 * The log is full. Closing it (tail = slots) makes every further reservation fail, so when each inode's lock has been held
 * once and its data relinked, nothing unrelinked is named by a record and the epoch may change. Until it has, an inode whose
 * records are still valid (live) takes no store in place: replaying them would undo it. Concurrent callers wait and find
 * the work done.
 *
 * Ordering on PM: relinks durable (syncfs), then the epoch. Nothing is stored between them: every flush has fenced.
 */
int sfs_checkpoint(struct sfs_volume *vol, bool wait)
{
	const uint64_t seen = __atomic_load_n(&vol->log.epoch, __ATOMIC_ACQUIRE);
	struct walk w = {wait, 0};

	if (wait)
		sfs_mutex_lock(&vol->log.checkpoint);
	else if (!sfs_mutex_trylock(&vol->log.checkpoint))
		return -EBUSY;
	if (vol->log.epoch != seen || vol->agent.state != VOL_READY) {
		sfs_mutex_unlock(&vol->log.checkpoint);
		return 0;
	}
	sfs_agent_grow(vol, 0);
	sfs_log_close(&vol->log);
	sfs_inodes_each(vol, close_one, &w);
	if (w.err == 0 && vol->dax && vol->mode == SFS_POSIX)
		w.err = commit_all(vol);
	if (w.err == 0)
		sfs_inodes_each(vol, relink_one, &w);
	if (w.err == 0 && vol->dax)
		w.err = (int)sys_call1(SYS_syncfs, vol->log.fd);
	if (w.err == 0) {
		sfs_log_clear(&vol->log);
		sfs_inodes_each(vol, retire_one, &w);
		sfs_log_reopen(&vol->log);
		sfs_log_grown(&vol->log);
	}
	/* Otherwise what could not be relinked keeps its records, the log stays closed, and the next call tries again. */
	sfs_mutex_unlock(&vol->log.checkpoint);
	return w.err;
}
