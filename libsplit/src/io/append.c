/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast way of an append that continues what is staged, in one piece: the log writer's case, and that of who writes a file from its
 * beginning to its end. What io/attempt.c and io/commit.c do, without everything that can't be the case. A short one, and one that
 * begins in a block that is staged already, is copied to memory of ours first and stored with the lock held; whole new blocks are copied
 * in flight.
 */
#include <string.h>

#include "base/fault.h"
#include "base/protect.h"
#include "base/sys.h"
#include "io/commit.h"
#include "io/user.h"
#include "pm/pm.h"

/* On persistent memory: what was stored since everything was last written back. */
static void grow_flush(struct sfs_inode *in)
{
	if (in->vol->dax)
		pm_flush(in->grow.dirty, (size_t)(in->grow.at - in->grow.dirty));
}

void sfs_grow_forget(struct sfs_inode *in)
{
	in->grow.record = NULL;
	in->grow.at = in->grow.limit = NULL;
	in->grow.ops = 0;
}

void sfs_grow_end(struct sfs_inode *in)
{
	uint64_t bytes;

	if (!in->grow.record)
		return;
	in->staging.hot_to = SFS_BLOCK - (uint32_t)(in->grow.limit - in->grow.at);
	/* Everything else is written back as it is stored; the next fence is to find this too. */
	grow_flush(in);
	if (in->vol->dax)
		pm_flush(in->grow.record, sizeof(*in->grow.record));
	bytes = (uint64_t)(in->grow.at - in->grow.base) - in->grow.record->len;
	count(in->vol, append_ops, in->grow.ops);
	count(in->vol, append_bytes, bytes);
	count(in->vol, staged_bytes, bytes);
	sfs_grow_forget(in);
}

/* An append, and where it goes. */
struct append {
	struct sfs_inode *in;
	const void *buf; /* the program's, or memory of ours */
	size_t n;
	uint64_t pos;
	uint8_t *at;
	uint64_t more; /* blocks that follow the last staged one */
	const struct sfs_record *record;
	uint32_t crc;
	bool sums;
};

/*
 * Room for it behind the end of the file, all in one piece with its last byte, which is staged in `hot`: the rest of that
 * block, and the blocks of the inode's region that follow it. Nothing is taken yet.
 */
static inline bool room(struct append *a)
{
	struct sfs_inode *in = a->in;
	struct sfs_staging *s = &in->staging;
	const uint64_t last = (in->size + a->n - 1) / SFS_BLOCK;

	a->pos = in->size;
	a->more = last - s->hot;
	a->at = sfs_block_addr(&in->vol->pool, s->hot_block) + (in->size - s->hot * SFS_BLOCK);
	return a->more == 0 || (a->more <= s->region_end - s->region_next && last < s->table_blocks &&
				s->hot_block + 1 == ((sfs_block)(s->region_chunk + 1) << 32 | s->region_next));
}

/* The blocks are the file's from here on, behind its end. */
static inline void extend(const struct append *a)
{
	struct sfs_staging *s = &a->in->staging;

	for (uint64_t i = 1; i <= a->more; i++)
		sfs_staging_set(s, s->hot + i, s->hot_block + i);
	if (a->more > 0) {
		s->hot += a->more;
		s->hot_block += a->more;
		s->hot_from = 0;
	}
}

/* The record ends behind n more bytes, which are stored. */
static inline void grown(struct sfs_inode *in, size_t n)
{
	in->grow.at += n;
	pm_store_word(&in->grow.record->size, sfs_grow_word(in->grow.crc, (uint32_t)(in->grow.at - in->grow.base)));
	__atomic_store_n(&in->size, in->size + n, __ATOMIC_RELEASE);
	in->grow.ops++;
}

/* Does the last record grow, or, in sync and strict, has the inode a free slot for another one? */
static inline bool goes_on(const struct sfs_inode *in)
{
	if (in->vol->mode == SFS_POSIX)
		return in->grow.record;
	return sfs_inode_served(in) && !sfs_kernel_busy(in) && in->slots.next != in->slots.end &&
	       sfs_records_any(&in->counted) && in->size > 0 && in->staging.hot == (in->size - 1) / SFS_BLOCK &&
	       sfs_block_get(&in->staging, in->staging.hot) == in->staging.hot_block;
}

/* posix: bytes are stored, then the word that says how many they are; a process that dies leaves whole calls. */
static void end_grow(struct append *a)
{
	struct sfs_inode *in = a->in;

	extend(a);
	grown(in, a->n);
	if (a->more > 0 || in->grow.at > in->grow.limit)
		in->grow.limit = in->grow.at + -in->size % SFS_BLOCK;
}

static __attribute__((noinline)) void end_record(struct append *a)
{
	struct sfs_inode *in = a->in;
	struct sfs_volume *vol = in->vol;
	const uint32_t slot = in->slots.next++;
	struct sfs_record rec;

	extend(a);
	rec = sfs_record_write(in, a->pos, a->n, in->staging.hot_block - (in->staging.hot - a->pos / SFS_BLOCK),
			       SFS_REC_DURABLE);
	rec.size = a->pos + a->n;
	if (a->sums) {
		rec.flags |= SFS_REC_DATA_CRC;
		rec.data_crc = a->crc;
	}
	sfs_log_write(&vol->log, slot, rec);
	pm_fence();
	__atomic_store_n(&in->size, a->pos + a->n, __ATOMIC_RELEASE);
	in->staging.hot_to = (uint32_t)((in->size - 1) % SFS_BLOCK) + 1;
	in->touched = in->busy = true;
	sfs_count_write(&vol->log, true, a->n);
	count(vol, staged_bytes, a->n);
	/* The next locked instruction waits until all stores have their lines: fetch those of later appends now. */
	if (a->n <= SFS_STORE_MAX && !pm_whole_lines(a->at, a->n))
		__builtin_prefetch(a->at + SFS_PREFETCH * a->n, 1);
	if (unlikely(!vol->dirty))
		sfs_service_wake(vol);
}

/* The bytes to their place. */
static void copy(void *arg)
{
	struct append *a = arg;

	if (a->in->vol->mode == SFS_POSIX) {
		if (a->n <= SFS_STORE_MAX)
			pm_store(a->at, a->buf, a->n);
		else
			pm_copy(a->at, a->buf, a->n);
		return;
	}
	a->sums = a->n <= pm_crc_max();
	if (a->sums) {
		a->crc = pm_copy_crc(0, a->at, a->buf, a->n);
	} else {
		pm_copy(a->at, a->buf, a->n);
		pm_fence();
	}
}

/* What was stored to the last block by others is written back, and what follows has been. */
static inline void grow_past(struct append *a)
{
	struct sfs_inode *in = a->in;

	if (in->vol->mode == SFS_POSIX && a->n > SFS_STORE_MAX) {
		grow_flush(in);
		in->grow.dirty = in->grow.at + a->n;
	}
}

static inline void end(struct append *a)
{
	if (a->in->vol->mode == SFS_POSIX)
		end_grow(a);
	else
		end_record(a);
}

/* buf is memory of ours. Lock held. False: nothing was done. */
static __attribute__((noinline)) bool store(struct sfs_inode *in, const void *buf, size_t n)
{
	struct append mine = {.in = in, .buf = buf, .n = n}, *a = &mine;

	if (!goes_on(in) || sfs_near_limit(in->size + a->n) || !room(a))
		return false;
	in->staging.region_next += (uint32_t)a->more;
	copy(a);
	grow_past(a);
	end(a);
	return true;
}

/* Is fd still this description, of this file, and is the append one at its end? Lock held. */
static inline bool at_end(const struct sfs_ofd *ofd, const struct sfs_inode *in, int fd)
{
	return likely(sfs_fd_still(fd, ofd, in)) && !ofd->kernel_off && sfs_may_write(ofd->flags) &&
	       !(ofd->flags & (O_SYNC | O_DSYNC)) && ((ofd->flags & O_APPEND) || ofd->off == (int64_t)in->size) &&
	       !in->privileged;
}

/* This thread's own locks only (base/bias.h): then nobody waits, and who holds the inode's is who is inside (see sfs_op_begin()). */
static inline bool take(struct sfs_ofd *ofd, struct sfs_inode *in)
{
	if (!sfs_bias_take(&in->lock.bias))
		return false;
	if (sfs_bias_take(&ofd->lock.bias))
		return true;
	sfs_bias_drop(&in->lock.bias);
	return false;
}

static inline void drop(struct sfs_ofd *ofd, struct sfs_inode *in)
{
	sfs_bias_drop(&ofd->lock.bias);
	sfs_bias_drop(&in->lock.bias);
	sfs_op_end(NULL);
}

static inline bool extended(struct sfs_inode *in, const uint8_t *buf, size_t n)
{
	/* The log writer's: the record grows in its last block. */
	if (likely(in->grow.record && n <= SFS_STORE_MAX && n <= (size_t)(in->grow.limit - in->grow.at))) {
		pm_store(in->grow.at, buf, n);
		grown(in, n);
		return true;
	}
	return store(in, buf, n);
}

/* The key is opened once for all stores of the append. */
static __attribute__((noinline)) bool extended_opened(struct sfs_inode *in, const uint8_t *buf, size_t n)
{
	const uint32_t rights = sfs_protect_open();
	const bool done = extended(in, buf, n);

	sfs_protect_close(rights);
	return done;
}

static inline bool stored(struct sfs_ofd *ofd, int fd, const uint8_t *buf, size_t n)
{
	struct sfs_inode *in = ofd->inode;
	bool done = false;

	if (!take(ofd, in))
		return false;
	if (at_end(ofd, in, fd)) {
		done = sfs_protect_on() ? extended_opened(in, buf, n) : extended(in, buf, n);
		if (done)
			ofd->off = (int64_t)in->size;
	}
	drop(ofd, in);
	return done;
}

static inline bool short_one(struct sfs_ofd *ofd, int fd, const void *buf, size_t n, uint8_t *room)
{
	return likely(sfs_copy_short(room, buf, n)) && stored(ofd, fd, room, n);
}

static __attribute__((noinline)) bool unaligned_one(struct sfs_ofd *ofd, int fd, const void *buf, size_t n)
{
	uint8_t room[SFS_BLOCK];

	return short_one(ofd, fd, buf, n, room);
}

/* Does it begin with a new block? Then nobody looks at where it goes, and it is copied with nothing held. */
static bool plan(struct sfs_ofd *ofd, int fd, struct append *a, struct sfs_flying *fly)
{
	struct sfs_inode *in = a->in;
	const uint32_t chunk = (uint32_t)(in->staging.hot_block >> 32) - 1;

	if (!at_end(ofd, in, fd) || !goes_on(in) || in->size % SFS_BLOCK || sfs_near_limit(in->size + a->n) || !room(a) ||
	    !sfs_flight_begin(in, fly))
		return false;
	fly->flight->chunks[chunk / 64] |= 1ull << chunk % 64;
	fly->flight->blocks = (uint32_t)a->more;
	in->staging.region_next += (uint32_t)a->more;
	a->record = in->grow.record;
	return true;
}

static __attribute__((noinline)) bool whole_blocks(struct sfs_ofd *ofd, int fd, const void *buf, size_t n)
{
	struct sfs_inode *in = ofd->inode;
	struct append a = {.in = in, .buf = buf, .n = n};
	const uint32_t forks = sfs.forks;
	struct sfs_flying fly;
	struct sfs_fault f;
	uint64_t *op;
	bool ok;

	if (!take(ofd, in))
		return false;
	ok = plan(ofd, fd, &a, &fly);
	drop(ofd, in);
	if (!ok)
		return false;
	ok = sfs_try(copy, &a, &f);
	if (sfs_is_child(forks))
		return true;
	if (unlikely(!sfs_op_begin(in, &op)))
		return false;
	sfs_inode_take(in);
	sfs_mutex_take(&ofd->lock);
	ok = sfs_flight_holds(&fly) && ok && at_end(ofd, in, fd) && in->size == a.pos && goes_on(in) &&
	     in->grow.record == a.record && in->staging.hot == (a.pos - 1) / SFS_BLOCK &&
	     a.at == sfs_block_addr(&in->vol->pool, in->staging.hot_block) + SFS_BLOCK;
	if (likely(ok)) {
		grow_past(&a);
		end(&a);
		ofd->off = (int64_t)in->size;
	}
	sfs_mutex_drop(&ofd->lock);
	sfs_flight_end(in, &fly);
	sfs_inode_drop(in);
	sfs_op_end(op);
	return ok;
}

/*
 * At the file offset, of a description that no other process shares. Anything else takes the long way.
 */
bool sfs_append(struct sfs_ofd *ofd, int fd, const void *buf, size_t n)
{
	uint8_t room[SFS_STORE_MAX];

	sfs_check_fork();
	if (n - 1 >= SFS_LONG - 1 || __atomic_load_n(&ofd->inode->lock.bias.owner, __ATOMIC_RELAXED) != sfs_self())
		return false;
	if (n <= SFS_STORE_MAX)
		return short_one(ofd, fd, buf, n, room);
	if (ofd->inode->size % SFS_BLOCK == 0)
		return whole_blocks(ofd, fd, buf, n);
	return n <= SFS_BLOCK && unaligned_one(ofd, fd, buf, n);
}
