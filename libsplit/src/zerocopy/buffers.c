/* SPDX-License-Identifier: Apache-2.0 */
#include "zerocopy/buffers.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/hash.h"
#include "base/protect.h"
#include "base/sys.h"
#include "pm/map.h"
#include "zerocopy/view.h"

#define SLAB_BYTES (64ul << 10)

struct sfs_buffer_table sfs_buffer_table = {.lock = {.brief = true}};

/* A handler of this thread may use buffers, too. */
static uint64_t lock_table(void)
{
	const uint64_t signals = sfs_signals_block();

	sfs_mutex_lock(&sfs_buffer_table.lock);
	return signals;
}

static void unlock_table(uint64_t signals)
{
	sfs_mutex_unlock(&sfs_buffer_table.lock);
	sfs_signals_restore(signals);
}

static struct sfs_buffer **chain_of(const void *p)
{
	return &sfs_buffer_table.chain[(uintptr_t)p * SFS_HASH_FACTOR >> 52];
}
_Static_assert(SFS_BUFFER_CHAINS == 1u << (64 - 52), "the upper bits of a hash are a chain");

static struct sfs_buffer *find_locked(const void *p)
{
	struct sfs_buffer *b = *chain_of(p);

	while (b && b->p != p)
		b = b->next;
	return b;
}

static struct sfs_buffer_pool *pool_locked(int number)
{
	for (uint32_t i = 0; number > 0 && i < SFS_BUFFER_POOLS_MAX; i++)
		if (sfs_buffer_table.pools[i].number == number)
			return &sfs_buffer_table.pools[i];
	return NULL;
}

/* The blocks of a buffer, which are its own alone. */
static uint8_t *blocks_of(const struct sfs_buffer *b)
{
	return b->p - (uintptr_t)b->p % SFS_BLOCK;
}

static uint64_t bytes_of(const struct sfs_buffer *b)
{
	return (uint64_t)b->blocks * SFS_BLOCK;
}

static int protect(void *p, uint64_t n, int prot)
{
	return (int)sys_call3(SYS_mprotect, (long)p, (long)n, prot);
}

/* Its addresses stay taken, as those of the staging file do, and have no memory any more. */
static void bar(const struct sfs_buffer *b)
{
	sys_mmap(blocks_of(b), bytes_of(b), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* ---- pools */

int sfs_buffers_create(struct sfs_pool *from, uint64_t bytes)
{
	const uint64_t signals = lock_table();
	int number = -ENOSPC;

	for (uint32_t i = 0; number < 0 && i < SFS_BUFFER_POOLS_MAX; i++) {
		if (sfs_buffer_table.pools[i].number)
			continue;
		do
			sfs_buffer_table.last = sfs_buffer_table.last == SFS_POOL_NUMBERS - 1 ? 1 : sfs_buffer_table.last + 1;
		while (pool_locked(sfs_buffer_table.last));
		number = sfs_buffer_table.last;
		sfs_buffer_table.pools[i] =
			(struct sfs_buffer_pool){number, from, bytes / SFS_BLOCK + (bytes % SFS_BLOCK != 0), 0};
	}
	unlock_table(signals);
	return number;
}

int sfs_buffers_destroy(int number)
{
	const uint64_t signals = lock_table();
	struct sfs_buffer_pool *pool = pool_locked(number);
	const int r = !pool ? -EINVAL : pool->taken > 0 ? -EBUSY : 0;

	if (r == 0)
		*pool = (struct sfs_buffer_pool){0};
	unlock_table(signals);
	return r;
}

struct sfs_pool *sfs_buffers_from(int number)
{
	const uint64_t signals = lock_table();
	const struct sfs_buffer_pool *pool = pool_locked(number);
	struct sfs_pool *from = pool ? pool->from : NULL;

	unlock_table(signals);
	return from;
}

/* ---- buffers */

static struct sfs_buffer *new_locked(void)
{
	struct sfs_buffer *b = sfs_buffer_table.free_buffers;

	if (!b) {
		b = sys_mmap(NULL, SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (sys_is_err(b))
			return NULL;
		for (size_t i = 0; i < SLAB_BYTES / sizeof(*b); i++) {
			b[i].next = sfs_buffer_table.free_buffers;
			sfs_buffer_table.free_buffers = &b[i];
		}
		b = sfs_buffer_table.free_buffers;
	}
	sfs_buffer_table.free_buffers = b->next;
	return b;
}

static int alloc_locked(struct sfs_buffer_pool *pool, uint64_t off, uint64_t len, uint32_t blocks, struct sfs_buffer **out)
{
	uint32_t chunk, first;
	struct sfs_buffer *b;
	int r;

	if (sfs_buffer_table.count == SFS_BUFFERS_MAX || blocks > pool->blocks - pool->taken)
		return -ENOSPC;
	b = new_locked();
	if (!b)
		return -ENOMEM;
	r = sfs_chunk_take(pool->from, blocks, &chunk, &first);
	if (r == 0) {
		/* The program's to store to. */
		r = sfs_unprotect(pool->from->chunks[chunk].base + (uint64_t)first * SFS_BLOCK, (uint64_t)blocks * SFS_BLOCK,
				  PROT_READ | PROT_WRITE);
		if (r < 0)
			sfs_chunk_give(pool->from, chunk, first, blocks, true);
	}
	if (r < 0) {
		b->next = sfs_buffer_table.free_buffers;
		sfs_buffer_table.free_buffers = b;
		return r;
	}
	*b = (struct sfs_buffer){.p = pool->from->chunks[chunk].base + (uint64_t)first * SFS_BLOCK + off % SFS_BLOCK,
				 .len = len,
				 .from = pool->from,
				 .pool = pool->number,
				 .chunk = chunk,
				 .first = first,
				 .blocks = blocks,
				 .state = SFS_BUFFER_OPEN};
	b->next = *chain_of(b->p);
	*chain_of(b->p) = b;
	pool->taken += blocks;
	sfs_buffer_table.count++;
	*out = b;
	return 0;
}

int sfs_buffer_alloc(int number, uint64_t off, uint64_t len, uint32_t *blocks, void **p)
{
	const uint64_t need = (off % SFS_BLOCK + len + SFS_BLOCK - 1) / SFS_BLOCK;
	const uint64_t signals = lock_table();
	struct sfs_buffer_pool *pool = pool_locked(number);
	struct sfs_buffer *b = NULL;
	int r = -EINVAL;

	if (pool)
		r = need > UINT32_MAX ? -ENOSPC : alloc_locked(pool, off, len, *blocks = (uint32_t)need, &b);
	if (r == 0)
		*p = b->p;
	unlock_table(signals);
	if (r == 0)
		sfs_pool_populate(b->from, (uint8_t *)*p - off % SFS_BLOCK, need * SFS_BLOCK);
	return r;
}

/*
 * What was not moved after all is still staged there, and read by us. When that is not to be had its private memory stays, which is
 * the same bytes.
 */
static void show_chunk(const struct sfs_buffer *b)
{
	sfs_map_staging_again(b->from->dax, blocks_of(b), bytes_of(b), b->from->chunks[b->chunk].fd,
			      (uint64_t)b->first * SFS_BLOCK);
}

static void free_locked(struct sfs_buffer *b)
{
	struct sfs_buffer_pool *pool = pool_locked(b->pool);
	struct sfs_buffer **at = chain_of(b->p);

	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	if (b->lost)
		bar(b);
	else if (b->state == SFS_BUFFER_SAVED)
		show_chunk(b);
	/* Where that fails it stays the program's to store to, and is not used again before all of the staging file is. */
	if (!b->lost && b->state == SFS_BUFFER_OPEN && sfs_protect(blocks_of(b), bytes_of(b), PROT_READ | PROT_WRITE) < 0)
		b->from->chunks[b->chunk].sealed = true;
	if (!b->lost)
		sfs_chunk_give(b->from, b->chunk, b->first, b->blocks, b->state == SFS_BUFFER_OPEN);
	pool->taken -= b->blocks;
	sfs_buffer_table.count--;
	b->p = NULL;
	b->state = SFS_BUFFER_FREE;
	b->next = sfs_buffer_table.free_buffers;
	sfs_buffer_table.free_buffers = b;
}

bool sfs_buffer_known(const void *p)
{
	const uint64_t signals = lock_table();
	const bool known = p && find_locked(p);

	unlock_table(signals);
	return known;
}

static bool is_patched_now(const struct sfs_buffer *b)
{
	return b->state == SFS_BUFFER_PATCHING || b->state == SFS_BUFFER_MOVED;
}

int sfs_buffer_free(void *p)
{
	const uint64_t signals = lock_table();
	struct sfs_buffer *b = p ? find_locked(p) : NULL;
	const int r = !b ? -EINVAL : is_patched_now(b) ? -EBUSY : 0;

	if (r == 0)
		free_locked(b);
	unlock_table(signals);
	return r;
}

/* ---- patching */

static int begin_locked(struct sfs_buffer *b, uint64_t len, uint64_t off, const struct sfs_pool *of)
{
	int r;

	if (is_patched_now(b))
		return -EBUSY;
	if (b->state != SFS_BUFFER_OPEN || len > b->len || ((uintptr_t)b->p ^ off) % SFS_BLOCK)
		return -EINVAL;
	if (b->from != of)
		return -EXDEV;
	/* No thread stores to it from here on: what is written back next is what the record stands for. */
	r = protect(blocks_of(b), bytes_of(b), PROT_READ);
	if (r < 0)
		return r;
	b->state = SFS_BUFFER_PATCHING;
	if (!b->lost)
		b->from->chunks[b->chunk].sealed = true; /* the buffer pins it: nobody looks now */
	return 0;
}

int sfs_buffer_begin(const void *p, uint64_t len, uint64_t off, const struct sfs_pool *of, bool *lost)
{
	const uint64_t signals = lock_table();
	struct sfs_buffer *b = p ? find_locked(p) : NULL;
	const int r = b ? begin_locked(b, len, off, of) : -EINVAL;

	*lost = b && b->lost;
	unlock_table(signals);
	return r;
}

void sfs_buffer_end(const void *p, bool patched)
{
	const uint64_t signals = lock_table();
	struct sfs_buffer *b = find_locked(p);

	/* Another one by now, or none: this is the child of a fork. */
	if (b && b->state == SFS_BUFFER_PATCHING) {
		if (!patched)
			protect(blocks_of(b), bytes_of(b), PROT_READ | PROT_WRITE);
		b->state = patched ? SFS_BUFFER_PATCHED : SFS_BUFFER_OPEN;
	} else if (b && b->state == SFS_BUFFER_MOVED) {
		b->state = SFS_BUFFER_SAVED;
	}
	unlock_table(signals);
}

int sfs_buffer_adopt(const void *p, const void *at, uint32_t n, struct sfs_staging *st, sfs_block *out)
{
	const uint64_t signals = lock_table();
	struct sfs_buffer *b = find_locked(p);
	int r = b && b->state == SFS_BUFFER_PATCHING && !b->lost ? 0 : -ESTALE;

	if (r == 0)
		r = sfs_staging_adopt(b->from, st, b->chunk, n);
	if (r == 0)
		*out = (sfs_block)(b->chunk + 1) << 32 |
		       (b->first + (uint32_t)(((const uint8_t *)at - blocks_of(b)) / SFS_BLOCK));
	unlock_table(signals);
	return r;
}

int sfs_buffers_save_slow(struct sfs_pool *from, uint32_t chunk, uint32_t first, uint32_t n)
{
	const uint64_t signals = lock_table();
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < SFS_BUFFER_CHAINS; i++) {
		for (struct sfs_buffer *b = sfs_buffer_table.chain[i]; b && r == 0; b = b->next) {
			if ((b->state != SFS_BUFFER_PATCHED && b->state != SFS_BUFFER_PATCHING) || b->from != from ||
			    b->chunk != chunk || b->lost || first >= b->first + b->blocks || b->first >= first + n)
				continue;
			from->chunks[chunk].holes = true; /* not all of its addresses are its own from here on */
			r = sfs_pages_save(blocks_of(b), bytes_of(b));
			if (r == 0)
				b->state = b->state == SFS_BUFFER_PATCHED ? SFS_BUFFER_SAVED : SFS_BUFFER_MOVED;
		}
	}
	unlock_table(signals);
	return r;
}

static void lose_locked(struct sfs_buffer *b)
{
	uint8_t *const p = blocks_of(b);
	const uint64_t n = bytes_of(b);
	int r = b->state == SFS_BUFFER_SAVED || b->state == SFS_BUFFER_MOVED ? 0 : sfs_pages_save(p, n);

	if (r == 0 && b->state == SFS_BUFFER_OPEN)
		r = protect(p, n, PROT_READ | PROT_WRITE);
	/* The staging file is somebody else's soon: better a fault than a store to what they write. */
	if (r < 0)
		bar(b);
	b->lost = true;
}

/* Addresses of a staging file that has buffers stay what they are: of the rest nothing is used any more. */
void sfs_buffers_lost(struct sfs_pool *from)
{
	const uint64_t signals = lock_table();

	for (uint32_t i = 0; i < SFS_BUFFER_CHAINS; i++) {
		for (struct sfs_buffer *b = sfs_buffer_table.chain[i]; b; b = b->next) {
			if (b->from != from || b->lost)
				continue;
			lose_locked(b);
			from->chunks[b->chunk].base = NULL;
		}
	}
	unlock_table(signals);
}

/*
 * Were its address free, a buffer of the child could get it, and what the program frees as its parent's would be that. Where something is
 * mapped already, as what was saved is, that stays.
 */
static void keep_address(const struct sfs_buffer *b)
{
	uint8_t *const at = blocks_of(b);
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
	void *p = sys_mmap(at, bytes_of(b), PROT_NONE, flags, -1, 0);

	/* A kernel before 4.17 takes the address for a wish. */
	if (!sys_is_err(p) && p != at)
		sys_munmap(p, bytes_of(b));
}

void sfs_buffers_forget(void)
{
	const int last = sfs_buffer_table.last;
	uint32_t n = 0; /* another thread of the parent may have been changing a chain, which ends nowhere then */

	for (uint32_t i = 0; i < SFS_BUFFER_CHAINS; i++)
		for (const struct sfs_buffer *b = sfs_buffer_table.chain[i]; b && n < SFS_BUFFERS_MAX; b = b->next, n++)
			keep_address(b);
	memset(&sfs_buffer_table, 0, sizeof(sfs_buffer_table));
	sfs_buffer_table.lock.brief = true;
	sfs_buffer_table.last = last; /* numbers of the parent's pools are none here */
}
