/* SPDX-License-Identifier: Apache-2.0 */
#include "staging/pool.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include "base/fault.h"
#include "base/protect.h"
#include "base/sys.h"
#include "fds/own.h"
#include "pm/map.h"

#define SPARE_BLOCKS  16u
#define SHED_BLOCKS   64u
#define FAULT_AROUND  (64ul << 10) /* bytes that the kernel maps at one fault, and aligned to that, where they are in memory */
#define AWAIT_NS      20000000	   /* so long a store waits for space that a relink is about to give back */
#define AWAIT_MOVE_NS 5000000000   /* and that a relink under way may give back */
/* A staging file with less unused space than this, 2 MiB, goes back. */
#ifndef WORTH_BLOCKS
#define WORTH_BLOCKS 512u
#endif

static void no_gap_of(struct sfs_pool *pool, const struct sfs_chunk *c)
{
	if (c == &pool->chunks[pool->gap_chunk])
		pool->gap_next = pool->gap_end = 0;
}

static void give_back(struct sfs_pool *pool, struct sfs_chunk *c)
{
	const uint32_t id = c->id;

	no_gap_of(pool, c);
	sys_munmap(c->base, (uint64_t)c->mapped * SFS_BLOCK);
	sfs_private_close(c->fd);
	*c = (struct sfs_chunk){.fd = -1};
	pool->give_back(pool, id);
}

/* What buffers have had is like the rest of it again. */
static int store_again(const struct sfs_chunk *c)
{
	const uint64_t n = (uint64_t)c->blocks * SFS_BLOCK;
	const int r = (int)sys_call3(SYS_mprotect, (long)c->base, (long)n, PROT_READ | PROT_WRITE);

	return r < 0 ? r : sfs_protect(c->base, n, PROT_READ | PROT_WRITE);
}

void sfs_chunk_unpin(struct sfs_pool *pool, struct sfs_chunk *c)
{
	if (--c->pins > 0)
		return;
	/* What can't be stored to is as good as a hole. */
	if (!c->holes && c->sealed)
		c->holes = store_again(c) < 0;
	c->sealed = c->sealed && c->holes;
	if (!c->holes) {
		c->used = 0;
		no_gap_of(pool, c);
	} else if (c->used + WORTH_BLOCKS > c->blocks) {
		give_back(pool, c);
	}
}

/* True: some have gone. */
static bool give_empty(struct sfs_pool *pool, bool all)
{
	bool kept = all, some = false;

	sfs_mutex_lock(&pool->lock);
	for (uint32_t i = 0; i < pool->nchunks; i++) {
		struct sfs_chunk *c = &pool->chunks[i];

		if (c->fd >= 0 && c->pins == 0 && kept) {
			give_back(pool, c);
			some = true;
		}
		kept = kept || c->fd >= 0;
	}
	sfs_mutex_unlock(&pool->lock);
	return some;
}

void sfs_pool_idle(struct sfs_pool *pool)
{
	give_empty(pool, false);
}

bool sfs_pool_empty(struct sfs_pool *pool)
{
	return give_empty(pool, true);
}

int sfs_pool_count(const struct sfs_pool *pool)
{
	int n = 0;

	for (uint32_t i = 0; i < load_acquire(&pool->nchunks); i++)
		n += __atomic_load_n(&pool->chunks[i].fd, __ATOMIC_RELAXED) >= 0;
	return n;
}

/* Cutting a file off takes no space, as punching a hole may. */
bool sfs_pool_shed(struct sfs_pool *pool)
{
	uint32_t left = SHED_BLOCKS;

	sfs_mutex_lock(&pool->lock);
	for (uint32_t i = 0; i < pool->nchunks && left > 0; i++) {
		struct sfs_chunk *c = &pool->chunks[i];
		const uint32_t unused = c->fd < 0 ? 0 : c->blocks - c->used, n = unused < left ? unused : left;

		if (n == 0 || sys_ftruncate(c->fd, (off_t)(c->blocks - n) * SFS_BLOCK) < 0)
			continue;
		left -= n;
		c->blocks -= n;
		if (c->pins == 0 && c->blocks == c->used)
			give_back(pool, c);
	}
	sfs_mutex_unlock(&pool->lock);
	return left < SHED_BLOCKS;
}

static bool has_address(const struct sfs_pool *pool, uintptr_t addr)
{
	for (uint32_t i = 0; i < load_acquire(&pool->nchunks); i++) {
		const struct sfs_chunk *c = &pool->chunks[i];

		if (c->base && addr - (uintptr_t)c->base < (uint64_t)c->mapped * SFS_BLOCK)
			return true;
	}
	return false;
}

bool sfs_pool_awaits_space(const struct sfs_pool *pool, uintptr_t addr)
{
	int64_t lasts;

	if (pool->dax || pool->tmpfs || !has_address(pool, addr))
		return false;
	lasts = sfs_fault_lasts(addr);
	/* One that has just ended may have been the reason. */
	if (lasts > (__atomic_load_n(&pool->moving, __ATOMIC_ACQUIRE) ? AWAIT_MOVE_NS : AWAIT_NS))
		return false;
	sys_nap(AWAIT_NS / 100);
	return true;
}

struct sfs_chunk *sfs_pool_with_space(struct sfs_pool *pool)
{
	for (uint32_t n = 0; n < pool->nchunks; n++) {
		struct sfs_chunk *c = &pool->chunks[pool->current];

		if (c->fd >= 0 && c->used < c->blocks)
			return c;
		pool->current = pool->current + 1 < pool->nchunks ? pool->current + 1 : 0;
	}
	return NULL;
}

uint64_t sfs_pool_left(struct sfs_pool *pool)
{
	uint64_t have = 0;

	sfs_mutex_lock(&pool->lock);
	for (uint32_t i = 0; i < pool->nchunks; i++)
		if (pool->chunks[i].fd >= 0)
			have += pool->chunks[i].blocks - pool->chunks[i].used;
	sfs_mutex_unlock(&pool->lock);
	return have;
}

bool sfs_pool_room(struct sfs_pool *pool, uint64_t blocks)
{
	return sfs_pool_left(pool) >= blocks;
}

int sfs_chunk_take(struct sfs_pool *pool, uint32_t n, uint32_t *chunk, uint32_t *first)
{
	int r = -ENOBUFS;

	sfs_mutex_lock(&pool->lock);
	for (uint32_t i = 0; r < 0 && i < pool->nchunks; i++) {
		struct sfs_chunk *c = &pool->chunks[i];

		if (c->fd < 0 || c->blocks - c->used < n)
			continue;
		*chunk = i;
		*first = c->used;
		c->used += n;
		c->pins++;
		c->buffers++;
		r = 0;
	}
	sfs_mutex_unlock(&pool->lock);
	return r;
}

void sfs_chunk_give(struct sfs_pool *pool, uint32_t chunk, uint32_t first, uint32_t n, bool unused)
{
	struct sfs_chunk *c = &pool->chunks[chunk];

	sfs_mutex_lock(&pool->lock);
	if (unused && c->used == first + n)
		c->used = first;
	c->buffers--;
	sfs_chunk_unpin(pool, c);
	sfs_mutex_unlock(&pool->lock);
}

/*
 * tmpfs maps pages writable at a read, and their
 * neighbours with them; madvise would do it page by page, and note for each that it was used, which takes three times as long.
 */
void sfs_pool_populate(const struct sfs_pool *pool, uint8_t *p, size_t n)
{
	if (pool->dax)
		return; /* huge pages have it; page by page the kernel takes as long for them now as at the faults */
	if (!pool->tmpfs) {
		sfs_map_populate(p, n);
		return;
	}
	for (const uint8_t *end = p + n; p < end; p = (uint8_t *)(((uintptr_t)p | (FAULT_AROUND - 1)) + 1))
		(void)*(const volatile uint8_t *)p;
}

int sfs_pool_add(struct sfs_pool *pool, uint32_t id, uint64_t len, int fd)
{
	void *p = sfs_map_staging(pool->dax, len, fd);
	uint32_t i;

	if (sys_is_err(p))
		return (int)(long)p;
	sys_madvise(p, len, MADV_DONTFORK);
	sfs_mutex_lock(&pool->lock);
	for (i = 0; i < pool->nchunks && pool->chunks[i].fd >= 0; i++)
		;
	if (i < SFS_CHUNKS_MAX) {
		const uint32_t blocks = (uint32_t)(len / SFS_BLOCK);

		pool->chunks[i] = (struct sfs_chunk){.id = id, .blocks = blocks, .mapped = blocks, .fd = fd, .base = p};
		if (i == pool->nchunks)
			store_release(&pool->nchunks, i + 1);
		pool->current = i;
	}
	sfs_mutex_unlock(&pool->lock);
	if (i < SFS_CHUNKS_MAX)
		return 0;
	sys_munmap(p, len);
	return -ENOSPC;
}

void sfs_pool_drop(struct sfs_pool *pool, bool unmap)
{
	for (uint32_t i = 0; i < pool->nchunks; i++) {
		struct sfs_chunk *c = &pool->chunks[i];

		if (c->fd < 0)
			continue;
		if (unmap && c->base)
			sys_munmap(c->base, (uint64_t)c->mapped * SFS_BLOCK);
		sfs_private_close(c->fd);
		*c = (struct sfs_chunk){.fd = -1};
	}
	pool->nchunks = pool->current = pool->moving = pool->gap_next = pool->gap_end = 0;
}

/*
 * Refuse now, as write(2) on a full file system does, and not after the data was acknowledged. Needs no exactness, other programs use space
 * too: what does not fit in the end stays staged.
 */
int sfs_pool_covered(const struct sfs_pool *pool, uint64_t blocks)
{
	struct statfs sf;
	const uint64_t want = pool->region_blocks + blocks + SPARE_BLOCKS;

	if (pool->copies_fd < 0 || sys_call2(SYS_fstatfs, pool->copies_fd, (long)&sf) < 0)
		return 0;
	return (uint64_t)sf.f_bavail * (uint64_t)sf.f_bsize / SFS_BLOCK < want ? -ENOSPC : 0;
}
