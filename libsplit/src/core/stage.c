/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging: space in leased staging files, and the table that says which blocks of a file have their content there.
 *
 * Staged bytes that a record names are never changed (a record may carry their checksum). A write to a staged block therefore
 * takes a new block, and only bytes beyond the end of the file in its last staged block, which no record names, are written in
 * place. Space comes back when no inode of the volume has a live record (sfs_stage_recycle).
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include "base/sys.h"
#include "core/state.h"

#define REGION_MIN	     4u	  /* blocks: a small file should not keep a large region */
#define REGION_MAX	     512u /* 2 MiB */
#define SPARE_BLOCKS	     16u
#define MADV_POPULATE_WRITE_ 23 /* Linux 5.14 */

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
		p = sys_mmap(NULL, want * sizeof(sfs_block), PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (sys_is_err(p))
		return (int)(long)p;
	in->table = p;
	in->table_blocks = want;
	return 0;
}

void sfs_stage_set(struct sfs_inode *in, uint64_t blk, sfs_block b)
{
	if (in->staged == 0) {
		in->first = blk;
		in->last = blk + 1;
	} else {
		if (blk < in->first)
			in->first = blk;
		if (blk >= in->last)
			in->last = blk + 1;
	}
	if (in->table[blk] == 0)
		in->staged++;
	in->table[blk] = b;
}

/* The inode is about to get its first record since the last one was retired. */
void sfs_stage_live(struct sfs_inode *in)
{
	if (in->live)
		return;
	in->live = true;
	__atomic_add_fetch(&in->vol->live, 1, __ATOMIC_ACQ_REL);
}

/* What the inode did not use of its region, if nobody took space behind it. */
static void trim(struct sfs_inode *in)
{
	struct sfs_volume *vol = in->vol;

	if (in->region_next < in->region_end) {
		struct sfs_chunk *c = &vol->chunks[in->region_chunk];

		sfs_mutex_lock(&vol->stage);
		if (c->used == in->region_end)
			c->used = in->region_next;
		sfs_mutex_unlock(&vol->stage);
	}
	in->region_next = in->region_end = in->region_want = 0;
}

void sfs_stage_retired(struct sfs_inode *in)
{
	struct sfs_volume *vol = in->vol;

	trim(in);
	in->unretired = false;
	if (!in->live)
		return;
	in->live = false;
	if (__atomic_sub_fetch(&vol->live, 1, __ATOMIC_ACQ_REL) == 0)
		sfs_stage_recycle(vol);
}

static void give_back(struct sfs_volume *vol, const struct sfs_chunk *c)
{
	sys_munmap(c->base, (uint64_t)c->blocks * SFS_BLOCK);
	sfs_private_close(c->fd);
	sfs_agent_return(vol, c->id);
}

/*
 * Nothing in the log counts any more, so no staging offset is named and no inode holds a region (both need `live`, and an
 * inode becomes live before it takes the stage lock for a region).
 */
void sfs_stage_recycle(struct sfs_volume *vol)
{
	uint32_t kept = 0;

	sfs_mutex_lock(&vol->stage);
	if (load_acquire(&vol->live) == 0) {
		vol->region_blocks = 0;
		for (uint32_t i = 0; i < vol->nchunks; i++) {
			struct sfs_chunk c = vol->chunks[i];

			if (!c.holes)
				c.used = 0;
			if (c.holes && c.used + REGION_MAX > c.blocks)
				give_back(vol, &c);
			else
				vol->chunks[kept++] = c; /* entries name chunks by index, and there are no entries now */
		}
		vol->nchunks = kept;
		vol->current = 0;
	}
	sfs_mutex_unlock(&vol->stage);
}

/* The volume has been idle: the pool gets all staging files back but one. Their warm page tables go with them. */
void sfs_stage_idle(struct sfs_volume *vol)
{
	sfs_mutex_lock(&vol->stage);
	if (load_acquire(&vol->live) == 0) {
		while (vol->nchunks > 1)
			give_back(vol, &vol->chunks[--vol->nchunks]);
		vol->current = 0;
	}
	sfs_mutex_unlock(&vol->stage);
}

static int lease(struct sfs_volume *vol)
{
	struct sfs_chunk *c = &vol->chunks[vol->nchunks];
	uint64_t len;
	uint32_t id;
	int fd, r;
	void *p;

	if (vol->nchunks == SFS_CHUNKS_MAX)
		return -ENOSPC;
	r = sfs_agent_chunk(vol, &id, &len, &fd);
	if (r < 0)
		return r;
	p = sys_mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (sys_is_err(p)) {
		sfs_private_close(fd);
		sfs_agent_return(vol, id);
		return (int)(long)p;
	}
	sys_madvise(p, len, MADV_DONTFORK);
	*c = (struct sfs_chunk){.id = id, .blocks = (uint32_t)(len / SFS_BLOCK), .fd = fd, .base = p};
	store_release(&vol->nchunks, vol->nchunks + 1);
	return 0;
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

/* Give the inode `blocks` blocks, following its region directly where that is possible. */
static int region(struct sfs_inode *in, uint32_t blocks)
{
	struct sfs_volume *vol = in->vol;
	struct sfs_chunk *c;
	int r = space(vol, in->fd, blocks);

	if (r < 0)
		return r;
	sfs_mutex_lock(&vol->stage);
	while (vol->current < vol->nchunks && vol->chunks[vol->current].used >= vol->chunks[vol->current].blocks)
		vol->current++;
	if (vol->current == vol->nchunks)
		r = lease(vol);
	c = &vol->chunks[vol->current];
	if (r == 0) {
		const uint32_t index = (uint32_t)(c - vol->chunks);
		const uint32_t n = blocks < c->blocks - c->used ? blocks : c->blocks - c->used;

		if (in->region_end == 0 || in->region_chunk != index || in->region_end != c->used) {
			in->region_chunk = index;
			in->region_next = c->used;
		}
		/* Page tables for the whole region at once: a fault per page would cost more than the copy. */
		sys_madvise(c->base + (uint64_t)c->used * SFS_BLOCK, (uint64_t)n * SFS_BLOCK, MADV_POPULATE_WRITE_);
		c->used += n;
		in->region_end = c->used;
		vol->region_blocks += n;
	}
	sfs_mutex_unlock(&vol->stage);
	return r;
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
