/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Persistent buffers: blocks of leased staging files that the program fills where they are mapped, and that splitfs_patch(3)
 * makes a part of a file as they are.
 *
 *   state      what is true                                                       goes on as
 *   OPEN       the program stores to it                                           PATCHING; gone when it is freed
 *   PATCHING   nobody stores to it: one thread makes it a part of a file, and     PATCHED; OPEN where nothing came of it
 *              it can't be freed meanwhile                                      MOVED before relink moves blocks of it
 *   MOVED      the same, and its pages are private already                        SAVED
 *   PATCHED    nobody stores to it: records may name its blocks, which may not    SAVED before relink moves its blocks;
 *              be used for anything else before these are retired                 gone when it is freed
 *   SAVED      its pages are private memory in the place of the staging file's    gone when it is freed
 *
 * A buffer pins its staging file, and so does a file whose records name the blocks: they are used again when both have gone.
 * Where the agent has taken this process for dead (`lost`) all buffers are private memory, and what is patched is copied.
 *
 * The table of all buffers has a lock; the pool's is taken under it, and inode.lock is never.
 */
#ifndef SFS_BUFFERS_H
#define SFS_BUFFERS_H

#include "fds/table.h"
#include "staging/staging.h"

#define SFS_BUFFER_POOLS_MAX 64u    /* of the process */
#define SFS_BUFFERS_MAX	     65536u /* of the process */

enum sfs_buffer_state {
	SFS_BUFFER_FREE,
	SFS_BUFFER_OPEN,
	SFS_BUFFER_PATCHING,
	SFS_BUFFER_MOVED,
	SFS_BUFFER_PATCHED,
	SFS_BUFFER_SAVED
};

struct sfs_buffer {
	struct sfs_buffer *next; /* in its chain, or of the free ones */
	uint8_t *p;		 /* what the program has */
	uint64_t len;
	struct sfs_pool *from;
	int pool;
	uint32_t chunk, first, blocks;
	enum sfs_buffer_state state;
	bool lost;
};

struct sfs_buffer_pool {
	int number; /* 0: none */
	struct sfs_pool *from;
	uint64_t blocks; /* that its buffers may have */
	uint64_t taken;
};

/* Those of the process. */
#define SFS_BUFFER_CHAINS 4096u
struct sfs_buffer_table {
	struct sfs_mutex lock;
	struct sfs_buffer *chain[SFS_BUFFER_CHAINS];
	struct sfs_buffer *free_buffers;
	uint32_t count;
	struct sfs_buffer_pool pools[SFS_BUFFER_POOLS_MAX];
	int last; /* number of a pool */
};
extern struct sfs_buffer_table sfs_buffer_table __attribute__((visibility("hidden")));

/* A pool of `bytes` out of these staging files: its number, or -ENOSPC: there are too many. */
int sfs_buffers_create(struct sfs_pool *from, uint64_t bytes);
/* 0; -EINVAL: there is no such pool; -EBUSY: it has buffers. */
int sfs_buffers_destroy(int pool);
/* Where the pool's buffers come from; NULL: there is no such pool. */
struct sfs_pool *sfs_buffers_from(int pool);

/*
 * A buffer of `len` bytes, not none, for a range of a file that begins at `off`, which it is congruent to. -ENOBUFS: lease a
 * staging file with so many blocks in a row: *blocks; -ENOSPC: the pool has not so much left, or there are too many; -ENOMEM.
 */
int sfs_buffer_alloc(int pool, uint64_t off, uint64_t len, uint32_t *blocks, void **p);
bool sfs_buffer_known(const void *p);
/* 0; -EINVAL: there is none at p; -EBUSY: it is being patched. */
int sfs_buffer_free(void *p);

/*
 * OPEN to PATCHING, for the first `len` bytes at `off` of a file that has its staging files there. -EINVAL: there is none at p,
 * or it has been patched, is shorter, or not congruent; -EBUSY; -EXDEV: it is of another volume; -ENOMEM.
 */
int sfs_buffer_begin(const void *p, uint64_t len, uint64_t off, const struct sfs_pool *of, bool *lost);
/* PATCHING to PATCHED, or back to OPEN; MOVED to SAVED. */
void sfs_buffer_end(const void *p, bool patched);
/*
 * PATCHING: `n` whole blocks of it, which begin at `at`, become the file's. *b: where they are. -ESTALE: it is private memory by
 * now; -ENOSPC. inode.lock held.
 */
int sfs_buffer_adopt(const void *p, const void *at, uint32_t n, struct sfs_staging *st, sfs_block *b);

/* Before blocks of a staging file are moved: PATCHED to SAVED, PATCHING to MOVED. 0, or a negative errno value: they must not be moved. */
int sfs_buffers_save_slow(struct sfs_pool *from, uint32_t chunk, uint32_t first, uint32_t n);
static inline int sfs_buffers_save(struct sfs_pool *from, uint32_t chunk, uint32_t first, uint32_t n)
{
	return __builtin_expect(from->chunks[chunk].buffers > 0, 0) ? sfs_buffers_save_slow(from, chunk, first, n) : 0;
}

/* The staging files are about to be unmapped. */
void sfs_buffers_lost(struct sfs_pool *from);
/* In the child of a fork: it has none, and none of its own will have the number of a pool or the address of a buffer of its parent. */
void sfs_buffers_forget(void);

#endif
