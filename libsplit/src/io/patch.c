/* SPDX-License-Identifier: Apache-2.0 */
/*
 * splitfs_patch(3): a write whose bytes lie in a buffer of blocks of staging files (zerocopy/buffers.h). Its whole blocks are the
 * file's by a record, as if they had been copied to its region; the parts of blocks at either end are. Nobody stores to the
 * buffer from before its bytes are written back until it is freed, so the write is made in one section of the lock, from memory
 * that can't change.
 *
 * Where the file is not served, where it is too short for a whole block, the descriptor has O_DSYNC or O_SYNC, or the buffer was lost, it is a
 * write that copies.
 */
#include "io/patch.h"

#include <errno.h>
#include <limits.h>

#include "base/sys.h"
#include "format/identity.h"
#include "io/call.h"
#include "pm/pm.h"

#define LEASES_MAX 4u /* tries to get blocks in a row */

/* ---- a write from a buffer */

/* One more extent of the write, n bytes at `pos`, in one block of the file's region. */
static int place_edge(struct sfs_inode *in, struct sfs_staged *st, uint64_t pos, uint64_t n)
{
	uint32_t one = 1;
	int err = 0;
	const sfs_block b = sfs_staging_alloc(&in->vol->pool, &in->staging, SFS_ANYWHERE, &one, &err);

	if (b)
		st->ext[st->extents++] = (struct sfs_extent){.off = pos, .len = n, .b = b};
	return b ? 0 : err;
}

int sfs_patch_place(struct sfs_attempt *a)
{
	struct sfs_inode *in = a->in;
	struct sfs_staged *st = &a->st;
	const uint64_t pos = (uint64_t)a->at, end = pos + a->n, from = (pos + SFS_BLOCK - 1) / SFS_BLOCK * SFS_BLOCK,
		       to = end / SFS_BLOCK * SFS_BLOCK;
	sfs_block b;
	int r = 0;

	*st = (struct sfs_staged){.pos = pos, .n = a->n, .fenced = in->vol->mode != SFS_POSIX};
	if (pos < from)
		r = place_edge(in, st, pos, from - pos);
	if (r == 0)
		r = sfs_buffer_adopt(a->buffer, a->mem + (from - pos), (uint32_t)((to - from) / SFS_BLOCK), &in->staging, &b);
	if (r == 0)
		st->ext[st->extents++] = (struct sfs_extent){.off = from, .len = to - from, .b = b, .there = true};
	if (r == 0 && to < end)
		r = place_edge(in, st, to, end - to);
	return r;
}

/* What is wrong with the descriptor, before anything is done; 0. */
static int look_at(int fd, struct sfs_ofd **ofd)
{
	const int flags = sys_fcntl(fd, F_GETFL, 0);

	if (flags < 0)
		return flags;
	if (!sfs_may_write(flags) || (flags & O_PATH))
		return -EBADF;
	*ofd = sfs_ofd_of(fd);
	if (!*ofd)
		return -EXDEV;
	return flags & O_APPEND ? -EINVAL : 0; /* which says where, whatever the call says */
}

static ssize_t patch_at(int fd, void *buf, size_t len, off_t off)
{
	const uint64_t from = ((uint64_t)off + SFS_BLOCK - 1) / SFS_BLOCK * SFS_BLOCK;
	struct sfs_volume *vol;
	struct sfs_ofd *ofd;
	bool lost, whole;
	int err = 0;
	ssize_t r;

	sfs_check_fork();
	if (!sfs_buffer_known(buf))
		return -EINVAL;
	r = look_at(fd, &ofd);
	if (r < 0)
		return r;
	if (off < 0 || len > SSIZE_MAX)
		return -EINVAL;
	if ((uint64_t)off + len > INT64_MAX)
		return -EFBIG;
	vol = ofd->inode->vol;
	r = sfs_buffer_begin(buf, len, (uint64_t)off, &vol->pool, &lost);
	if (r < 0)
		return r;
	if (len > 0) {
		if (vol->dax)
			pm_flush(buf, len);
		/* Where it may be an error that it can't be forced, it is copied: the buffer is as it was then, and the file has the bytes. */
		whole = !lost && !(ofd->flags & (O_DSYNC | O_SYNC)) && from + SFS_BLOCK <= (uint64_t)off + len;
		r = sfs_write_buffer(ofd, fd, buf, len, off, whole);
		if (r > 0)
			err = sfs_write_durable(ofd, ofd->inode, fd, 0);
	}
	sfs_buffer_end(buf, r > 0 && err == 0);
	if (r > 0) {
		count_later(vol, patch_ops, 1);
		count_later(vol, patch_bytes, r);
	}
	return err < 0 ? err : r;
}

ssize_t sfs_patch(int fd, void *buf, size_t len, off_t off)
{
	ssize_t r;

	do
		r = patch_at(fd, buf, len, off);
	while (sfs_gone(r, fd));
	return r;
}

/* ---- pools and buffers */

/*
 * The agent lends staging files to who may write to the volume, which only a file tells that is open for writing. In a directory
 * one can be made for that; who has neither opens a file of his own first.
 */
static int show_file(struct sfs_volume *vol, int dirfd)
{
	const int fd = sys_openat(dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	struct sfs_grant grant = {0};
	struct stat st;
	uint32_t gen;
	int r;

	if (fd < 0)
		return -EACCES;
	r = sys_fstat(fd, &st);
	if (r == 0)
		r = sfs_generation(fd, &gen);
	if (r == 0)
		r = sfs_agent_acquire(vol, &grant, st.st_ino, gen, fd, 0);
	if (r == 0)
		sfs_agent_release(vol, &grant, st.st_ino, gen);
	sys_close(fd);
	return r;
}

/* One more staging file, for `blocks` in a row, or another try at what there is. No lock held. */
static int lease(struct sfs_volume *vol, uint64_t blocks)
{
	const uint64_t left = sfs_pool_left(&vol->pool);
	const int r = sfs_chunk_lease(vol, left + blocks, SFS_LEASE_ANY);

	if (r != -ENOSPC)
		return r;
	/* What is staged makes room in staging files that there are, and what is left of others in the pool. */
	sfs_flush_all(vol, SFS_RETIRE);
	sfs_pool_idle(&vol->pool);
	return 0;
}

int sfs_pool_create(int dirfd, size_t size)
{
	struct sfs_volume *vol;
	struct stat st;
	int r;

	sfs_check_fork();
	r = sys_fstat(dirfd, &st);
	if (r < 0)
		return r;
	if (size == 0 || size > SSIZE_MAX)
		return -EINVAL;
	vol = S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) ? sfs_volume_of(st.st_dev) : NULL;
	if (!vol || (!vol->dedicated && !sfs_below(vol, dirfd)))
		return -ENOTSUP;
	sfs_volume_await(vol, dirfd);
	r = sfs_volume_connect(vol, dirfd);
	if (r < 0)
		return r == -ENOSPC ? r : -ENOTSUP;
	r = sfs_chunk_lease(vol, 1, SFS_LEASE_ANY);
	if (r == -EACCES) {
		r = show_file(vol, dirfd);
		if (r == 0)
			r = sfs_chunk_lease(vol, 1, SFS_LEASE_ANY);
	}
	return r < 0 ? r : sfs_buffers_create(&vol->pool, size);
}

int sfs_pool_destroy(int pool)
{
	sfs_check_fork();
	return sfs_buffers_destroy(pool);
}

int sfs_alloc(int pool, off_t off, size_t len, void **p)
{
	struct sfs_pool *from;
	struct sfs_volume *vol;
	uint32_t blocks = 0;
	int r;

	sfs_check_fork();
	from = sfs_buffers_from(pool);
	if (!from || off < 0 || len == 0 || len > SSIZE_MAX)
		return -EINVAL;
	vol = (struct sfs_volume *)((char *)from - offsetof(struct sfs_volume, pool));
	if (from->chunk_bytes && (uint64_t)off % SFS_BLOCK + len > from->chunk_bytes)
		return -EFBIG;
	r = sfs_buffer_alloc(pool, (uint64_t)off, len, &blocks, p);
	for (unsigned tries = 0; r == -ENOBUFS && tries < LEASES_MAX; tries++) {
		r = vol->agent.state == VOL_READY ? lease(vol, blocks) : -EIO;
		if (r == 0)
			r = sfs_buffer_alloc(pool, (uint64_t)off, len, &blocks, p);
	}
	return r == -ENOBUFS ? -ENOSPC : r;
}

int sfs_free(void *buf)
{
	sfs_check_fork();
	return sfs_buffer_free(buf);
}
