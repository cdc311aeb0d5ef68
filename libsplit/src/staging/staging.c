/* SPDX-License-Identifier: Apache-2.0 */
#include "staging/staging.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/sys.h"
#include "pm/map.h"

#define REGION_MIN 4u		/* blocks: a small file should not keep a large region */
#define REGION_MAX 512u		/* 2 MiB */
#define HUGE	   512u		/* blocks of a page of 2 MiB */
#define LONG	   64u		/* blocks in a row, after which a file is worth that */
#define LEFT_OUT   8u		/* of so many blocks one may be left out without being used */
#define TABLE_MIN  (1ull << 18) /* entries: a 1 GiB file */
#define SPARE_MOST 4096u	/* blocks of a file whose table is worth keeping: 8 pages of it are resident */

/*
 * Tables of files that are closed, all zero, for the next ones: a mapping, its page tables and its end cost several times as much as a short
 * write.
 */
void *sfs_spare_tables[SFS_SPARE_TABLES];

static void *spare_take(void)
{
	void *p = NULL;

	for (int i = 0; i < SFS_SPARE_TABLES && !p; i++)
		if (__atomic_load_n(&sfs_spare_tables[i], __ATOMIC_RELAXED))
			p = __atomic_exchange_n(&sfs_spare_tables[i], NULL, __ATOMIC_ACQUIRE);
	return p;
}

static bool spare_keep(void *table)
{
	for (int i = 0; i < SFS_SPARE_TABLES; i++) {
		void *none = NULL;

		if (__atomic_compare_exchange_n(&sfs_spare_tables[i], &none, table, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
			return true;
	}
	return false;
}

void sfs_staging_end(struct sfs_staging *st, uint64_t blocks)
{
	sfs_staging_clear(st);
	if (st->table && !(st->table_blocks == TABLE_MIN && blocks <= SPARE_MOST && spare_keep(st->table)))
		sys_munmap(st->table, st->table_blocks * sizeof(sfs_block));
	st->table = NULL;
	st->table_blocks = 0;
}

int sfs_staging_table(struct sfs_staging *st, uint64_t blocks)
{
	uint64_t want = st->table_blocks ? st->table_blocks : TABLE_MIN;
	void *p;

	if (blocks <= st->table_blocks)
		return 0;
	while (want < blocks)
		want *= 2;
	if (st->table)
		p = (void *)sys_call5(SYS_mremap, (long)st->table, (long)(st->table_blocks * sizeof(sfs_block)),
				      (long)(want * sizeof(sfs_block)), MREMAP_MAYMOVE, 0);
	else if (want > TABLE_MIN || !(p = spare_take()))
		p = sfs_map_sparse(want * sizeof(sfs_block));
	if (sys_is_err(p))
		return (int)(long)p;
	st->table = p;
	st->table_blocks = want;
	return 0;
}

bool sfs_staging_any(const struct sfs_staging *st, uint64_t pos, uint64_t n)
{
	if (st->count == 0)
		return false;
	for (uint64_t blk = pos / SFS_BLOCK; blk <= (pos + n - 1) / SFS_BLOCK; blk++)
		if (sfs_block_get(st, blk))
			return true;
	return false;
}

void sfs_staging_set(struct sfs_staging *st, uint64_t blk, sfs_block b)
{
	const bool none = st->count == 0;

	/*
	 * Readers may look meanwhile, and a fork may take a copy of it as it is: no entry is outside first and last at any time. Before the
	 * first one there is none at all, and it does not matter where they are.
	 */
	if (none || blk >= st->last)
		__atomic_store_n(&st->last, blk + 1, __ATOMIC_RELAXED);
	if (none || blk < st->first)
		__atomic_store_n(&st->first, blk, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (st->table[blk] == 0)
		__atomic_store_n(&st->count, st->count + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&st->table[blk], b, __ATOMIC_RELAXED);
}

void sfs_staging_clear(struct sfs_staging *st)
{
	if (st->count > 0)
		memset(&st->table[st->first], 0, (st->last - st->first) * sizeof(sfs_block));
	st->count = st->first = st->last = 0;
}

static void no_region(struct sfs_staging *st)
{
	st->region_next = st->region_end = st->region_want = st->region_taken = 0;
	st->number++;
}

void sfs_staging_forget(struct sfs_staging *st)
{
	sfs_staging_clear(st);
	no_region(st);
	memset(st->pinned, 0, sizeof(st->pinned));
}

void sfs_staging_release(struct sfs_pool *pool, struct sfs_staging *st, const uint64_t *keep, uint32_t kept)
{
	sfs_mutex_lock(&pool->lock);
	/* What it did not use of its region, if nobody took space behind it. */
	if (st->region_next < st->region_end && pool->chunks[st->region_chunk].used == st->region_end)
		pool->chunks[st->region_chunk].used = st->region_next;
	else if (st->region_next < st->region_end && pool->gap_chunk == st->region_chunk && pool->gap_next == st->region_end)
		pool->gap_next = st->region_next;
	if (kept > st->region_taken)
		kept = st->region_taken;
	pool->region_blocks -= st->region_taken - kept;
	for (uint32_t w = 0; w < SFS_CHUNKS_MAX / 64; w++) {
		const uint64_t stay = st->pinned[w] & (keep ? keep[w] : 0);

		for (uint64_t bits = st->pinned[w] & ~stay; bits; bits &= bits - 1)
			sfs_chunk_unpin(pool, &pool->chunks[w * 64 + (uint32_t)__builtin_ctzll(bits)]);
		st->pinned[w] = stay;
	}
	sfs_mutex_unlock(&pool->lock);
	no_region(st);
	st->region_taken = kept;
}

/* The file pins the staging file. pool->lock held. */
static void pin(struct sfs_pool *pool, struct sfs_staging *st, uint32_t chunk)
{
	if (st->pinned[chunk / 64] & 1ull << chunk % 64)
		return;
	st->pinned[chunk / 64] |= 1ull << chunk % 64;
	pool->chunks[chunk].pins++;
}

int sfs_staging_adopt(struct sfs_pool *pool, struct sfs_staging *st, uint32_t chunk, uint32_t blocks)
{
	const int r = sfs_pool_covered(pool, blocks);

	if (r < 0)
		return r;
	sfs_mutex_lock(&pool->lock);
	pin(pool, st, chunk);
	st->region_taken += blocks;
	pool->region_blocks += blocks;
	sfs_mutex_unlock(&pool->lock);
	return 0;
}

/* Does the file go on for long enough that it is worth a page of 2 MiB? */
static bool runs_on(const struct sfs_pool *pool, const struct sfs_staging *st, uint64_t at, uint32_t blocks)
{
	return pool->dax && at != SFS_ANYWHERE && (st->run >= LONG || blocks >= LONG);
}

/*
 * Leave blocks of the staging file out, so that block `at` of the file gets one that is congruent to it. One gap is there for short regions until they
 * have used it up; a staging file that nobody has had a part of pays for another one, or what the file has had since the last time. pool->lock held.
 */
static void leave_out(struct sfs_pool *pool, struct sfs_staging *st, struct sfs_chunk *c, uint64_t at, uint32_t blocks)
{
	const uint32_t n = (uint32_t)(at - c->used) % HUGE, gap = pool->gap_end - pool->gap_next,
		       most = gap == 0 ? HUGE : (c->used == 0 ? c->blocks : st->run) / LEFT_OUT;

	if (n == 0 || n > most || c->blocks - c->used < n + blocks)
		return;
	if (n > gap) {
		pool->gap_chunk = (uint32_t)(c - pool->chunks);
		pool->gap_next = c->used;
		pool->gap_end = c->used + n;
	}
	c->used += n;
	st->run = LONG;
}

/* A short region out of the gap. pool->lock held. Returns its blocks, or 0. */
static uint32_t from_gap(struct sfs_pool *pool, struct sfs_staging *st, uint32_t blocks, uint32_t least)
{
	const uint32_t gap = pool->gap_end - pool->gap_next, n = blocks < gap ? blocks : gap;

	if (gap < least)
		return 0;
	st->region_chunk = pool->gap_chunk;
	st->region_next = pool->gap_next;
	st->region_end = pool->gap_next += n;
	return n;
}

/*
 * So many blocks instead of `blocks`, `least` at least: to where a page of 2 MiB ends, so that files that take turns all begin theirs there.
 */
static uint32_t to_end_of_page(const struct sfs_chunk *c, uint64_t at, uint32_t blocks, uint32_t least)
{
	const uint32_t over = (c->used + blocks) % HUGE;

	return (at - c->used) % HUGE == 0 && blocks >= least + over && blocks > over ? blocks - over : blocks;
}

/* Of a staging file with space, following the file's region directly where that is possible. pool->lock held. Returns its blocks. */
static uint32_t from_chunk(struct sfs_pool *pool, struct sfs_staging *st, struct sfs_chunk *c, uint64_t at, uint32_t blocks,
			   uint32_t least)
{
	const uint32_t index = (uint32_t)(c - pool->chunks);
	const bool huge = runs_on(pool, st, at, blocks);

	if (st->region_end == 0 || st->region_chunk != index || st->region_end != c->used) {
		if (huge)
			leave_out(pool, st, c, at, blocks);
		st->region_chunk = index;
		st->region_next = c->used;
	}
	if (huge)
		blocks = to_end_of_page(c, at, blocks, least);
	if (blocks > c->blocks - c->used)
		blocks = c->blocks - c->used;
	c->used += blocks;
	st->region_end = c->used;
	return blocks;
}

/*
 * Give the file `blocks` blocks, or fewer, of one staging file. Fewer than `least` only where that has no more.
 */
static int region(struct sfs_pool *pool, struct sfs_staging *st, uint64_t at, uint32_t blocks, uint32_t least)
{
	struct sfs_chunk *c;
	uint32_t n;
	int r = sfs_pool_covered(pool, blocks);

	if (r < 0)
		return r;
	sfs_mutex_lock(&pool->lock);
	n = runs_on(pool, st, at, blocks) ? 0 : from_gap(pool, st, blocks, least);
	if (n == 0) {
		c = sfs_pool_with_space(pool);
		if (!c) {
			sfs_mutex_unlock(&pool->lock);
			return -ENOBUFS;
		}
		n = from_chunk(pool, st, c, at, blocks, least);
	}
	pin(pool, st, st->region_chunk);
	st->region_taken += n;
	pool->region_blocks += n;
	sfs_mutex_unlock(&pool->lock);
	sfs_pool_populate(pool, pool->chunks[st->region_chunk].base + (uint64_t)(st->region_end - n) * SFS_BLOCK,
			  (uint64_t)n * SFS_BLOCK);
	return 0;
}

sfs_block sfs_staging_alloc(struct sfs_pool *pool, struct sfs_staging *st, uint64_t at, uint32_t *n, int *err)
{
	sfs_block b;

	if (st->region_next == st->region_end) {
		uint32_t want = st->region_want ? st->region_want : REGION_MIN;

		if (want < *n)
			want = *n;
		st->region_want = want * 2 > REGION_MAX ? REGION_MAX : want * 2;
		*err = region(pool, st, at, want, *n);
		if (*err < 0)
			return 0;
	}
	if (*n > st->region_end - st->region_next)
		*n = st->region_end - st->region_next;
	b = (sfs_block)(st->region_chunk + 1) << 32 | st->region_next;
	st->region_next += *n;
	if (at != SFS_ANYWHERE && st->run < HUGE * LEFT_OUT)
		st->run += *n;
	return b;
}

void sfs_staging_untake(struct sfs_staging *st, uint32_t number, sfs_block b, uint32_t n)
{
	if (n > 0 && st->number == number && (uint32_t)(b >> 32) == st->region_chunk + 1 && st->region_next == (uint32_t)b + n)
		st->region_next -= n;
}
