/* SPDX-License-Identifier: Apache-2.0 */
/*
 * splitfs_swap(3): two ranges of two files change places. On XFS with exchange-range, and on ext4 with our module, the file system does it, in
 * one operation of its journal; elsewhere each is written to the other's place in one operation of ours (io/together.h). Nobody stores to them
 * meanwhile: both files are locked, and stores in place that are under way are waited for.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/sys.h"
#include "io/call.h"
#include "io/together.h"
#include "io/user.h"
#include "relink/relink.h"

#define COPY_MAX (64ull << 20) /* bytes of a range that is copied: they are in memory and staged at once */

static int look_at(int fd, off_t off, size_t len, struct sfs_part *p)
{
	const int flags = sys_fcntl(fd, F_GETFL, 0);

	if (flags < 0)
		return flags;
	if ((flags & O_ACCMODE) != O_RDWR || (flags & O_PATH))
		return -EBADF;
	if (off < 0 || len > SSIZE_MAX || (uint64_t)off + len > INT64_MAX)
		return -EINVAL;
	p->ofd = sfs_ofd_of(fd);
	if (!p->ofd)
		return -ENOTSUP;
	p->in = p->ofd->inode;
	p->fd = fd;
	p->off = (uint64_t)off;
	p->len = len;
	return 0;
}

/* Is there something that a power loss would leave out, before what is made in one step and kept? */
static bool uncommitted(const struct sfs_inode *in)
{
	return in->vol->mode == SFS_POSIX && sfs_records_volatile(&in->counted);
}

/* Both locks held. Do the ranges hold still, and is nothing of the files for a power loss to leave out? */
static int still(const struct sfs_together *t)
{
	for (int i = 0; i < 2; i++) {
		const struct sfs_part *p = &t->part[i];

		if (p->off + p->len > p->in->size)
			return -EINVAL;
		if (sfs_stores_meet(p->in, p->off, p->off + p->len) || uncommitted(p->in))
			return SFS_BUSY;
	}
	return 0;
}

/* What the file has there now. */
static int read_now(struct sfs_inode *in, uint8_t *dst, uint64_t off, uint64_t n)
{
	int r = 0;

	for (uint64_t part; r == 0 && n > 0; off += part, dst += part, n -= part) {
		const sfs_block b = sfs_block_get(&in->staging, off / SFS_BLOCK);

		part = SFS_BLOCK - off % SFS_BLOCK < n ? SFS_BLOCK - off % SFS_BLOCK : n;
		if (b)
			memcpy(dst, sfs_block_addr(&in->vol->pool, b) + off % SFS_BLOCK, part);
		else
			r = sfs_read_kernel(in, dst, off, part);
	}
	return r;
}

static int by_records(struct sfs_together *t)
{
	int r = still(t);

	/* posix: these records count after a power loss, on top of what the kernel has done to both files. */
	for (int i = 0; r == 0 && i < 2; i++)
		r = t->vol->dax && t->vol->mode == SFS_POSIX ? sfs_commit_base(t->part[i].in) : 0;

	for (int i = 0; r == 0 && i < 2; i++)
		r = read_now(t->part[i].in, (uint8_t *)t->part[1 - i].bytes, t->part[i].off, t->part[i].len);
	return r == 0 ? sfs_together_write(t) : r;
}

/* SFS_PASS: not with these files. */
static int by_exchange(struct sfs_together *t)
{
	const struct sfs_part *a = &t->part[0], *b = &t->part[1];
	int r = still(t);

	for (int i = 0; r == 0 && i < 2; i++) {
		const struct sfs_part *p = &t->part[i];

		r = sfs_flush(p->in, SFS_RETIRE);
		if (r == 0)
			r = sfs_pins_save(&p->in->pins, p->off, p->off + p->len);
	}
	if (r == 0) {
		r = relink_swap(a->in->fd, a->off, b->in->fd, b->off, a->len);
		r = relink_unsupported(r) ? SFS_PASS : r;
	}
	for (int i = 0; i < 2; i++) {
		struct sfs_inode *in = t->part[i].in;

		/*
		 * The journal has both in one operation. In posix, too: were it lost, what is stored in place to one file from here on would be
		 * found in the other.
		 */
		if (r == 0 && i == 0)
			r = sys_fsync(in->fd);
		in->kdirty = in->kdirty || r < 0;
		sfs_inode_reload(in);
	}
	return r;
}

/* `by`: for whole blocks by the file system, or by records. */
static int swap_by(struct sfs_together *t, int (*by)(struct sfs_together *t))
{
	int r;

	t->act = by;
	/* Writers store under the lock from now on, so that they are not always in the middle of something. */
	for (int i = 0; i < 2; i++)
		__atomic_add_fetch(&t->part[i].in->flights.quiet, 1, __ATOMIC_RELAXED);
	r = sfs_together_attempts(t);
	for (int i = 0; i < 2; i++)
		__atomic_sub_fetch(&t->part[i].in->flights.quiet, 1, __ATOMIC_RELAXED);
	return r;
}

static int swap_copying(struct sfs_together *t, size_t len)
{
	uint8_t *mem;
	int r;

	if (len > COPY_MAX)
		return -E2BIG;
	mem = sfs_user_alloc(2 * len);
	if (!mem)
		return -ENOMEM;
	t->part[0].bytes = mem;
	t->part[1].bytes = mem + len;
	r = swap_by(t, by_records);
	sfs_user_free(mem, 2 * len);
	return r;
}

/* All processes ask for the same files in one order, whichever is named first (add_part() in together.c): two would take them from each other. */
static void in_order(struct sfs_together *t)
{
	const struct sfs_part first = t->part[0];

	if (first.in->ino < t->part[1].in->ino)
		return;
	t->part[0] = t->part[1];
	t->part[1] = first;
}

static int swap(struct sfs_together *t, size_t len)
{
	const struct sfs_part *a = &t->part[0], *b = &t->part[1];
	int r;

	if (a->in == b->in)
		return -EINVAL;
	if (a->in->vol != b->in->vol)
		return -EXDEV;
	if (len == 0)
		return 0;
	t->vol = a->in->vol;
	if (!(t->vol->agent.features & SFS_FEATURE_FILES) && t->vol->agent.state == VOL_READY)
		return -ENOTSUP;
	t->parts = t->files = 2;
	t->file[0].in = a->in < b->in ? a->in : b->in;
	t->file[1].in = a->in < b->in ? b->in : a->in;
	t->blocks = 2 * (len / SFS_BLOCK + 2);
	t->alone = true;
	in_order(t);
	r = SFS_PASS;
	if ((a->off | b->off | len) % SFS_BLOCK == 0 && relink_can_swap(a->fd))
		r = swap_by(t, by_exchange);
	if (r == SFS_PASS)
		r = swap_copying(t, len);
	for (int i = 0; i < 2; i++)
		sfs_write_give_back(t->part[i].in);
	return r;
}

static int swap_once(int fd1, off_t off1, int fd2, off_t off2, size_t len)
{
	struct sfs_together *t;
	int r;

	sfs_check_fork();
	t = (struct sfs_together *)sfs_user_alloc(sizeof(*t));
	if (!t)
		return -ENOMEM;
	r = look_at(fd1, off1, len, &t->part[0]);
	if (r == 0)
		r = look_at(fd2, off2, len, &t->part[1]);
	if (r == 0)
		r = swap(t, len);
	if (r == 0 && len > 0) {
		count_later(t->vol, swap_ops, 1);
		count_later(t->vol, swap_bytes, len);
	}
	for (int i = 0; r == 0 && i < t->parts; i++)
		r = sfs_write_durable(t->part[i].ofd, t->part[i].in, t->part[i].fd, 0);
	sfs_user_free((uint8_t *)t, sizeof(*t));
	return r;
}

int sfs_swap(int fd1, off_t off1, int fd2, off_t off2, size_t len)
{
	bool gone;
	int r;

	do {
		r = swap_once(fd1, off1, fd2, off2, len);
		gone = sfs_gone(r, fd1);
		gone = sfs_gone(r, fd2) || gone;
	} while (gone);
	return r;
}
