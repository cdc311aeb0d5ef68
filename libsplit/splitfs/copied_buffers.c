/* SPDX-License-Identifier: Apache-2.0 */
#include "copied_buffers.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "splitfs_core.h"

#define PAGE	4096u
#define POOLS	64u
#define BUFFERS 4096u

/* A place is somebody's who has made its state BUSY, and shows what it holds in the others. */
enum state { FREE, BUSY, OPEN, PATCHED };

static struct pool {
	_Atomic(enum state) state; /* FREE, BUSY, OPEN */
	pid_t owner;
	atomic_uint serial; /* of the pools in this place: the upper part of a number */
	size_t pages;
	atomic_size_t taken;
} pools[POOLS];

static struct buffer {
	_Atomic(enum state) state;
	_Atomic(void *) p;
	pid_t owner;
	struct pool *pool;
	size_t len, pages;
} buffers[BUFFERS];

static int number_of(const struct pool *pool)
{
	const unsigned serial = atomic_load(&pool->serial) % (unsigned)(SPLITFS_CORE_POOLS_END / POOLS);

	return SPLITFS_CORE_POOLS_END + (int)(serial * POOLS) + (int)(pool - pools);
}

static struct pool *pool_of(int number)
{
	struct pool *pool = &pools[(unsigned)number % POOLS];

	return atomic_load(&pool->state) == OPEN && number_of(pool) == number && pool->owner == getpid() ? pool : NULL;
}

/* In the child of a fork nothing is mapped at its parent's buffers; nothing is to be, for it could be a buffer of the child. */
static void keep_addresses(void)
{
	for (unsigned i = 0; i < BUFFERS; i++) {
		const struct buffer *b = &buffers[i];
		char *p = atomic_load(&b->p), *at = p - (uintptr_t)p % PAGE, *kept;

		if (!p || b->owner == getpid())
			continue;
		kept = mmap(at, b->pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE,
			    -1, 0);
		if (kept != MAP_FAILED && kept != at)
			munmap(kept, b->pages * PAGE);
	}
}

int splitfs_copied_pool(size_t size)
{
	static atomic_flag watched = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&watched))
		pthread_atfork(NULL, NULL, keep_addresses);
	for (unsigned i = 0; i < POOLS; i++) {
		struct pool *pool = &pools[i];
		enum state old = FREE;

		/* One that a child of a fork finds is its parent's. */
		if (!atomic_compare_exchange_strong(&pool->state, &old, BUSY) &&
		    !(old == OPEN && pool->owner != getpid() && atomic_compare_exchange_strong(&pool->state, &old, BUSY)))
			continue;
		pool->owner = getpid();
		pool->pages = size / PAGE + (size % PAGE != 0);
		atomic_store(&pool->taken, 0);
		atomic_fetch_add(&pool->serial, 1);
		atomic_store(&pool->state, OPEN);
		return number_of(pool);
	}
	return -ENOSPC;
}

int splitfs_copied_pool_end(int number)
{
	struct pool *pool = pool_of(number);
	enum state open = OPEN;
	int busy;

	if (!pool || !atomic_compare_exchange_strong(&pool->state, &open, BUSY))
		return -EINVAL;
	busy = atomic_load(&pool->taken) > 0;
	atomic_store(&pool->state, busy ? OPEN : FREE);
	return busy ? -EBUSY : 0;
}

/* So many pages of the pool are the caller's. A pool that ends meanwhile is none. */
static int reserve(int number, size_t pages, struct pool **out)
{
	struct pool *pool = pool_of(number);
	size_t taken = pool ? atomic_load(&pool->taken) : 0;

	if (!pool)
		return -EINVAL;
	do {
		if (pages > pool->pages - taken)
			return -ENOSPC;
	} while (!atomic_compare_exchange_weak(&pool->taken, &taken, taken + pages));
	*out = pool;
	if (pool_of(number) == pool)
		return 0;
	atomic_fetch_sub(&pool->taken, pages);
	return -EINVAL;
}

static struct buffer *free_place(void)
{
	for (unsigned i = 0; i < BUFFERS; i++) {
		enum state old = FREE;

		if (atomic_compare_exchange_strong(&buffers[i].state, &old, BUSY) ||
		    ((old == OPEN || old == PATCHED) && buffers[i].owner != getpid() &&
		     atomic_compare_exchange_strong(&buffers[i].state, &old, BUSY)))
			return &buffers[i];
	}
	return NULL;
}

static int fill_place(struct buffer *b, off_t off, size_t len, size_t pages)
{
	char *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	madvise(p, pages * PAGE, MADV_DONTFORK);
	b->owner = getpid();
	b->len = len;
	b->pages = pages;
	atomic_store(&b->p, p + (size_t)off % PAGE);
	return 0;
}

int splitfs_copied_alloc(int number, off_t off, size_t len, void **p)
{
	const size_t pages = ((size_t)off % PAGE + len + PAGE - 1) / PAGE;
	struct pool *pool;
	struct buffer *b;
	int r = reserve(number, pages, &pool);

	if (r < 0)
		return r;
	b = free_place();
	r = b ? fill_place(b, off, len, pages) : -ENOSPC;
	if (r == 0) {
		*p = atomic_load(&b->p);
		b->pool = pool;
	} else {
		atomic_fetch_sub(&pool->taken, pages);
	}
	if (b)
		atomic_store(&b->state, r == 0 ? OPEN : FREE);
	return r;
}

/* It is ours from here on, until its state is set; *was: its state before. 0, -EINVAL or -EBUSY. */
static int take(const void *p, struct buffer **out, enum state *was)
{
	for (unsigned i = 0; p && i < BUFFERS; i++) {
		struct buffer *b = &buffers[i];

		if (atomic_load(&b->p) != p)
			continue;
		*was = atomic_load(&b->state);
		if (*was == FREE)
			continue;
		if (*was == BUSY || !atomic_compare_exchange_strong(&b->state, was, BUSY))
			return -EBUSY;
		if (b->owner == getpid() && atomic_load(&b->p) == p) {
			*out = b;
			return 0;
		}
		atomic_store(&b->state, *was);
	}
	return -EINVAL;
}

static char *pages_of(const struct buffer *b)
{
	char *p = atomic_load(&b->p);

	return p - (uintptr_t)p % PAGE;
}

int splitfs_copied_free(void *buf)
{
	struct buffer *b;
	struct pool *pool;
	enum state was;
	char *pages;
	size_t n;
	int r = take(buf, &b, &was);

	if (r < 0)
		return r;
	pages = pages_of(b);
	n = b->pages;
	pool = b->pool;
	atomic_store(&b->p, NULL);
	atomic_store(&b->state, FREE);
	/* The next mapping may have the same address: this place must not be found by it any more. */
	munmap(pages, n * PAGE);
	atomic_fetch_sub(&pool->taken, n);
	return 0;
}

ssize_t splitfs_copied_patch(int fd, void *buf, size_t len, off_t off)
{
	struct buffer *b;
	enum state was;
	ssize_t r = take(buf, &b, &was);
	int flags;

	if (r < 0)
		return r;
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || (flags & O_PATH))
		r = -EBADF;
	else if (was != OPEN || off < 0 || len > b->len || ((size_t)off ^ (uintptr_t)buf) % PAGE || (flags & O_APPEND))
		r = -EINVAL;
	else if (mprotect(pages_of(b), b->pages * PAGE, PROT_READ) < 0)
		r = -errno;
	else {
		r = pwrite(fd, buf, len, off);
		r = r < 0 ? -errno : r;
		if (r <= 0)
			mprotect(pages_of(b), b->pages * PAGE, PROT_READ | PROT_WRITE);
	}
	atomic_store(&b->state, r > 0 ? PATCHED : was);
	return r;
}
