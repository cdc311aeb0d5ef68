/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers and patches inside: whole blocks are the buffer's own afterwards, and only the ends are copied; a staging file is used again
 * when the buffer and the records have gone, and not before; what relink would take away is saved first; where the agent has taken
 * the process for dead, buffers are private memory and a patch copies. The log and the pool run full meanwhile.
 */
#include <sys/mman.h>

#include "control/store.h"
#include "harness.h"
#include "io/io.h"
#include "unit/core_agent.h"

enum { PAGE = 4096, N = 8 * PAGE };

static struct core_agent a = {.chunks_left = 4, .slots = 256};
static uint8_t content[N + 2 * PAGE], old[40 * PAGE];
static char path[400];
static struct sfs_volume *vol;

static struct sfs_inode *inode_of(int fd)
{
	return sfs_fds[fd]->inode;
}

static int make_file(size_t n)
{
	const int fd = sfs_openat(AT_FDCWD, path, O_RDWR | O_CREAT | O_TRUNC, 0644);

	CHECK(fd >= 0);
	CHECK_EQ(sfs_write(fd, old, n, 0), n);
	return fd;
}

static uint8_t *alloc(int pool, uint64_t off, size_t n)
{
	void *p = NULL;

	CHECK_EQ(sfs_alloc(pool, (off_t)off, n, &p), 0);
	CHECK_EQ(((uintptr_t)p ^ off) % PAGE, 0);
	memcpy(p, content, n);
	return p;
}

static void expect(int fd, const uint8_t *want, size_t n, uint64_t off)
{
	static uint8_t buf[40 * PAGE];

	CHECK_EQ(sfs_read(fd, buf, n, (off_t)off), n);
	CHECK_MEM(buf, want, n);
}

/* Where block blk of the file is staged now. */
static const uint8_t *staged_at(int fd, uint64_t blk)
{
	const sfs_block b = sfs_block_get(&inode_of(fd)->staging, blk);

	return b ? sfs_block_addr(&vol->pool, b) : NULL;
}

static uint32_t pinned(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < vol->pool.nchunks; i++)
		n += vol->pool.chunks[i].pins;
	return n;
}

static struct sfs_counters counted(void)
{
	struct sfs_counters c;

	sfs_log_counters((const struct sfs_log_header *)vol->log.map, vol->log.counters, &c);
	return c;
}

/* A patch of [off, off + n) from p: what it is counted as. */
static void patch_counted(int fd, const uint8_t *p, size_t n, uint64_t off)
{
	const uint64_t from = (off + PAGE - 1) / PAGE * PAGE, to = (off + n) / PAGE * PAGE;
	const struct sfs_counters before = counted();
	struct sfs_counters after;

	CHECK_EQ(sfs_patch(fd, (void *)p, n, (off_t)off), n);
	after = counted();
	CHECK_EQ(after.patch_ops - before.patch_ops, 1);
	CHECK_EQ(after.patch_bytes - before.patch_bytes, n);
	CHECK_EQ(after.adopted_bytes - before.adopted_bytes, from < to ? to - from : 0);
	CHECK_EQ(after.swap_ops + after.atomic_ops, 0);
}

/* [off, off + n) of a file of `size` bytes. */
static void whole_blocks(int pool, uint64_t off, size_t n, size_t size)
{
	const uint64_t end = off + n;
	const int fd = make_file(size);
	uint8_t *p = alloc(pool, off, n);

	patch_counted(fd, p, n, off);
	for (uint64_t blk = off / PAGE; blk <= (end - 1) / PAGE; blk++) {
		const uint8_t *own = p - off % PAGE + (blk - off / PAGE) * PAGE;

		/* What relink has been asked for meanwhile, as by at_once, is in the file. */
		CHECK(staged_at(fd, blk));
		if (blk * PAGE >= off && (blk + 1) * PAGE <= end)
			CHECK(staged_at(fd, blk) == own);
		else
			CHECK(staged_at(fd, blk) != own);
	}
	expect(fd, content, n, off);
	if (off > 0)
		expect(fd, old, off < size ? off : size, 0);
	if (end < size)
		expect(fd, old + end, size - end, end);
	CHECK_EQ(sfs_free(p), 0);
	/* The records name them: they are there as long as those count. */
	CHECK(pinned() > 0);
	expect(fd, content, n, off);
	CHECK_EQ(sfs_flush_unlocked(inode_of(fd), SFS_RETIRE), 0);
	expect(fd, content, n, off);
	CHECK_EQ(pinned(), 0);
	CHECK_EQ(sfs_close(fd), 0);
}

/* More than the staging files have at once: each is used again and again, and the log is emptied on the way. */
static void runs_full(int pool)
{
	const int fd = make_file(PAGE);

	for (int i = 0; i < 600; i++) {
		const uint64_t off = (uint64_t)(i % 30) * PAGE;
		uint8_t *p = alloc(pool, off, N);

		p[0] = (uint8_t)i;
		CHECK_EQ(sfs_patch(fd, p, N, (off_t)off), N);
		CHECK_EQ(sfs_free(p), 0);
		if (i % 50 == 0) {
			content[0] = (uint8_t)i;
			expect(fd, content, N, off);
		}
	}
	CHECK_EQ(sfs_close(fd), 0);
}

/* What is kept is never used for anything else. */
static void kept(int pool)
{
	const int fd = make_file(PAGE);
	uint8_t *p = alloc(pool, 0, N);

	CHECK_EQ(sfs_patch(fd, p, N, 0), N);
	for (int i = 0; i < 300; i++)
		CHECK_EQ(sfs_write(fd, old, sizeof(old), 0), sizeof(old));
	CHECK_EQ(sfs_fsync(fd, false), 0);
	CHECK_MEM(p, content, N);
	CHECK_EQ(sfs_free(p), 0);
	CHECK_EQ(sfs_close(fd), 0);
}

/* A relink that moves blocks: the pages are private memory before. */
static void saved(int pool)
{
	const int fd = make_file(PAGE);
	uint8_t *p = alloc(pool, 100, N), *q = alloc(pool, 0, PAGE);
	const sfs_block *table = inode_of(fd)->staging.table;
	struct sfs_chunk *c;
	sfs_block b;

	CHECK_EQ(sfs_patch(fd, p, N, 100), N);
	b = table[1];
	c = &vol->pool.chunks[(b >> 32) - 1];
	CHECK_EQ(sfs_buffers_save(&vol->pool, (uint32_t)(b >> 32) - 1, (uint32_t)b, 1), 0);
	CHECK(c->holes);
	CHECK_EQ(pwrite(c->fd, old, PAGE, (off_t)((uint32_t)b + 1) * PAGE), PAGE);
	CHECK_MEM(p, content, N);
	CHECK_EQ(pwrite(c->fd, content + 2 * PAGE - 100, PAGE, (off_t)((uint32_t)b + 1) * PAGE), PAGE);
	/* One that is stored to is nobody's to save. */
	q[0] = 77;
	CHECK_EQ(sfs_free(q), 0);
	CHECK_EQ(sfs_free(p), 0);
	/* It has not been moved after all. */
	expect(fd, content, N, 100);
	CHECK_EQ(sfs_flush_unlocked(inode_of(fd), SFS_RETIRE), 0);
	expect(fd, content, N, 100);
	CHECK_EQ(sfs_close(fd), 0);
}

static void no_space(int pool)
{
	void *p[64], *more = NULL;
	int n = 0, r;

	CHECK_EQ(sfs_alloc(pool, 0, a.chunk_bytes + 1, &more), -EFBIG);
	CHECK_EQ(sfs_alloc(pool, 1, a.chunk_bytes, &more), -EFBIG);
	while ((r = sfs_alloc(pool, 0, 1 << 20, &p[n])) == 0)
		n++;
	CHECK_EQ(r, -ENOSPC);
	CHECK(n > 0 && a.chunks_left == 0);
	CHECK_EQ(sfs_buffers_destroy(pool), -EBUSY);
	while (n > 0)
		CHECK_EQ(sfs_free(p[--n]), 0);
	CHECK_EQ(sfs_alloc(pool, 0, 1 << 20, &more), 0);
	CHECK_EQ(sfs_free(more), 0);
}

/* The last: as in process/held.c, with what follows it there. */
static void lost(int pool)
{
	const int fd = make_file(PAGE), other = sfs_openat(AT_FDCWD, path, O_RDONLY, 0);
	uint8_t *p = alloc(pool, 0, N), *q = alloc(pool, 0, N);

	CHECK_EQ(sfs_patch(fd, q, N, 0), N);
	CHECK_EQ(sfs_fsync(fd, false), 0);
	sfs_buffers_lost(&vol->pool);
	for (uint32_t i = 0; i < vol->pool.nchunks; i++)
		if (vol->pool.chunks[i].fd >= 0)
			CHECK_EQ(ftruncate(vol->pool.chunks[i].fd, 0), 0);
	CHECK_MEM(p, content, N);
	CHECK_MEM(q, content, N);
	p[5]++;
	content[5]++;
	CHECK_EQ(sfs_read(other, old, N, 0), N);
	CHECK_EQ(sfs_free(q), 0);
	CHECK_EQ(sfs_free(p), 0);
	CHECK_EQ(sfs_buffers_destroy(pool), 0);
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = {PAGE, 3 * PAGE + 50, 30 * PAGE};
	static const uint64_t offs[] = {0, 2 * PAGE, 2 * PAGE + 77, 100};
	static const size_t lens[] = {PAGE, N, N - 1, N + 99};
	uint64_t state = 9;
	int pool;

	if (core_agent_modes(argc, argv))
		return 0;
	core_agent_start(&a, argv[1]);
	vol = &sfs.volumes[0];
	snprintf(path, sizeof(path), "%s/file", a.root);
	test_fill(&state, content, sizeof(content));
	test_fill(&state, old, sizeof(old));
	CHECK_EQ(sfs_close(make_file(PAGE)), 0);
	pool = sfs_pool_create(open(a.root, O_RDONLY | O_DIRECTORY), 1 << 30);
	CHECK(pool > 0);
	for (int i = 0; i < 3; i++)
		for (int k = 0; k < 4; k++)
			for (int l = 0; l < 4; l++)
				whole_blocks(pool, offs[k], lens[l], sizes[i]);
	runs_full(pool);
	kept(pool);
	saved(pool);
	no_space(pool);
	lost(pool);
	core_agent_remove(&a);
	return 0;
}
