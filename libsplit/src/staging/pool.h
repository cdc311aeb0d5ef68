/* SPDX-License-Identifier: Apache-2.0 */
/* The staging files that this process has leased, and the blocks of them that are free. */
#ifndef SFS_POOL_H
#define SFS_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/lock.h"
#include "format/layout.h"

#define SFS_CHUNKS_MAX 256u

/* A staging file leased from the agent and mapped whole. */
struct sfs_chunk {
	uint32_t id;	  /* number in the pool */
	uint32_t blocks;  /* size */
	uint32_t mapped;  /* the same, before its end was shed */
	uint32_t used;	  /* blocks handed to inodes since the chunk was empty */
	uint32_t pins;	  /* inodes with a region of it, or records that name it and count; buffers of the program in it */
	uint32_t buffers; /* these alone */
	bool holes;	  /* relink took blocks away: what was used can't be used again */
	bool sealed;	  /* pages of buffers that were patched into files may not be stored to */
	int fd;		  /* -1: no chunk in this place of the array */
	uint8_t *base;
};

struct sfs_pool {
	struct sfs_mutex lease; /* one lease of a staging file at a time */
	struct sfs_mutex lock;	/* short */
	struct sfs_chunk chunks[SFS_CHUNKS_MAX];
	uint32_t nchunks;
	uint64_t chunk_bytes;	/* of a staging file, the largest there are; 0: not known */
	uint32_t current;	/* the chunk that regions come from */
	uint64_t region_blocks; /* blocks handed to inodes since those were last retired, under lock */
	/* On DAX, blocks that were left out for a long region to be congruent: short regions come from there first. Under lock. */
	uint32_t gap_chunk, gap_next, gap_end;
	uint32_t moving; /* relinks under way, atomic */
	bool dax;
	bool tmpfs;
	/*
	 * A file of the volume where relink copies, else -1. The target needs blocks of its own then: no more is staged than it has free.
	 */
	int copies_fd;
	void (*give_back)(struct sfs_pool *pool, uint32_t id); /* tell the agent; must not wait */
};

/*
 * Where the whole current content of one 4 KiB block is staged: chunk index + 1 in the upper half, block of the chunk in the lower; 0:
 * in the file.
 */
typedef uint64_t sfs_block;

static inline uint8_t *sfs_block_addr(const struct sfs_pool *pool, sfs_block b)
{
	return pool->chunks[(b >> 32) - 1].base + (uint64_t)(uint32_t)b * SFS_BLOCK;
}

/* The staging file is mapped and added; fd and the mapping become the pool's. -ENOSPC: there are as many as may be. */
int sfs_pool_add(struct sfs_pool *pool, uint32_t id, uint64_t len, int fd);
/* Is there space for so many blocks without another lease? */
bool sfs_pool_room(struct sfs_pool *pool, uint64_t blocks);
/* So many blocks are left without another lease, of all staging files. */
uint64_t sfs_pool_left(struct sfs_pool *pool);
/*
 * n blocks in a row of one staging file, for a buffer of the program; they pin it. -ENOBUFS: none has so many.
 */
int sfs_chunk_take(struct sfs_pool *pool, uint32_t n, uint32_t *chunk, uint32_t *first);
/* The buffer goes. unused: no record has named the blocks. */
void sfs_chunk_give(struct sfs_pool *pool, uint32_t chunk, uint32_t first, uint32_t n, bool unused);
/* Page tables for blocks that are about to be filled, at once: a fault per page would cost more than the copy. */
void sfs_pool_populate(const struct sfs_pool *pool, uint8_t *p, size_t n);
/*
 * The file system is full, and staged bytes are to be brought into their files: the ends of staging files that nobody has had yet give some space
 * up for that. False: there is none.
 */
bool sfs_pool_shed(struct sfs_pool *pool);
/*
 * In the handler of SIGBUS: may the store to addr be made again? While a relink shares blocks with a file, a store to the page that they or their
 * neighbours are in needs space, which a full file system does not have: that is over when the relink has taken them out of the staging
 * file. Waits a little. False: the address is none of the pool's, or the space can't be waited for.
 */
bool sfs_pool_awaits_space(const struct sfs_pool *pool, uintptr_t addr);
/* The volume has been idle: the agent gets all staging files back but one. Their warm page tables go with them. */
void sfs_pool_idle(struct sfs_pool *pool);
/* All in which nothing is staged go back. False: there was none. */
bool sfs_pool_empty(struct sfs_pool *pool);
/* How many there are; a guess without the lock. */
int sfs_pool_count(const struct sfs_pool *pool);
/* Every staging file is unmapped and closed, without a word to the agent. unmap: they are mapped in this process. */
void sfs_pool_drop(struct sfs_pool *pool, bool unmap);
/* lock held: no record that counts names the chunk and no inode has a region of it: it starts over, or goes back. */
void sfs_chunk_unpin(struct sfs_pool *pool, struct sfs_chunk *c);
/* lock held: a staging file with space, or NULL. */
struct sfs_chunk *sfs_pool_with_space(struct sfs_pool *pool);
/* May so many more blocks be staged? 0, or -ENOSPC. */
int sfs_pool_covered(const struct sfs_pool *pool, uint64_t blocks);

#endif
