/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts a range into edges and whole blocks, whole blocks into what is still in the donor, and hands each to a provider. */
#include "relink/relink.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/holes.h"
#include "base/result.h"
#include "base/sys.h"
#include "relink/provider.h"

/*
 * Below this, copying costs less than the file system's transaction, scatters the target's blocks less and leaves the staging block
 * where it is. On persistent memory 4 KiB cost 2.5 us beside 10 by reflink.
 */
#define MOVE_MIN_PERSISTENT (32ull << 10)
/*
 * Through the page cache a move costs more: the staging pages are written back to the device, which is waited for, they are taken out of
 * every mapping, and the target has none, so that who reads it next waits for the device again. A copy leaves all that to the kernel's
 * flusher, as a write does. (XFS, files in writes of 16 KiB, closed and read, CPU of a move beside a copy's: 48 KiB 1.4, 256 KiB 1.6,
 * 1 MiB 1.0.)
 */
#ifndef MOVE_MIN_CACHED
#define MOVE_MIN_CACHED (512ull << 10)
#endif
/* ext4-relink: copying to new blocks is a transaction as well, and on persistent memory a copy is a copy. */
#define MOVE_MIN_EXT4 ((uint64_t)RELINK_BLOCK)

struct move {
	const struct relink_range *r;
	enum relink_provider provider;
	bool no_holes; /* the donor can't have any */
	bool settled;
	int flags;
	int left; /* an error: the target has got the blocks, and where they were in the donor there may be others than a hole */
	uint64_t done; /* bytes from the start of the range */
};

int relink_next_data(int fd, uint64_t *from, uint64_t *to, uint64_t end)
{
	off_t data, hole;

	data = sfs_seek_data(fd, (off_t)*from);
	if (data == -ENXIO)
		return 0;
	if (data == -EINVAL || data == -EOPNOTSUPP) {
		*to = end;
		return 1;
	}
	if (data < 0)
		return (int)data;
	if ((uint64_t)data >= end)
		return 0;
	hole = sfs_seek_hole(fd, data);
	if (hole < 0)
		return (int)hole;
	*from = (uint64_t)data > *from ? (uint64_t)data : *from;
	*to = (uint64_t)hole < end ? (uint64_t)hole : end;
	return 1;
}

int relink_grow(int fd, uint64_t size)
{
	struct stat st;
	int err;

	err = sys_fstat(fd, &st);
	if (err || (uint64_t)st.st_size >= size)
		return err;
	/* ftruncate would cut the file if it has become longer since fstat: only where there is no other way. */
	err = sys_fallocate(fd, 0, (off_t)size - 1, 1);
	if (err == -EOPNOTSUPP || err == -ENOSYS || sfs_no_space(err))
		err = sys_ftruncate(fd, (off_t)size);
	return err;
}

/*
 * Can blocks have left a donor on this file system? Where no provider moves any, the question is not asked: tmpfs would look at
 * each page up to the end of the donor to find the next hole. (An ext4 may have been ours before this boot.)
 */
static bool never_moves(int fd)
{
	struct statfs fs;

	return sys_call2(SYS_fstatfs, fd, (long)&fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

static int copy(struct move *m, uint64_t at, uint64_t n)
{
	const int err = m->r->settle && !m->settled ? m->r->settle(m->r->arg) : 0;

	m->settled = true;
	return err ? err : relink_copy(m->r, at, n);
}

static void left(struct move *m, int err)
{
	m->flags &= ~RELINK_DONOR_KEEPS;
	m->left = m->left ? m->left : err;
}

/* Whole blocks without a swap. */
static int reflink_or_copy(struct move *m, uint64_t at, uint64_t n)
{
	int err = relink_share(m->r, at, n);

	if (!err) {
		/* Whatever comes of that the target has them, and the donor perhaps not all of them: the rest is brought over, too. */
		left(m, relink_unshare(m->r, at, n));
	} else if (relink_unsupported(err)) {
		err = copy(m, at, n);
	}
	return err;
}

/* Whole blocks: swap where the target has a hole (rule 2 of relink.h). */
static int exchange(struct move *m, uint64_t at, uint64_t n)
{
	const struct relink_range *r = m->r;
	uint64_t pos = r->target_off + at, end = pos + n, from, to;
	int err, found;

	err = relink_grow(r->target, end);
	while (!err && pos < end) {
		from = pos;
		to = end;
		found = relink_next_data(r->target, &from, &to, end);
		if (found < 0)
			return found;
		/* A block of which the target has a part, it has. */
		from = found ? from & ~(uint64_t)(RELINK_BLOCK - 1) : end;
		to = (to + RELINK_BLOCK - 1) & ~(uint64_t)(RELINK_BLOCK - 1);
		if (from > pos) {
			err = relink_xfs_exchange(r, pos - r->target_off, from - pos);
			if (!err)
				left(m, relink_xfs_exchanged(r, pos - r->target_off, from - pos));
			else if (relink_unsupported(err))
				err = reflink_or_copy(m, pos - r->target_off, from - pos);
			if (err)
				break;
			m->done = from - r->target_off; /* the donor has a hole there, whatever becomes of the rest */
		}
		if (to > from)
			err = reflink_or_copy(m, from - r->target_off, to - from);
		if (!err)
			m->done = to - r->target_off;
		pos = to;
	}
	return err;
}

/*
 * [at, at + n), starting on a block: as much of it as one sort of call can move, in *n. The last block goes with the others
 * where the file ends in it.
 */
static int move_ext4(struct move *m, uint64_t at, uint64_t *n)
{
	const uint64_t whole = *n & ~(uint64_t)(RELINK_BLOCK - 1), all = *n;
	const struct relink_range *r = m->r;
	uint32_t extents;
	int err = -EINVAL;

	*n = 0;
	if (all != whole && r->size <= r->target_off + at + all)
		err = relink_ext4(r, at, all, n, &extents);
	/* EINVAL: the target goes on behind the range, so the last block is to be copied. */
	if (err == -EINVAL && *n == 0 && whole)
		err = relink_ext4(r, at, whole, n, &extents);
	if (*n && extents)
		m->flags &= ~RELINK_DONOR_KEEPS;
	m->done = at + *n;
	return err;
}

/* [at, at + n) of the range by `how`, without what is no longer in the donor. */
static int present(struct move *m, uint64_t at, uint64_t n, int (*how)(struct move *, uint64_t, uint64_t))
{
	const struct relink_range *r = m->r;
	uint64_t pos = r->donor_off + at, end = pos + n, from, to;
	int err, found;

	for (; pos < end; pos = to) {
		from = pos;
		to = end;
		found = m->no_holes ? 1 : relink_next_data(r->donor, &from, &to, end);
		if (found < 0)
			return found;
		if (found) {
			/* Whole blocks, whatever granularity the answer has; an edge starts inside of its block. */
			from &= ~(uint64_t)(RELINK_BLOCK - 1);
			from = from < pos ? pos : from;
			to = (to + RELINK_BLOCK - 1) & ~(uint64_t)(RELINK_BLOCK - 1);
			to = to > end ? end : to;
			m->done = from - r->donor_off;
			err = how(m, m->done, to - from);
			if (err)
				return err;
		} else {
			to = end;
		}
		m->done = to - r->donor_off;
	}
	return 0;
}

bool relink_copies(enum relink_provider provider, bool persistent, uint64_t len)
{
	switch (provider) {
	case RELINK_XFS_EXCHANGE:
	case RELINK_REFLINK:
		return len < (persistent ? MOVE_MIN_PERSISTENT : MOVE_MIN_CACHED);
	case RELINK_EXT4:
		return len < MOVE_MIN_EXT4;
	default:
		return true;
	}
}

/* [at, at + whole): whole blocks, by copying where that is cheaper and there is room for it. */
static int whole_blocks(struct move *m, uint64_t at, uint64_t whole)
{
	int (*const move)(struct move *, uint64_t, uint64_t) = m->provider == RELINK_XFS_EXCHANGE ? exchange
							       : m->provider == RELINK_REFLINK	  ? reflink_or_copy
												  : NULL;
	int err;

	if (move && (m->r->full || !relink_copies(m->provider, m->r->persistent, whole)))
		return present(m, at, whole, move);
	err = present(m, at, whole, copy);
	/* The file system is full, or a quota is: the staged blocks are there already. (What was copied of them is replaced.) */
	return move && sfs_no_space(err) ? present(m, at, whole, move) : err;
}

static int pieces(struct move *m)
{
	const struct relink_range *r = m->r;
	uint64_t head = -r->target_off & (RELINK_BLOCK - 1), whole;
	int err;

	if (head > r->len)
		head = r->len;
	whole = (r->len - head) & ~(uint64_t)(RELINK_BLOCK - 1);
	err = present(m, 0, head, copy);
	if (!err && m->provider == RELINK_EXT4 && !relink_copies(RELINK_EXT4, r->persistent, whole)) {
		uint64_t n = r->len - head;

		err = move_ext4(m, head, &n);
		if (err && !relink_unsupported(err))
			return err;
		/* Another way for the rest, all of it where these two files can't be relinked. */
		head += n;
		whole = whole > n ? whole - n : 0;
		err = 0;
		if (head == r->len) { /* the size is set, too */
			if (n == r->len)
				m->flags |= RELINK_DONOR_EMPTIED;
			return 0;
		}
	}
	if (!err)
		err = whole_blocks(m, head, whole);
	if (!err)
		err = present(m, head + whole, r->len - head - whole, copy);
	if (!err)
		err = relink_grow(r->target, r->size);
	return err;
}

int relink(enum relink_provider provider, const struct relink_range *r, uint64_t *moved)
{
	struct move m = {.r = r, .provider = provider, .flags = RELINK_DONOR_KEEPS};
	const uint64_t most = INT64_MAX;
	int err;

	if (moved)
		*moved = 0;
	if (provider <= RELINK_NONE || provider >= RELINK_PROVIDERS || ((r->donor_off ^ r->target_off) & (RELINK_BLOCK - 1)))
		return -EINVAL;
	if (r->len > most || r->donor_off > most - r->len || r->target_off > most - r->len || r->size > most)
		return -EFBIG;
	err = sys_fcntl(r->target, F_GETFL, 0);
	if (err < 0)
		return err;
	if (err & O_APPEND)
		return -EINVAL; /* pwrite would append */
	m.no_holes = r->whole || (provider == RELINK_COPY && never_moves(r->donor));
	err = pieces(&m);
	if (moved)
		*moved = m.done;
	if (!err)
		err = m.left;
	return err ? err : m.flags;
}

const char *relink_provider_name(enum relink_provider p)
{
	static const char *const names[] = {"none", "xfs-exchange", "reflink", "copy", "ext4-relink"};

	return (unsigned)p < sizeof(names) / sizeof(names[0]) ? names[p] : "none";
}
