/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery on a full file system. The staged bytes have their blocks already, so it goes piece by piece: what is in the file is taken out of the
 * staging file, whose blocks are room for the next piece. A hole says "moved already", as behind a relink, so it may end anywhere and
 * begin again. For the first piece the ends of the staging files are cut off, behind all that a record names; that takes no space, as
 * punching may.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/result.h"
#include "base/sys.h"
#include "recover/recovering.h"

static uint64_t block_after(uint64_t off)
{
	return (off + SFS_BLOCK - 1) & ~(uint64_t)(SFS_BLOCK - 1);
}

void sfs_rec_named(struct sfs_chunk_ref *c, const struct sfs_record *rec)
{
	const uint64_t end = block_after(rec->stage_off + rec->len);

	if (end > c->named)
		c->named = end;
}

/*
 * Only of files that nobody else has open or mapped: a holder that lives after all (a process that was taken for dead) would get a signal for a
 * store behind the new end.
 */
static void cut_ends(struct sfs_recovering *rv)
{
	for (uint32_t i = 0; i < rv->chunks.n; i++) {
		struct sfs_chunk_ref *c = &rv->chunks.chunk[i];
		int err;

		if (!sfs_chunks_get(&rv->chunks, c->id, &err) || c->size <= c->named || !sys_may_lease(c->fd, F_WRLCK))
			continue;
		if (ftruncate(c->fd, (off_t)c->named) == 0)
			c->size = c->named;
	}
}

/* The whole blocks in [from, end) of the staging file are in the target. */
static int take_out(const struct sfs_recovering *rv, const struct sfs_chunk_ref *c, int target, uint64_t from, uint64_t end)
{
	from = block_after(from);
	end &= ~(uint64_t)(SFS_BLOCK - 1);
	if (from >= end)
		return 0;
	if (rv->how->durable && fdatasync(target) < 0)
		return -errno;
	return fallocate(c->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(end - from)) < 0 ? -errno : 0;
}

/* Until there is no room for as much as a block. *at: what is before it in the range has been moved. */
static int move(const struct sfs_recovering *rv, const struct sfs_chunk_ref *c, int target, const struct sfs_rec_range *p,
		uint64_t *at, uint64_t piece, uint64_t *bytes)
{
	int err = 0;

	while (!err && *at < p->len) {
		const uint64_t before = *bytes;
		const uint64_t from = p->stage_off + *at, past = (from + piece) & ~(uint64_t)(SFS_BLOCK - 1);
		const uint64_t end = past < p->stage_off + p->len ? past : p->stage_off + p->len;

		err = sfs_replay_copy(c, from, target, p->off + *at, end - from, rv->buf, bytes);
		if (!err)
			err = take_out(rv, c, target, from, end);
		if (!err)
			*at = end - p->stage_off;
		else
			*bytes = before;
	}
	return err;
}

int sfs_rec_copy(struct sfs_recovering *rv, const struct sfs_chunk_ref *c, int target, const struct sfs_rec_range *p)
{
	uint64_t at = 0, piece = SFS_REPLAY_BUFFER, *bytes = &rv->sum.bytes;
	const uint64_t before = *bytes;
	int err = rv->full ? -ENOSPC : sfs_replay_copy(c, p->stage_off, target, p->off, p->len, rv->buf, bytes);

	if (!sfs_no_space(err))
		return err;
	*bytes = before;
	if (!rv->full)
		cut_ends(rv);
	rv->full = true;
	while (sfs_no_space(err = move(rv, c, target, p, &at, piece, bytes)) && piece > SFS_BLOCK)
		piece /= 4;
	return err;
}
