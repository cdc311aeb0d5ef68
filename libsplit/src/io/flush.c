/* SPDX-License-Identifier: Apache-2.0 */
/* Relinking what is staged: on fsync, close, fork, exec, revocation, before calls we do not serve, and every visibility_ms. */
#include <errno.h>

#include "base/sys.h"
#include "files/forces.h"
#include "io/bring.h"
#include "lease/ask.h"
#include "pm/pm.h"

void sfs_stage_live(struct sfs_inode *in)
{
	if (sfs_records_any(&in->counted))
		return;
	sfs_records_set(&in->counted, in->vol->dax && in->vol->mode != SFS_POSIX ? RECORDS_DURABLE : RECORDS_VOLATILE);
	__atomic_add_fetch(&in->vol->live, 1, __ATOMIC_ACQ_REL);
}

/* But for staging files that a write in flight copies to. */
static void release(struct sfs_inode *in)
{
	const struct sfs_flights *f = &in->flights;
	uint64_t keep[SFS_CHUNKS_MAX / 64] = {0};
	uint32_t kept = 0;

	for (uint32_t bits = f->used; bits; bits &= bits - 1) {
		const struct sfs_flight *fl = &f->flight[__builtin_ctz(bits)];

		for (uint32_t w = 0; w < SFS_CHUNKS_MAX / 64; w++)
			keep[w] |= fl->chunks[w];
		kept += fl->blocks;
	}
	sfs_staging_release(&in->vol->pool, &in->staging, keep, kept);
}

void sfs_stage_retired(struct sfs_inode *in)
{
	sfs_relinked_set(&in->counted, RELINKED_NOTHING);
	in->counted.blocked = false;
	if (!sfs_records_any(&in->counted))
		return;
	sfs_records_set(&in->counted, RECORDS_NONE);
	__atomic_sub_fetch(&in->vol->live, 1, __ATOMIC_ACQ_REL);
	release(in);
}

void sfs_commit_at(struct sfs_inode *in, uint32_t slot)
{
	sfs_log_commit(&in->vol->log, slot, in->ino, in->gen);
	sfs_records_set(&in->counted, RECORDS_DURABLE);
}

bool sfs_inode_settled(struct sfs_inode *in)
{
	return sfs_flush(in, SFS_RETIRE) == 0 && !sfs_inode_pending(in);
}

void sfs_inode_settle(struct sfs_inode *in)
{
	if (!(sfs_inode_pending(in) || in->touched) || !sfs_inode_trylock(in))
		return;
	sfs_inode_settled(in);
	sfs_inode_unlock(in);
}

/* A record that retires the inode's earlier ones. -EAGAIN: the log is full. */
static int done(struct sfs_inode *in, bool durable)
{
	uint32_t slot;
	int r;

	sfs_log_drop_slots(in);
	r = sfs_log_reserve(&in->vol->log, 1, true, &slot);
	if (r == 0)
		sfs_log_done(&in->vol->log, slot, in->ino, in->gen, durable);
	return r;
}

/*
 * What the kernel has done to the file, relinks whose records are retired among it, becomes durable. In posix on persistent memory that
 * comes before a COMMIT: it must not be lost when what was staged on top of it is kept.
 */
int sfs_commit_base(struct sfs_inode *in)
{
	int r = 0;

	if (in->kdirty && in->fd >= 0) {
		r = sys_fsync(in->fd);
		in->kdirty = r < 0;
	}
	return r;
}

/*
 * posix on persistent memory: from here on everything written before survives a power loss. Bytes and records first, fenced, then
 * the record that says so. -EAGAIN: the log is full.
 */
static int commit(struct sfs_inode *in)
{
	uint32_t slot;
	int r;

	if (!sfs_records_volatile(&in->counted))
		return 0;
	sfs_grow_end(in);
	r = sfs_commit_base(in);
	if (r < 0)
		return r;
	r = sfs_log_slots(&in->vol->log, &in->slots, 1, &slot);
	if (r < 0)
		r = sfs_log_reserve(&in->vol->log, 1, true, &slot);
	if (r == 0)
		sfs_commit_at(in, slot);
	return r;
}

/* Is everything staged in one piece, which goes over in one transaction of the file system? */
static bool one_run(const struct sfs_inode *in)
{
	uint64_t blk = in->staging.first, n = 1;

	while (blk < in->staging.last && in->staging.table[blk] == 0)
		blk++;
	while (blk + n < in->staging.last && in->staging.table[blk + n] == in->staging.table[blk] + n)
		n++;
	return n == in->staging.count;
}

/*
 * Before what posix staged becomes the file system's to commit when it likes: a power loss is not to leave a part of a call, as it might
 * where a relink is more than one transaction. And a program that calls fsync is spared the journal if this is committed.
 */
static int commit_first(struct sfs_inode *in)
{
	const struct sfs_volume *vol = in->vol;

	if (!vol->dax || vol->mode != SFS_POSIX || in->staging.count == 0)
		return 0;
	return in->fsyncs || vol->provider != RELINK_EXT4 || !one_run(in) ? commit(in) : 0;
}

/*
 * When may records be retired? On an emulated volume they count only while this boot lasts, and in posix mode, before a COMMIT,
 * too: as soon as the blocks are in the file. All others when the file system's journal has committed the relink. Until then they go
 * on counting, and what a replay would find are holes, which says "moved already": so the journal's turn comes later,
 * unless a provider has copied.
 */
int sfs_flush(struct sfs_inode *in, enum sfs_flush how)
{
	struct sfs_volume *vol = in->vol;
	bool durable = how == SFS_DURABLE;
	int r;

	sfs_grow_end(in); /* what is relinked must not grow in the staging file */
	r = commit_first(in);
	if (r < 0)
		return r;
	if (vol->dax)
		pm_fence(); /* all that was staged has been written back */
	r = sfs_bring_in(in);
	if (r < 0)
		return r; /* the rest stays staged, its records stay valid */
	sfs_inode_times(in);
	if (vol->dax && sfs_records_durable(&in->counted)) {
		if (how == SFS_PUBLISH && in->counted.relinked != RELINKED_KEPT)
			return 0;
		durable = true;
	}
	if (durable && in->fd >= 0) {
		r = sfs_settle(in);
		if (r < 0)
			return r;
		in->kdirty = false;
	}
	if (!sfs_records_any(&in->counted))
		return 0;
	if (!durable)
		in->kdirty = true;
	r = done(in, durable);
	if (r == 0)
		sfs_stage_retired(in);
	return r;
}

int sfs_flush_nothing(struct sfs_inode *in)
{
	int r = 0;

	sfs_grow_end(in);
	sfs_staging_clear(&in->staging);
	in->touched = false;
	if (sfs_records_any(&in->counted))
		r = done(in, in->vol->dax && in->vol->mode != SFS_POSIX);
	if (r == 0)
		sfs_stage_retired(in);
	return r;
}

/*
 * Who asks for fsync may tell others. Who has the library asks for the file, and who opens it without the library lets us bring what is
 * staged into it. Only for those who have it open already the bytes are relinked here, too.
 *
 * On persistent memory what this process wrote needs no journal: its records are durable (in posix with the COMMIT), stores in place
 * were fenced and their blocks mapped with MAP_SYNC. Anything else there may be to commit (a file just made, a truncate, writes
 * by the kernel) is what kdirty is for, and goes first, once.
 */
int sfs_flush_fsync(struct sfs_ofd *ofd, int fd, bool data_only)
{
	struct sfs_inode *in = ofd->inode;
	const bool pending = sfs_inode_pending(in);
	int r;

	in->fsyncs = true;
	if (in->unheld.expected && in->unheld.expected++ == 2) {
		in->unheld.expected = 0;
		sfs_forces_note(in->vol, 0, 1);
	}
	if (!in->vol->dax && !in->vol->pool.tmpfs)
		sfs_window_forced(&in->window);
	if (in->vol->dax && (pending || in->touched) && sfs_inode_served(in) && in->fd >= 0 && !sfs_ofd_shared(ofd)) {
		r = sfs_commit_base(in);
		if (r == 0)
			r = commit(in);
		return r < 0 || !sfs_outside(in->vol, in->ino) ? r : sfs_flush(in, SFS_PUBLISH);
	}
	if (pending)
		return sfs_flush(in, SFS_DURABLE);
	if (!data_only)
		sfs_inode_times(in);
	r = data_only ? sys_fdatasync(fd) : sys_fsync(fd);
	if (r == 0 && !data_only)
		in->kdirty = false;
	return r;
}

int sfs_step_down(struct sfs_inode *in, unsigned to)
{
	int r = sfs_flush(in, SFS_RETIRE);

	if (r == 0 && sfs_grant_deleg(&in->grant) > to)
		r = sfs_pins_save_all(&in->pins);
	if (r == 0) {
		sfs_inode_left();
		/* One that is still copied must not go on in a file that is another process's, in whose snapshots it would be. */
		if (unlikely(in->flights.changes & SFS_CHANGES_STORES))
			sfs_inode_unmap(in);
		/* Down, never up: an earlier question may have taken more. */
		if (sfs_grant_deleg(&in->grant) > to)
			sfs_grant_set(&in->grant, to == SFS_DELEG_NONE ? GRANT_KEPT : GRANT_SHARED);
	}
	return r;
}

int sfs_flush_unlocked(struct sfs_inode *in, enum sfs_flush how)
{
	int r;

	sfs_inode_lock(in);
	r = sfs_flush(in, how);
	sfs_inode_unlock(in);
	if (r == -EAGAIN)
		r = sfs_checkpoint(in->vol, true);
	return r;
}

struct flushes {
	enum sfs_flush how;
	int err; /* the first one */
};

static int flush_one(struct sfs_inode *in, void *arg)
{
	struct flushes *all = arg;
	const int r = sfs_inode_pending(in) ? sfs_flush_unlocked(in, all->how) : 0;

	all->err = all->err ? all->err : r;
	return 0;
}

int sfs_flush_all(struct sfs_volume *vol, enum sfs_flush how)
{
	struct flushes all = {how, 0};

	sfs_inodes_each(vol, flush_one, &all);
	return all.err;
}
