/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file goes with its last name, and what is staged of it goes with the file: bytes that nobody can read any more need no relink, which
 * would cost a transaction of the file system, and its mappings.
 *
 * That is so when no name is left and no other open description, of whatever process: the kernel says both, once the name is gone. And only
 * where a power loss does not bring the file back without what it had: in sync and strict the name is gone for good when unlink returns; in
 * posix on persistent memory nothing of what is staged has been forced; and an emulated volume keeps only what the kernel has been given.
 */
#include <errno.h>
#include <fcntl.h>

#include "base/sys.h"
#include "calls/calls.h"
#include "io/io.h"

/* The caller's reference is the only one. */
static bool alone(const struct sfs_inode *in)
{
	bool yes;

	sfs_mutex_lock(&sfs_files.lock);
	yes = in->refs - in->walks == 1;
	sfs_mutex_unlock(&sfs_files.lock);
	return yes;
}

static bool may_be_thrown_away(const struct sfs_inode *in)
{
	const struct sfs_volume *vol = in->vol;

	return sfs_inode_pending(in) && in->fd >= 0 && in->fd_readonly < 0 && in->pins.total == 0 && alone(in) &&
	       !(vol->mode == SFS_POSIX && sfs_records_durable(&in->counted)) &&
	       sfs_grant_deleg(&in->grant) == SFS_DELEG_EXCLUSIVE;
}

/* Where it is not open it does not stay: its blocks are free when the call returns, as without the library. */
static void leave(struct sfs_inode *in)
{
	sfs_mutex_lock(&sfs_files.lock);
	sfs_park_end(&in->park);
	sfs_mutex_unlock(&sfs_files.lock);
}

static bool throw_away(struct sfs_inode *in)
{
	bool gone = false;
	struct stat st;
	uint64_t *op;

	if (!sfs_op_begin(in, &op))
		return false;
	sfs_inode_lock(in);
	if (may_be_thrown_away(in) && sys_fstat(in->fd, &st) == 0 && st.st_nlink == 0 && sys_may_lease(in->fd, F_WRLCK))
		gone = sfs_flush_nothing(in) == 0;
	sfs_inode_unlock(in);
	sfs_op_end(op);
	return gone;
}

int sfs_unlink_begin(int dirfd, const char *path, struct sfs_unlink *u)
{
	struct sfs_inode *in;
	uint64_t signals;
	struct stat st;
	int r = 0;

	*u = (struct sfs_unlink){0};
	sfs_check_fork();
	if (!sfs_any_granted() || sys_fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return 0;
	signals = sfs_signals_block(); /* a handler that jumps must not take the reference with it */
	in = sfs_inode_ref(st.st_dev, st.st_ino);
	if (in) {
		*u = (struct sfs_unlink){st.st_dev, st.st_ino, st.st_nlink == 1 && may_be_thrown_away(in), st.st_nlink == 1};
		if (!u->staged)
			r = sfs_inode_publish_last(in);
		sfs_inode_put(in);
	}
	sfs_signals_restore(signals);
	return r;
}

void sfs_unlink_end(const struct sfs_unlink *u, bool gone)
{
	struct sfs_inode *in;
	uint64_t signals;

	if (!u->ino)
		return;
	signals = sfs_signals_block();
	in = sfs_inode_ref(u->dev, u->ino);
	if (in) {
		if (u->staged && (!gone || !throw_away(in)))
			sfs_inode_publish_last(in);
		if (gone && u->last && !sfs_inode_pending(in))
			leave(in);
		in->kdirty = true; /* another thread's fsync may have come before the name went */
		sfs_inode_put(in);
	}
	sfs_signals_restore(signals);
}
