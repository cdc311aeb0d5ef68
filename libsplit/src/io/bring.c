/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Run by run, where a run lies together in the file and in a staging file. Long ones are relinked. Short ones, which relink() would copy one by
 * one, are gathered as far as they lie together in the file, and written by one call.
 */
#include "io/bring.h"

#include <errno.h>
#include <string.h>

#include "base/result.h"
#include "base/sys.h"
#include "lease/ask.h"

#define GATHERED      64
#define ROOM_NS	      10000000l
#define ROOM_ASK_NS   100000000l
#define ROOM_WAIT_NS  500000000l
#define ROOM_AGAIN_NS 1500000000l

struct bringing {
	struct sfs_inode *in;
	/*
	 * An earlier time blocks were relinked whose records still count, and the journal has not committed that: it comes before bytes are copied
	 * onto them (struct relink_range.settle).
	 */
	bool unsettled;
};

int sfs_settle(const struct sfs_inode *in)
{
	return sys_fsync(in->fd);
}

static int settle(void *bringing)
{
	struct bringing *b = bringing;
	const int r = b->unsettled ? sfs_settle(b->in) : 0;

	b->unsettled = b->unsettled && r < 0;
	return r;
}

/* Where block blk and n blocks from there end in the file. */
static uint64_t end_of(const struct sfs_inode *in, uint64_t blk, uint64_t n)
{
	const uint64_t end = (blk + n) * SFS_BLOCK;

	return end < in->size ? end : in->size;
}

/* A relink of this range has returned ret: is anything of it left in the staging file? */
static bool kept(int fd, const struct relink_range *r, int ret)
{
	uint64_t from = r->donor_off, to;

	if (ret < 0 || ret & RELINK_DONOR_KEEPS)
		return true;
	return !(ret & RELINK_DONOR_EMPTIED) && relink_next_data(fd, &from, &to, r->donor_off + r->len) != 0;
}

/* Also where only a part of it was brought in. */
static void brought(struct sfs_inode *in, bool keeps)
{
	if (in->counted.relinked != RELINKED_KEPT)
		sfs_relinked_set(&in->counted, in->vol->dax && keeps ? RELINKED_KEPT : RELINKED_MOVED);
}

/* So many runs of so many bytes are in the file. Whatever moved or copied them has set its times. */
static void count_runs(struct sfs_inode *in, uint64_t runs, uint64_t bytes)
{
	in->touched = false;
	count(in->vol, relink_ops, runs);
	count(in->vol, relink_bytes, bytes);
}

/* A relink that finds no space. Both in ns, 0 until the first time. */
struct waiting {
	int64_t until, ask;
};

/*
 * Is there space for it now, perhaps? What nobody has had of our staging files gives some; the agent some in ROOM_WAIT_NS at most. That has passed
 * in vain a moment ago: not again so soon.
 */
static bool more_room(struct sfs_volume *vol, struct waiting *w)
{
	const int64_t now = sys_now_ns();

	if (sfs_pool_shed(&vol->pool))
		return true;
	if (!w->until) {
		int64_t asked = __atomic_load_n(&vol->agent.room_asked, __ATOMIC_RELAXED);

		if (!asked || now - asked > ROOM_AGAIN_NS) {
			asked = now;
			__atomic_store_n(&vol->agent.room_asked, asked, __ATOMIC_RELAXED);
		}
		*w = (struct waiting){asked + ROOM_WAIT_NS, now};
	}
	if (now >= w->until)
		return false;
	if (now >= w->ask) {
		sfs_agent_grow(vol, SFS_GROW_ROOM);
		w->ask = now + ROOM_ASK_NS;
	}
	sys_nap(ROOM_NS);
	return true;
}

/* relink(), with what space there is. */
static int try(struct sfs_volume *vol, struct sfs_chunk *c, struct relink_range *r, uint64_t *moved)
{
	struct waiting w = {0};
	uint64_t most = 0;
	int ret;

	__atomic_add_fetch(&vol->pool.moving, 1, __ATOMIC_ACQ_REL);
	do {
		ret = relink(vol->provider, r, moved);
		most = *moved > most ? *moved : most;
		/* After an error the file may share blocks with it. */
		if (ret < 0 ? vol->provider != RELINK_COPY : !(ret & RELINK_DONOR_KEEPS))
			c->holes = true;
		r->full = true;
		r->whole = false;
	} while (sfs_no_space(ret) && more_room(vol, &w));
	__atomic_sub_fetch(&vol->pool.moving, 1, __ATOMIC_ACQ_REL);
	*moved = most; /* what is in the file since an earlier try stays there */
	return ret;
}

/* The run of *blocks blocks from blk on. *blocks of them are in the file then. */
static int relink_run(struct bringing *bringing, uint64_t blk, uint64_t *blocks)
{
	struct sfs_inode *in = bringing->in;
	struct sfs_volume *vol = in->vol;
	const sfs_block b = in->staging.table[blk];
	const uint64_t off = blk * SFS_BLOCK, n = *blocks, end = end_of(in, blk, n);
	struct sfs_chunk *c = &vol->pool.chunks[(b >> 32) - 1];
	struct relink_range r = {
		.donor = c->fd,
		.target = in->fd,
		.staged = sfs_block_addr(&vol->pool, b),
		.donor_off = (uint64_t)(uint32_t)b * SFS_BLOCK,
		.target_off = off,
		.len = end - off,
		.size = end,
		.persistent = vol->dax,
		.whole = true, /* a block that was moved is in the table no more */
		.settle = settle,
		.arg = bringing,
	};
	uint64_t moved = 0;
	int ret;

	*blocks = 0;
	/* What the program looks at is not to change under its eyes. */
	ret = sfs_pins_save(&in->pins, off, (blk + n) * SFS_BLOCK);
	if (ret == 0 && vol->provider != RELINK_COPY)
		ret = sfs_buffers_save(&vol->pool, (uint32_t)(b >> 32) - 1, (uint32_t)b, (uint32_t)n);
	if (ret < 0)
		return ret;
	ret = try(vol, c, &r, &moved);
	brought(in, kept(c->fd, &r, ret));
	*blocks = ret < 0 ? moved / SFS_BLOCK : n; /* after an error, whole blocks from the start may have gone over */
	/* All of them: it is only the staging file that could not be freed of them. */
	if (ret < 0 && moved < r.len)
		return ret;
	count_runs(in, 1, end - off);
	return 0;
}

/* The staging file has so many blocks of the file in a row from blk on, which is staged. */
static uint64_t run_length(const struct sfs_inode *in, uint64_t blk)
{
	const sfs_block *table = in->staging.table;
	uint64_t n = 1;

	while (blk + n < in->staging.last && table[blk + n] == table[blk] + n)
		n++;
	return n;
}

/* Runs from blk on that are copied and lie together in the file; returns how many, with *blocks blocks. */
static int gather(const struct sfs_inode *in, uint64_t blk, struct iovec *iov, uint64_t *blocks)
{
	const struct sfs_volume *vol = in->vol;
	uint64_t at = blk;
	int n = 0;

	while (n < GATHERED && at < in->staging.last && in->staging.table[at]) {
		const uint64_t run = run_length(in, at);

		if (!relink_copies(vol->provider, vol->dax, run * SFS_BLOCK))
			break;
		iov[n++] =
			(struct iovec){sfs_block_addr(&vol->pool, in->staging.table[at]), end_of(in, at, run) - at * SFS_BLOCK};
		at += run;
	}
	*blocks = at - blk;
	return n;
}

/*
 * As relink_run(), of as many runs as can be written together. *blocks == 0 and 0: none, relink() is to find the way. Of buffers nothing
 * need be saved, because no block leaves its staging file.
 */
static int copy_runs(struct bringing *b, uint64_t blk, uint64_t *blocks)
{
	struct sfs_inode *in = b->in;
	struct iovec iov[GATHERED];
	const uint64_t off = blk * SFS_BLOCK;
	const int n = gather(in, blk, iov, blocks);
	ssize_t done;
	int r;

	if (n == 0)
		return 0;
	r = sfs_pins_save(&in->pins, off, (blk + *blocks) * SFS_BLOCK);
	if (r == 0)
		r = settle(b);
	if (r < 0) {
		*blocks = 0;
		return r;
	}
	brought(in, true);
	done = sys_pwritev2(in->fd, iov, n, (off_t)off, 0);
	if (done < 0)
		done = 0;
	/* A block that was written in part is written again. */
	if (off + (uint64_t)done < end_of(in, blk, *blocks))
		*blocks = (uint64_t)done / SFS_BLOCK;
	if (*blocks > 0)
		count_runs(in, (uint64_t)n, (uint64_t)done);
	return 0;
}

/* [blk, blk + n) is in the file. What follows the end without a gap leaves it without holes; asking the kernel again costs a walk over the file. */
static void is_in(struct sfs_inode *in, uint64_t blk, uint64_t n)
{
	if (!in->window.dense || blk * SFS_BLOCK > in->ksize)
		sfs_window_unknown(&in->window);
	if (n > 0 && (blk + n) * SFS_BLOCK >= in->ksize)
		in->ksize = end_of(in, blk, n);
	memset(&in->staging.table[blk], 0, n * sizeof(sfs_block));
	in->staging.count -= n;
	in->staging.first = blk + n;
}

/* Is mtime what stat has told, and has nobody written since, nor may at this moment, without our knowing it? */
static bool mtime_told(const struct sfs_inode *in)
{
	struct stat st;

	return in->told.tv_sec != 0 && !in->touched && in->staging.count > 0 &&
	       !sfs_says_outside(in->vol, sfs_owners_index(in->ino)) && sys_fstat(in->fd, &st) == 0 &&
	       st.st_mtim.tv_sec == in->told.tv_sec && st.st_mtim.tv_nsec == in->told.tv_nsec;
}

/* What stat has told of the bytes is true of them when they are in the file, too. Only the owner may set mtime back. */
int sfs_bring_in(struct sfs_inode *in)
{
	const bool told = mtime_told(in);
	const struct timespec times[2] = {{0, UTIME_OMIT}, in->told};
	struct bringing b = {.in = in, .unsettled = in->vol->dax && in->counted.relinked != RELINKED_NOTHING};
	uint64_t blk = in->staging.first, n;
	int r = 0;

	while (r == 0 && in->staging.count > 0 && blk < in->staging.last) {
		if (in->staging.table[blk] == 0) {
			blk++;
			continue;
		}
		r = copy_runs(&b, blk, &n);
		if (r == 0 && n == 0) {
			n = run_length(in, blk);
			r = relink_run(&b, blk, &n);
		}
		is_in(in, blk, n);
		blk += n;
	}
	if (told)
		sys_call4(SYS_utimensat, in->fd, 0, (long)times, 0);
	return r;
}
