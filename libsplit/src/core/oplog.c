/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operation log: a table of 64-byte records, its tail only in memory (SplitFS paper section 3.3). A record is valid when its
 * checksum, its slot and the log's epoch fit; clearing the log is one 8-byte store.
 */
#include <errno.h>
#include <stddef.h>

#include "base/crc32c.h"
#include "base/sys.h"
#include "core/state.h"
#include "pm/pm.h"

#define BATCH_MAX 16u

int sfs_log_reserve(struct sfs_volume *vol, uint32_t n, bool last_resort, uint32_t *slot)
{
	/* The last slot is the checkpoint's. */
	const uint32_t limit = vol->slots - (last_resort ? 1 : SFS_LOG_HEADROOM);
	uint32_t tail = __atomic_load_n(&vol->tail, __ATOMIC_RELAXED);

	do {
		if (tail + n > limit)
			return -EAGAIN;
	} while (!__atomic_compare_exchange_n(&vol->tail, &tail, tail + n, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
	*slot = tail;
	return 0;
}

int sfs_log_slots(struct sfs_inode *in, uint32_t n, uint32_t *slot)
{
	int r;

	if (n > in->slot_end - in->slot_next) {
		uint32_t want = in->slot_batch * 2 > BATCH_MAX ? BATCH_MAX : in->slot_batch * 2;

		if (want < n)
			want = n;
		r = sfs_log_reserve(in->vol, want, false, &in->slot_next);
		if (r < 0 && want > n) {
			want = n;
			r = sfs_log_reserve(in->vol, want, false, &in->slot_next);
		}
		if (r < 0) {
			sfs_log_drop_slots(in);
			return r;
		}
		in->slot_end = in->slot_next + want;
		in->slot_batch = want < BATCH_MAX ? want : BATCH_MAX;
	}
	*slot = in->slot_next;
	in->slot_next += n;
	return 0;
}

uint32_t sfs_log_store(struct sfs_volume *vol, uint32_t slot, uint64_t word[8])
{
	const uint8_t flags = (uint8_t)(word[0] >> 40);
	const size_t tail = sizeof(struct sfs_record) - (flags & SFS_REC_GROWS ? 16 : 8);
	uint32_t crc;

	word[1] = vol->epoch << 32 | slot;
	crc = crc32c(crc32c(vol->seed, (const char *)word + 4, 4), word + 1, tail);
	word[0] |= crc;
	if (flags & SFS_REC_GROWS)
		word[7] = sfs_grow_word(crc, (uint32_t)word[5]);
	/* What grows is stored to again by the next append, and written back by sfs_grow_end(). */
	if ((flags & SFS_REC_GROWS) || (!vol->dax && vol->mode == SFS_POSIX))
		pm_store(&vol->records[slot], word, sizeof(struct sfs_record));
	else
		pm_copy_line(&vol->records[slot], word);
	count(vol, records, 1);
	return crc;
}

/* A record that counts, also after a power loss, when this returns. */
static void write_fenced(struct sfs_volume *vol, uint32_t slot, const struct sfs_record *rec)
{
	sfs_log_write(vol, slot, *rec);
	pm_fence();
}

/*
 * posix on persistent memory: everything written before survives a power loss when this returns. Bytes and records have been written
 * back; the first fence makes them persistent, and only then the record says so.
 */
void sfs_log_commit(struct sfs_inode *in, uint32_t slot)
{
	struct sfs_record rec = {.type = SFS_REC_COMMIT, .ino = in->ino, .gen = in->gen};

	pm_fence();
	write_fenced(in->vol, slot, &rec);
	in->uncommitted = false;
	in->committed = true;
}

/* Every earlier record of the inode is retired; durable: the file system's journal has committed what they stood for. */
void sfs_log_done(struct sfs_inode *in, uint32_t slot, bool durable)
{
	struct sfs_record rec = {.type = SFS_REC_DONE, .flags = durable ? SFS_REC_DURABLE : 0, .ino = in->ino, .gen = in->gen};

	write_fenced(in->vol, slot, &rec);
}

/* The kernel is about to cut the file off there. */
void sfs_log_cut(struct sfs_inode *in, uint32_t slot, uint64_t size)
{
	struct sfs_record rec = {
		.type = SFS_REC_TRUNCATE, .flags = SFS_REC_DURABLE, .ino = in->ino, .gen = in->gen, .size = size};

	write_fenced(in->vol, slot, &rec);
}

struct walk {
	bool wait;
	int err;
};

static bool take(struct sfs_inode *in, const struct walk *w)
{
	if (!w->wait)
		return sfs_lock_soon(in);
	sfs_rwlock_wrlock(&in->lock);
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
	sfs_rwlock_wrunlock(&in->lock);
	return 0;
}

/* posix on persistent memory: what is relinked next is to survive a power loss as a whole, see flush.c. */
static int commit_all(struct sfs_volume *vol)
{
	struct sfs_record rec = {.type = SFS_REC_COMMIT};
	const int r = (int)sys_call1(SYS_syncfs, vol->log_fd); /* see sfs_commit_base() */

	if (r < 0)
		return r;
	pm_fence();
	sfs_log_write(vol, vol->closed_at, rec); /* every flush fences before it relinks */
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
	if (in->uncommitted && in->vol->dax) {
		in->uncommitted = false;
		in->committed = true;
	}
	r = in->live || in->staged > 0 ? sfs_flush(in, SFS_PUBLISH) : 0;
	sfs_rwlock_wrunlock(&in->lock);
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
	if (in->staged == 0)
		sfs_stage_retired(in);
	sfs_rwlock_wrunlock(&in->lock);
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
int sfs_log_checkpoint(struct sfs_volume *vol, bool wait)
{
	const uint64_t seen = __atomic_load_n(&vol->epoch, __ATOMIC_ACQUIRE);
	struct walk w = {wait, 0};
	uint32_t tail;

	if (wait)
		sfs_mutex_lock(&vol->checkpoint);
	else if (!sfs_mutex_trylock(&vol->checkpoint))
		return -EBUSY;
	if (vol->epoch != seen || vol->state != VOL_READY) {
		sfs_mutex_unlock(&vol->checkpoint);
		return 0;
	}
	tail = __atomic_exchange_n(&vol->tail, vol->slots, __ATOMIC_ACQ_REL);
	if (tail < vol->slots)
		vol->closed_at = tail;
	sfs_inodes_each(vol, close_one, &w);
	if (w.err == 0 && vol->dax && vol->mode == SFS_POSIX)
		w.err = commit_all(vol);
	if (w.err == 0)
		sfs_inodes_each(vol, relink_one, &w);
	if (w.err == 0 && vol->dax)
		w.err = (int)sys_call1(SYS_syncfs, vol->log_fd);
	if (w.err == 0) {
		struct sfs_log_header *h = (struct sfs_log_header *)vol->log;

		pm_store64(&h->epoch, vol->epoch + 1);
		pm_fence();
		sfs_inodes_each(vol, retire_one, &w);
		__atomic_store_n(&vol->epoch, vol->epoch + 1, __ATOMIC_RELEASE);
		store_release(&vol->tail, 0);
		count(vol, checkpoints, 1);
	}
	/* Otherwise what could not be relinked keeps its records, the log stays closed, and the next call tries again. */
	sfs_mutex_unlock(&vol->checkpoint);
	return w.err;
}
