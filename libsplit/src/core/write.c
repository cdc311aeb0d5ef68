/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes. In place: overwrites in posix and sync, stored through the window and fenced. Staged: everything that changes the size,
 * everything in strict, and every write to a block that is staged already.
 *
 * Order of a staged write on PM: bytes to the staging file; fence, unless the record carries their checksum or the mode is posix;
 * records; fence, unless posix. Then, in memory, the block table and the size. Nothing staged is visible to anybody before its
 * records are stored, and nothing is stored before there is room for the records.
 */
#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "core/iov.h"
#include "core/map.h"
#include "pm/pm.h"

#define EXTENTS_MAX 64u /* of one atomic operation: at least 1 GiB with the default staging files */
#define POPULATE    (256ul << 10)
#define SPAN_MAX    (1ull << 18) /* blocks: 1 GiB */
#define LEASES_MAX  16u		 /* tries of one write to get staging space */
#define FILE_MAX    (1ull << 43)

#ifndef RWF_DSYNC
#define RWF_DSYNC  0x2
#define RWF_SYNC   0x4
#define RWF_APPEND 0x10
#endif

struct extent {
	uint64_t off; /* in the file */
	uint64_t len; /* bytes of this operation */
	sfs_block b;  /* where block off / SFS_BLOCK is staged; the following blocks follow */
};

/* How a write is to go: what the caller asked for, in one place. */
struct request {
	struct sfs_ofd *ofd;
	int fd;
	const struct iovec *iov;
	int cnt;
	size_t total;
	int flags; /* RWF_* */
	bool part; /* there will not be more staging space: write as much as fits, atomically */
};

static ssize_t kernel_write(const struct request *q, off_t pos)
{
	struct sfs_inode *in = q->ofd->inode;
	const int flags = q->flags | (in->vol->mode != SFS_POSIX ? RWF_DSYNC : 0);
	const ssize_t r = sys_pwritev2(q->fd, q->iov, q->cnt, pos, flags);

	/* To persistent memory the kernel stores past the caches, and does not wait: in posix an overwrite survives when it returns. */
	if (in->vol->dax && !(flags & RWF_DSYNC))
		pm_fence();
	count(in->vol, passthrough_ops, 1);
	in->kdirty = in->kdirty || !(flags & RWF_DSYNC);
	if (r > 0 && sfs_inode_served(in))
		sfs_inode_reload(in);
	return r;
}

/* durable: the next fence is to make it so. Without, short pieces stay in the cache. */
static void copy_in(uint8_t *dst, struct sfs_cursor *c, size_t n, bool durable)
{
	while (n > 0) {
		size_t got;
		const void *src = sfs_cursor_next(c, n, &got);

		if (!durable && got < SFS_STORE_MAX)
			pm_store(dst, src, got);
		else
			pm_copy(dst, src, got);
		dst += got;
		n -= got;
	}
}

/* As copy_in(), durable, with the checksum. Short pieces are gathered: storing to a line that is being written back takes its time. */
static uint32_t copy_in_crc(uint8_t *dst, struct sfs_cursor *c, size_t n)
{
	uint8_t gathered[SFS_STORE_MAX];
	uint32_t crc = 0;

	while (n > 0) {
		size_t got;
		const void *src = sfs_cursor_next(c, n, &got);

		if (got < n && got < sizeof(gathered)) {
			const size_t most = n < sizeof(gathered) ? n : sizeof(gathered);

			memcpy(gathered, src, got);
			for (size_t some = got; some < most; some += got) {
				src = sfs_cursor_next(c, most - some, &got);
				memcpy(gathered + some, src, got);
			}
			src = gathered;
			got = most;
		}
		crc = pm_copy_crc(crc, dst, src, got);
		dst += got;
		n -= got;
	}
	return crc;
}

static bool any_staged(const struct sfs_inode *in, uint64_t pos, size_t n)
{
	if (in->staged == 0)
		return false;
	for (uint64_t blk = pos / SFS_BLOCK; blk <= (pos + n - 1) / SFS_BLOCK; blk++)
		if (sfs_block_get(in, blk))
			return true;
	return false;
}

/* May the write go in place? unretired: a valid record names bytes that are in the file already; replaying it would undo us. */
static bool in_place(struct sfs_inode *in, uint64_t pos, size_t n)
{
	if (in->vol->mode == SFS_STRICT || pos + n > in->ksize || !in->win || pos + n > in->win_len || !in->writable ||
	    !in->dense || any_staged(in, pos, n))
		return false;
	in->blocked = in->unretired;
	return !in->unretired;
}

static void write_in_place(struct sfs_inode *in, struct sfs_cursor c, uint64_t pos, size_t n)
{
	/* A program that writes on and on does not pay a fault per page. */
	if (pos == in->last_end && pos + n > in->populated) {
		const uint64_t from = pos / SFS_BLOCK * SFS_BLOCK;
		uint64_t to = (pos + n + POPULATE) / SFS_BLOCK * SFS_BLOCK;

		if (to > in->ksize)
			to = (in->ksize + SFS_BLOCK - 1) / SFS_BLOCK * SFS_BLOCK;
		sfs_map_populate(in->win + from, to - from);
		in->populated = to;
	}
	copy_in(in->win + pos, &c, n, true);
	pm_fence();
	in->last_end = pos + n;
	in->touched = true;
	count(in->vol, overwrite_ops, 1);
	count(in->vol, overwrite_bytes, n);
}

/* What a block holds now, bytes [from, to) of it, into its new place. */
static int carry(struct sfs_inode *in, uint64_t blk, uint32_t from, uint32_t to, uint8_t *dst)
{
	const sfs_block old = sfs_block_get(in, blk);
	uint8_t buf[SFS_BLOCK];
	const uint64_t off = blk * SFS_BLOCK + from;
	int r;

	if (from >= to)
		return 0;
	if (old) {
		/* Bytes behind the end of the file are not content. */
		const uint64_t end = in->size > off ? in->size - off : 0;
		const uint32_t have = end < to - from ? (uint32_t)end : to - from;

		pm_copy(dst + from, sfs_block_addr(in->vol, old) + from, have);
		pm_zero(dst + from + have, to - from - have);
		return 0;
	}
	/* By the kernel and not from the window: somebody without the library may just have truncated the file (copytruncate). */
	r = sfs_read_kernel(in, buf, off, to - from);
	if (r == 0)
		pm_copy(dst + from, buf, to - from);
	return r;
}

/*
 * May bytes [pos, end) be written into the block where pos's block is staged? Only bytes that no record names: behind the end of
 * the file, or carried along (see `hot`). end lies in the same block or the write goes on behind it.
 */
static bool continues(const struct sfs_inode *in, uint64_t pos, uint64_t end)
{
	const uint64_t blk = pos / SFS_BLOCK;
	const uint32_t from = pos % SFS_BLOCK;
	const uint32_t to = end - blk * SFS_BLOCK < SFS_BLOCK ? (uint32_t)(end - blk * SFS_BLOCK) : SFS_BLOCK;

	if (from == 0 && to == SFS_BLOCK)
		return false; /* a whole block: nothing would be carried */
	if (!sfs_block_get(in, blk))
		return false;
	return pos >= in->size ||
	       (in->hot == blk && in->hot_block == sfs_block_get(in, blk) && (from >= in->hot_to || to <= in->hot_from));
}

/* Find staging space for [pos, end): fills ext, returns the number of extents; *covered is how far they reach, less
 * than asked only with `part`. */
static int place(struct sfs_inode *in, uint64_t pos, uint64_t end, bool part, struct extent *ext, uint64_t *covered)
{
	const uint64_t need = (end - 1) / SFS_BLOCK - pos / SFS_BLOCK + 1, left = in->region_end - in->region_next;
	int n = 0, err = 0;

	if (!part && need > left && !sfs_stage_room(in->vol, need - left))
		return -ENOBUFS;

	while (pos < end) {
		const uint64_t blk = pos / SFS_BLOCK;
		uint32_t blocks = (uint32_t)((end - 1) / SFS_BLOCK - blk + 1);
		uint64_t stop;
		sfs_block b;

		if ((n == 0 || pos / SFS_BLOCK == (end - 1) / SFS_BLOCK) && continues(in, pos, end)) {
			b = sfs_block_get(in, blk);
			blocks = 1;
		} else {
			b = sfs_stage_alloc(in, &blocks, &err);
			if (!b && (n == 0 || !part))
				return err;
			if (!b)
				break;
		}
		stop = (blk + blocks) * SFS_BLOCK < end ? (blk + blocks) * SFS_BLOCK : end;
		if (n > 0 && b == ext[n - 1].b + (blk - ext[n - 1].off / SFS_BLOCK)) {
			ext[n - 1].len += stop - pos;
		} else {
			if (n == (int)EXTENTS_MAX)
				break;
			ext[n++] = (struct extent){pos, stop - pos, b};
		}
		pos = stop;
	}
	*covered = pos;
	return n;
}

/* Bytes around the new ones in blocks that are newly staged, so that an entry always stands for a whole block. */
static int carry_edges(struct sfs_inode *in, const struct extent *e)
{
	const uint64_t first = e->off / SFS_BLOCK, end = e->off + e->len, last = (end - 1) / SFS_BLOCK;
	int r = 0;

	if (e->off % SFS_BLOCK && sfs_block_get(in, first) != e->b)
		r = carry(in, first, 0, e->off % SFS_BLOCK, sfs_block_addr(in->vol, e->b));
	if (r == 0 && end % SFS_BLOCK && end < in->size && sfs_block_get(in, last) != e->b + (last - first))
		r = carry(in, last, end % SFS_BLOCK, SFS_BLOCK, sfs_block_addr(in->vol, e->b + (last - first)));
	return r;
}

/* A write behind the end makes what lies between part of the file: zeros, also in the staged last block. */
static void zero_gap(struct sfs_inode *in, uint64_t pos)
{
	const uint64_t blk = in->size / SFS_BLOCK;
	const sfs_block b = in->size % SFS_BLOCK ? sfs_block_get(in, blk) : 0;
	const uint64_t to = pos < (blk + 1) * SFS_BLOCK ? pos : (blk + 1) * SFS_BLOCK;

	if (b && pos > in->size)
		pm_zero(sfs_block_addr(in->vol, b) + in->size % SFS_BLOCK, to - in->size);
}

/* Enter the extent into the table, and remember which bytes of its last block records name now. */
static void enter(struct sfs_inode *in, const struct extent *e)
{
	const uint64_t first = e->off / SFS_BLOCK, end = e->off + e->len, last = (end - 1) / SFS_BLOCK;
	const sfs_block b = e->b + (last - first);
	const bool fresh = sfs_block_get(in, last) != b;
	uint32_t from = e->off > last * SFS_BLOCK ? (uint32_t)(e->off - last * SFS_BLOCK) : 0;
	uint32_t to = (uint32_t)(end - last * SFS_BLOCK);

	for (uint64_t blk = first; blk <= last; blk++)
		sfs_stage_set(in, blk, e->b + (blk - first));
	if (!fresh) {
		/* Earlier records name bytes of it too: known ones, or anything before ours. */
		const bool known = in->hot == last && in->hot_block == b;

		from = !known ? 0 : from < in->hot_from ? from : in->hot_from;
		to = known && to < in->hot_to ? in->hot_to : to;
	}
	in->hot = last;
	in->hot_block = b;
	in->hot_from = from;
	in->hot_to = to;
}

/*
 * One atomic operation. Returns the bytes written, less than n only where an operation needs more than EXTENTS_MAX extents or
 * more staging space than there is;
 * -EAGAIN: the log is full; -ENOSPC: no staging space.
 */
static ssize_t write_staged(struct sfs_inode *in, struct sfs_cursor *c, uint64_t pos, size_t n, bool part)
{
	struct sfs_volume *vol = in->vol;
	const bool fenced = vol->mode != SFS_POSIX;
	struct extent ext[EXTENTS_MAX];
	struct sfs_record rec;
	uint64_t covered = pos, size;
	uint32_t slot, data_crc = 0, rec_crc = 0;
	/* posix promises that an overwrite survives when it returns: here, as everything before it, by a COMMIT. */
	const bool commits = vol->dax && !fenced && pos < in->size;
	bool crc, grows;
	int k, r;

	sfs_grow_end(in);
	if (commits) {
		r = sfs_commit_base(in);
		if (r < 0)
			return r;
	}
	r = sfs_stage_table(in, (pos + n + SFS_BLOCK - 1) / SFS_BLOCK);
	if (r < 0)
		return r;
	sfs_stage_live(in);
	k = place(in, pos, pos + n, part, ext, &covered);
	if (k < 0)
		return k;
	r = sfs_log_slots(in, (uint32_t)k + commits, &slot);
	if (r < 0)
		return r;
	n = (size_t)(covered - pos);
	size = pos + n > in->size ? pos + n : in->size;
	crc = fenced && k == 1 && n <= pm_crc_max();
	grows = !fenced && k == 1 && pos == in->size && !sfs_near_limit(in, n);

	for (int i = 0; i < k; i++) {
		r = carry_edges(in, &ext[i]);
		if (r < 0)
			return r; /* the slots stay empty, which recovery takes for calls that did not return */
	}
	zero_gap(in, pos);
	for (int i = 0; i < k; i++) {
		uint8_t *dst = sfs_block_addr(vol, ext[i].b) + ext[i].off % SFS_BLOCK;

		if (crc)
			data_crc = copy_in_crc(dst, c, n);
		else
			copy_in(dst, c, ext[i].len, fenced || vol->dax);
	}
	if (fenced && !crc)
		pm_fence();
	for (int i = 0; i < k; i++) {
		rec = sfs_record_write(
			in, ext[i].off, ext[i].len, ext[i].b,
			(uint8_t)((crc ? SFS_REC_DATA_CRC : 0) | (fenced ? SFS_REC_DURABLE : 0) | (grows ? SFS_REC_GROWS : 0)));
		rec.group_pos = (uint8_t)i;
		rec.group_left = (uint8_t)(k - 1 - i);
		rec.data_crc = data_crc;
		rec.size = size;
		rec_crc = sfs_log_write(vol, slot + (uint32_t)i, rec);
	}
	if (fenced)
		pm_fence();
	else if (commits)
		sfs_log_commit(in, slot + (uint32_t)k);

	for (int i = 0; i < k; i++)
		enter(in, &ext[i]);
	if (size > in->size) {
		count(vol, append_ops, 1);
		count(vol, append_bytes, n);
		in->size = size;
	} else {
		count(vol, overwrite_ops, 1);
		count(vol, overwrite_bytes, n);
	}
	count(vol, staged_bytes, n);
	if (grows) {
		in->grow = &vol->records[slot];
		in->grow_crc = rec_crc;
		in->grow_base = sfs_block_addr(vol, ext[0].b) + ext[0].off % SFS_BLOCK;
		in->grow_at = in->grow_dirty = in->grow_base + n;
		in->grow_limit = in->grow_at + -(pos + n) % SFS_BLOCK;
	} else if (n <= SFS_STORE_MAX) {
		/* The next locked instruction waits until all stores have their lines: fetch those of the next small append now. */
		const uint8_t *end = sfs_block_addr(vol, ext[k - 1].b) + ext[k - 1].off % SFS_BLOCK + ext[k - 1].len;

		for (size_t i = 0; i < n; i += 64)
			__builtin_prefetch(end + SFS_PREFETCH * n + i, 1);
	}
	in->touched = in->busy = true;
	in->uncommitted = !fenced && !commits;
	if (unlikely(!vol->dirty))
		sfs_service_wake(vol);
	return (ssize_t)n;
}

/* By the kernel, whatever the reason: what is staged is older. */
static ssize_t write_unserved(const struct request *q, bool append, off_t pos, off_t *at)
{
	struct sfs_inode *in = q->ofd->inode;
	ssize_t r = in->live || in->staged > 0 ? sfs_flush(in, SFS_RETIRE) : 0;

	if (r == 0)
		r = kernel_write(q, pos);
	if (append && r > 0) {
		struct stat st;

		if (sys_fstat(q->fd, &st) == 0 && st.st_size >= r)
			*at = st.st_size - r;
	}
	return r;
}

/*
 * The write at `pos` (at the end with append) by whoever serves the file. Lock held exclusively; -EAGAIN and -ENOSPC as above.
 * *at: where it went.
 */
static ssize_t write_once(const struct request *q, bool append, off_t pos, off_t *at)
{
	struct sfs_inode *in = q->ofd->inode;
	struct sfs_cursor c = {q->iov, 0};
	size_t done = 0;
	ssize_t r = sfs_io_prepare(q->ofd, in, q->fd);

	if (r < 0)
		return r;
	if (in->vol->mode == SFS_STRICT && in->deleg == SFS_DELEG_SHARED && !in->kernel_only) {
		/* Atomic writes need the file to ourselves; the others get it back when they ask. */
		if (in->vol->state != VOL_READY)
			return -EIO;
		r = sfs_agent_acquire(in->vol, in, in->fd, SFS_ACQ_EXCLUSIVE);
		if (r < 0 || in->deleg != SFS_DELEG_EXCLUSIVE)
			return -EIO;
		sfs_inode_reload(in);
		sfs_io_prepare(q->ofd, in, q->fd);
	}
	/* A process without the library may share the description and have written through it, or have appended. */
	if ((append || q->ofd->kernel_off) && in->staged == 0 && sfs_inode_served(in)) {
		sfs_inode_reload(in);
		sfs_io_prepare(q->ofd, in, q->fd);
	}
	if (append && sfs_inode_served(in))
		pos = (off_t)in->size;
	*at = pos;
	if (!sfs_inode_served(in) || (uint64_t)pos + q->total > sfs.fsize_limit || (uint64_t)pos + q->total > FILE_MAX)
		return write_unserved(q, append, pos, at);
	if (in_place(in, (uint64_t)pos, q->total)) {
		write_in_place(in, c, (uint64_t)pos, q->total);
		return (ssize_t)q->total;
	}
	/* Entries far apart would make the block table long to walk. */
	if (in->staged > 0 &&
	    ((uint64_t)pos / SFS_BLOCK + SPAN_MAX < in->first || (uint64_t)pos / SFS_BLOCK > in->last + SPAN_MAX)) {
		r = sfs_flush(in, SFS_PUBLISH);
		if (r < 0)
			return r;
	}
	while (done < q->total) {
		r = write_staged(in, &c, (uint64_t)pos + done, q->total - done, q->part);
		if (r < 0)
			return done > 0 ? (ssize_t)done : r;
		done += (size_t)r;
	}
	return (ssize_t)done;
}

/* No staging space, or no memory for the block table: everything is relinked, so that staging files become free; where that does not help, the kernel writes. */
static ssize_t write_without_staging(const struct request *q, off_t pos, ssize_t why)
{
	struct sfs_inode *in = q->ofd->inode;
	ssize_t r;

	if (in->vol->mode == SFS_STRICT)
		return why;
	do {
		sfs_rwlock_wrlock(&in->lock);
		r = sfs_flush(in, SFS_RETIRE);
		if (r == 0) {
			r = kernel_write(q, pos);
			sfs_inode_reload(in);
		}
		sfs_rwlock_wrunlock(&in->lock);
	} while (r == -EAGAIN && sfs_log_checkpoint(in->vol, true) == 0);
	return r == -EAGAIN ? why : r;
}

static ssize_t write_at(struct request *q, bool append, off_t pos, off_t *at)
{
	struct sfs_inode *in = q->ofd->inode;
	unsigned leases = 0;
	bool emptied = false;
	int given = 0;
	ssize_t r;

	for (;;) {
		sfs_rwlock_wrlock(&in->lock);
		if (unlikely(load_acquire(&sfs_fds[q->fd]) != q->ofd || q->ofd->inode != in))
			r = -EBADF; /* closed by another thread meanwhile */
		else
			r = write_once(q, append, pos, at);
		/* It was ours for this write only. What can't be relinked now is when the service thread answers the agent's REVOKE. */
		if (unlikely(in->at_once) && r >= 0)
			given = sfs_step_down(in, SFS_DELEG_SHARED);
		sfs_rwlock_wrunlock(&in->lock);
		if (likely(r >= 0))
			break;
		if (r == -EAGAIN) {
			r = sfs_log_checkpoint(in->vol, true);
			if (r < 0)
				break;
		} else if (r == -ENOBUFS && in->vol->state == VOL_READY && !q->part) {
			/* Other threads may take what we lease: not for ever. */
			r = leases++ < LEASES_MAX ? sfs_stage_lease(in->vol, q->total / SFS_BLOCK + 2) : -ENOSPC;
			if (r == 0)
				continue;
			q->part = emptied;
			emptied = true;
			leases = 0;
			sfs_flush_all(in->vol, SFS_RETIRE);
		} else if (r == -ENOSPC && !emptied && in->vol->state == VOL_READY) {
			emptied = true;
			sfs_flush_all(in->vol, SFS_RETIRE);
		} else if (r == -ENOMEM || ((r == -ENOSPC || r == -ENOBUFS) && emptied)) {
			return write_without_staging(q, *at, r == -ENOBUFS ? -ENOSPC : r);
		} else {
			break;
		}
	}
	while (unlikely(given == -EAGAIN) && sfs_log_checkpoint(in->vol, true) == 0) {
		sfs_rwlock_wrlock(&in->lock);
		given = in->at_once ? sfs_step_down(in, SFS_DELEG_SHARED) : 0;
		sfs_rwlock_wrunlock(&in->lock);
	}
	if (r > 0 && ((q->ofd->flags & (O_DSYNC | O_SYNC)) || (q->flags & (RWF_DSYNC | RWF_SYNC)))) {
		int err;

		sfs_rwlock_wrlock(&in->lock);
		err = sfs_flush_fsync(q->ofd, q->fd, !((q->ofd->flags & O_SYNC) == O_SYNC || (q->flags & RWF_SYNC)));
		sfs_rwlock_wrunlock(&in->lock);
		if (err == -EAGAIN)
			err = sfs_log_checkpoint(in->vol, true);
		if (err < 0)
			return err;
	}
	return r;
}

static ssize_t writev_of(struct sfs_ofd *ofd, int fd, const struct iovec *iov, int cnt, off_t off, int flags)
{
	struct request q = {ofd, fd, iov, cnt, 0, flags, false};
	const ssize_t total = sfs_iov_total(iov, cnt);
	bool append;
	off_t pos = off, at = 0;
	ssize_t r;

	if ((ofd->flags & O_ACCMODE) == O_RDONLY)
		return -EBADF;
	if (total <= 0)
		return total;
	q.total = (size_t)total;
	/* On Linux O_APPEND wins over the position of pwrite(2). */
	append = ((ofd->kernel_off ? sys_fcntl(fd, F_GETFL, 0) : ofd->flags) & O_APPEND) || (flags & RWF_APPEND);
	if (off >= 0)
		return write_at(&q, append, pos, &at);
	sfs_mutex_lock(&ofd->lock);
	if (ofd->kernel_off) {
		pos = append ? 0 : sys_lseek(fd, total, SEEK_CUR);
		if (pos < 0) {
			sfs_mutex_unlock(&ofd->lock);
			return pos;
		}
		if (!append)
			pos -= total;
	} else {
		pos = ofd->off;
	}
	r = write_at(&q, append, pos, &at);
	if (r > 0 || ofd->kernel_off) {
		const off_t end = (append ? at : pos) + (r > 0 ? r : 0);

		if (!ofd->kernel_off)
			ofd->off = end;
		else if (append)
			sys_lseek(fd, end, SEEK_SET);
		else
			sys_lseek(fd, (r > 0 ? r : 0) - total, SEEK_CUR);
	}
	sfs_mutex_unlock(&ofd->lock);
	return r;
}

ssize_t sfs_writev(int fd, const struct iovec *iov, int cnt, off_t off, int flags)
{
	struct sfs_ofd *ofd = sfs_ofd_of(fd);
	uint64_t *op;
	ssize_t r;

	if (!ofd)
		return SFS_PASS;
	if (flags & ~(RWF_DSYNC | RWF_SYNC | RWF_APPEND)) {
		r = sfs_make_true(fd, false);
		if (r < 0)
			return r;
		r = sys_pwritev2(fd, iov, cnt, off, flags);
		sfs_changed(fd);
		return r;
	}
	if (unlikely(!sfs_op_begin(ofd->inode, &op)))
		return -EDEADLK;
	r = writev_of(ofd, fd, iov, cnt, off, flags);
	sfs_op_end(op);
	return r;
}
