/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging: space in leased staging files, and the table that says which blocks of a file have their content there.
 *
 * Staged bytes that a record names are never changed (a record may carry their checksum). A write to a staged block therefore
 * takes a new block, and only bytes beyond the end of the file in its last staged block, which no record names, are written in
 * place. A staging file is used again when every inode that pinned it has had its records retired.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include "base/sys.h"
#include "core/map.h"

#define REGION_MIN   4u	  /* blocks: a small file should not keep a large region */
#define REGION_MAX   512u /* 2 MiB */
#define SPARE_BLOCKS 16u
#define FAULT_AROUND (64ul << 10) /* bytes that the kernel maps at one fault, and aligned to that, where they are in memory */

/* Room for entries of `blocks` blocks. Growing moves the table; only touched pages of it are resident. */
int sfs_stage_table(struct sfs_inode *in, uint64_t blocks)
{
	uint64_t want = in->table_blocks ? in->table_blocks : 1 << 18; /* a 1 GiB file */
	void *p;

	if (blocks <= in->table_blocks)
		return 0;
	while (want < blocks)
		want *= 2;
	if (in->table)
		p = (void *)sys_call5(SYS_mremap, (long)in->table, (long)(in->table_blocks * sizeof(sfs_block)),
				      (long)(want * sizeof(sfs_block)), MREMAP_MAYMOVE, 0);
	else
		p = sfs_map_sparse(want * sizeof(sfs_block));
	if (sys_is_err(p))
		return (int)(long)p;
	in->table = p;
	in->table_blocks = want;
	return 0;
}

void sfs_stage_set(struct sfs_inode *in, uint64_t blk, sfs_block b)
{
	const bool none = in->staged == 0;

	/*
	 * Readers may look meanwhile, and a fork may take a copy of it as it is: no entry is outside first and last at any time. Before the
	 * first one there is none at all, and it does not matter where they are.
	 */
	if (none || blk >= in->last)
		__atomic_store_n(&in->last, blk + 1, __ATOMIC_RELAXED);
	if (none || blk < in->first)
		__atomic_store_n(&in->first, blk, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (in->table[blk] == 0)
		__atomic_store_n(&in->staged, in->staged + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&in->table[blk], b, __ATOMIC_RELAXED);
}

/* The inode is about to get its first record since the last one was retired. */
void sfs_stage_live(struct sfs_inode *in)
{
	if (in->live)
		return;
	in->live = true;
	__atomic_add_fetch(&in->vol->live, 1, __ATOMIC_ACQ_REL);
}

static void give_back(struct sfs_volume *vol, struct sfs_chunk *c)
{
	sys_munmap(c->base, (uint64_t)c->blocks * SFS_BLOCK);
	sfs_private_close(c->fd);
	sfs_agent_return(vol, c->id);
	*c = (struct sfs_chunk){.fd = -1};
}

/* stage lock held. No record that counts names the chunk and no inode has a region of it: it starts over, or goes back. */
static void empty(struct sfs_volume *vol, struct sfs_chunk *c)
{
	if (!c->holes)
		c->used = 0;
	else if (c->used + REGION_MAX > c->blocks)
		give_back(vol, c);
}

/* The inode's records are retired: it lets go of its region and of every staging file they named. */
void sfs_stage_retired(struct sfs_inode *in)
{
	struct sfs_volume *vol = in->vol;

	in->unretired = in->uncommitted = in->committed = in->kept = in->blocked = false;
	if (!in->live)
		return;
	in->live = false;
	__atomic_sub_fetch(&vol->live, 1, __ATOMIC_ACQ_REL);
	sfs_mutex_lock(&vol->stage);
	/* What it did not use of its region, if nobody took space behind it. */
	if (in->region_next < in->region_end && vol->chunks[in->region_chunk].used == in->region_end)
		vol->chunks[in->region_chunk].used = in->region_next;
	vol->region_blocks -= in->region_taken;
	for (uint32_t w = 0; w < SFS_CHUNKS_MAX / 64; w++) {
		for (uint64_t bits = in->pinned[w]; bits; bits &= bits - 1) {
			struct sfs_chunk *c = &vol->chunks[w * 64 + (uint32_t)__builtin_ctzll(bits)];

			if (--c->pins == 0)
				empty(vol, c);
		}
		in->pinned[w] = 0;
	}
	sfs_mutex_unlock(&vol->stage);
	in->region_next = in->region_end = in->region_want = in->region_taken = 0;
}

/* The volume has been idle: the pool gets all staging files back but one. Their warm page tables go with them. */
void sfs_stage_idle(struct sfs_volume *vol)
{
	bool kept = false;

	sfs_mutex_lock(&vol->stage);
	for (uint32_t i = 0; i < vol->nchunks; i++) {
		struct sfs_chunk *c = &vol->chunks[i];

		if (c->fd >= 0 && c->pins == 0 && kept)
			give_back(vol, c);
		kept = kept || c->fd >= 0;
	}
	sfs_mutex_unlock(&vol->stage);
}

/* stage lock held: a staging file with space, or NULL. */
static struct sfs_chunk *with_space(struct sfs_volume *vol)
{
	for (uint32_t n = 0; n < vol->nchunks; n++) {
		struct sfs_chunk *c = &vol->chunks[vol->current];

		if (c->fd >= 0 && c->used < c->blocks)
			return c;
		vol->current = vol->current + 1 < vol->nchunks ? vol->current + 1 : 0;
	}
	return NULL;
}

/* Is there staging space for so many blocks without another lease? */
bool sfs_stage_room(struct sfs_volume *vol, uint64_t blocks)
{
	uint64_t have = 0;

	sfs_mutex_lock(&vol->stage);
	for (uint32_t i = 0; i < vol->nchunks && have < blocks; i++)
		if (vol->chunks[i].fd >= 0)
			have += vol->chunks[i].blocks - vol->chunks[i].used;
	sfs_mutex_unlock(&vol->stage);
	return have >= blocks;
}

/*
 * One more staging file unless there is room for so many blocks already (another thread's lease serves as well). -ENOSPC: the pool
 * is empty, or this process has as many as it may.
 */
int sfs_stage_lease(struct sfs_volume *vol, uint64_t blocks)
{
	uint64_t len = 0;
	uint32_t id = 0, i;
	int fd = -1, r = 0;
	void *p;

	sfs_mutex_lock(&vol->lease);
	if (!sfs_stage_room(vol, blocks))
		r = sfs_agent_chunk(vol, blocks * SFS_BLOCK, &id, &len, &fd);
	if (r < 0 || fd < 0) {
		sfs_mutex_unlock(&vol->lease);
		return r;
	}
	p = sfs_map_staging(vol, len, fd);
	sfs_mutex_lock(&vol->stage);
	for (i = 0; i < vol->nchunks && vol->chunks[i].fd >= 0; i++)
		;
	if (sys_is_err(p) || i == SFS_CHUNKS_MAX) {
		sfs_mutex_unlock(&vol->stage);
		r = sys_is_err(p) ? (int)(long)p : -ENOSPC;
		if (!sys_is_err(p))
			sys_munmap(p, len);
		sfs_private_close(fd);
		sfs_agent_return(vol, id);
	} else {
		sys_madvise(p, len, MADV_DONTFORK);
		vol->chunks[i] = (struct sfs_chunk){.id = id, .blocks = (uint32_t)(len / SFS_BLOCK), .fd = fd, .base = p};
		if (i == vol->nchunks)
			store_release(&vol->nchunks, i + 1);
		vol->current = i;
		sfs_mutex_unlock(&vol->stage);
	}
	sfs_mutex_unlock(&vol->lease);
	return r;
}

/*
 * Where relink copies, the target needs blocks of its own: refuse now, as write(2) on a full file system does, and not after
 * the data was acknowledged. Needs no exactness, other programs use space too: what does not fit in the end stays staged.
 */
static int space(struct sfs_volume *vol, int fd, uint64_t blocks)
{
	struct statfs sf;
	const uint64_t want = vol->region_blocks + blocks + SPARE_BLOCKS;

	if (vol->provider != RELINK_COPY || sys_call2(SYS_fstatfs, fd, (long)&sf) < 0)
		return 0;
	return (uint64_t)sf.f_bavail * (uint64_t)sf.f_bsize / SFS_BLOCK < want ? -ENOSPC : 0;
}

/*
 * Page tables for a whole region at once: a fault per page would cost more than the copy. tmpfs maps pages writable at a read, and their
 * neighbours with them; madvise would do it page by page, and note for each that it was used, which takes three times as long.
 */
static void populate(const struct sfs_volume *vol, uint8_t *p, size_t n)
{
	if (vol->dax)
		return; /* huge pages have it; page by page the kernel takes as long for them now as at the faults */
	if (!vol->tmpfs) {
		sfs_map_populate(p, n);
		return;
	}
	for (const uint8_t *end = p + n; p < end; p = (uint8_t *)(((uintptr_t)p | (FAULT_AROUND - 1)) + 1))
		(void)*(const volatile uint8_t *)p;
}

/*
 * Give the inode `blocks` blocks or what one staging file has, following its region directly where that is possible.
 * -ENOBUFS: unlock the inode, lease a staging file, start again.
 */
static int region(struct sfs_inode *in, uint32_t blocks)
{
	struct sfs_volume *vol = in->vol;
	struct sfs_chunk *c;
	uint32_t index, n;
	int r = space(vol, in->fd, blocks);

	if (r < 0)
		return r;
	sfs_mutex_lock(&vol->stage);
	c = with_space(vol);
	if (!c) {
		sfs_mutex_unlock(&vol->stage);
		return -ENOBUFS;
	}
	index = (uint32_t)(c - vol->chunks);
	n = blocks < c->blocks - c->used ? blocks : c->blocks - c->used;
	if (in->region_end == 0 || in->region_chunk != index || in->region_end != c->used) {
		in->region_chunk = index;
		in->region_next = c->used;
	}
	if (!(in->pinned[index / 64] & 1ull << index % 64)) {
		in->pinned[index / 64] |= 1ull << index % 64;
		c->pins++;
	}
	c->used += n;
	in->region_end = c->used;
	in->region_taken += n;
	vol->region_blocks += n;
	sfs_mutex_unlock(&vol->stage);
	populate(vol, c->base + (uint64_t)(in->region_end - n) * SFS_BLOCK, (uint64_t)n * SFS_BLOCK);
	return 0;
}

sfs_block sfs_stage_alloc(struct sfs_inode *in, uint32_t *n, int *err)
{
	sfs_block b;

	if (in->region_next == in->region_end) {
		uint32_t want = in->region_want ? in->region_want : REGION_MIN;

		if (want < *n)
			want = *n;
		in->region_want = want * 2 > REGION_MAX ? REGION_MAX : want * 2;
		*err = region(in, want);
		if (*err < 0)
			return 0;
	}
	if (*n > in->region_end - in->region_next)
		*n = in->region_end - in->region_next;
	b = (sfs_block)(in->region_chunk + 1) << 32 | in->region_next;
	in->region_next += *n;
	return b;
}
