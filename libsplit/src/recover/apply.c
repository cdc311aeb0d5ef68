/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a record that counts, into its file. */
#include <errno.h>
#include <string.h>

#include "recover/recovering.h"

int sfs_rec_flush(struct sfs_recovering *rv, struct sfs_rec_file *f)
{
	struct sfs_rec_range *p = &f->pending;
	struct sfs_chunk_ref *c;
	const uint64_t before = rv->sum.bytes;
	int err;

	if (!p->len)
		return 0;
	err = sfs_rec_file_open(rv, f);
	if (err == -ENOENT) {
		p->len = 0; /* deleted since it was found */
		return 0;
	}
	if (err)
		return err;
	c = sfs_chunks_get(&rv->chunks, p->chunk, &err);
	if (!c)
		return err ? sfs_fail(rv->why, err, "open staging file %u of %s: %s", p->chunk, rv->root->path, strerror(-err))
			   : 0;
	err = sfs_rec_copy(rv, c, f->fd, p);
	if (err)
		return sfs_rec_fail(rv, f, err, "write");
	p->len = 0;
	if (rv->how->progress && rv->sum.bytes != before)
		rv->how->progress(rv->how->progress_ctx, &rv->sum);
	return 0;
}

static int copy_gap(void *ctx, uint64_t from, uint64_t to)
{
	struct sfs_recovering *rv = ctx;
	struct sfs_rec_range *p = &rv->gap_file->pending;
	const struct sfs_record *rec = rv->gap_rec;
	const uint64_t stage = rec->stage_off + (from - rec->off);
	int err;

	if (p->len && p->chunk == rec->stage_file && p->off == to && p->stage_off == stage + (to - from)) {
		p->off = from;
		p->stage_off = stage;
		p->len += to - from;
		return 0;
	}
	err = sfs_rec_flush(rv, rv->gap_file);
	*p = (struct sfs_rec_range){rec->stage_file, from, stage, to - from};
	return err;
}

/* 1 when the data of every record that has a checksum is what it says, 0 when not, or an error. */
static int data_whole(struct sfs_recovering *rv, const struct sfs_record *rec, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct sfs_chunk_ref *c;
		enum sfs_data state;
		int err;

		if (!(rec[i].flags & SFS_REC_DATA_CRC))
			continue;
		c = sfs_chunks_get(&rv->chunks, rec[i].stage_file, &err);
		if (!c)
			return err;
		err = sfs_replay_check(&rv->chunks, c, rec[i].stage_off, rec[i].len, rec[i].data_crc, &state);
		if (err)
			return sfs_fail(rv->why, err, "read staging file %u of %s: %s", rec[i].stage_file, rv->root->path,
					strerror(-err));
		if (state == SFS_DATA_TORN)
			return 0;
	}
	return 1;
}

int sfs_rec_apply(struct sfs_recovering *rv, struct sfs_rec_file *f, const struct sfs_record *rec, unsigned n)
{
	int r = data_whole(rv, rec, n);

	if (r < 0)
		return r;
	if (r == 0) {
		/* In this boot a record is stored after its data: bytes that differ were changed by someone. */
		if (rv->same_boot)
			rv->sum.quarantined += n;
		else
			rv->sum.ignored += n;
		return 0;
	}
	rv->gap_file = f;
	for (unsigned i = n; i-- > 0;) {
		rv->gap_rec = &rec[i];
		r = sfs_cover_gaps(&f->cover, rec[i].off, rec[i].off + rec[i].len, copy_gap, rv);
		if (!r && sfs_cover_add(&f->cover, rec[i].off, rec[i].off + rec[i].len))
			r = sfs_fail(rv->why, -ENOMEM, "not enough memory to recover %s", rv->root->path);
		if (r)
			return r;
		if (rec[i].size > f->size)
			f->size = rec[i].size;
	}
	if (!f->touched)
		rv->sum.files++;
	f->touched = true;
	rv->sum.replayed += n;
	return 0;
}
