/* SPDX-License-Identifier: Apache-2.0 */
/* Which records of a log count, the newest first. */
#include <errno.h>
#include <string.h>

#include "recover/recovering.h"

/*
 * The newest record of its inode, or it does not count: the holder writes nothing between it and its DONE. Of a process that died the
 * kernel has made the call or not, and others may have written behind the cut since: only a power loss leaves a part of it.
 */
static int on_truncate(struct sfs_recovering *rv, const struct sfs_record *rec)
{
	struct sfs_rec_file *f = *sfs_rec_slot(rv, rec->ino, rec->gen);

	if (rv->same_boot || rv->void_log || rv->all_retired || (f && f->retired) || !(rec->flags & SFS_REC_DURABLE)) {
		rv->sum.ignored++;
	} else if (!f || !f->leased || f->touched || rec->size > SFS_SIZE_LIMIT) {
		rv->sum.quarantined++;
	} else if (!rv->apply) {
		f->wanted = true;
	} else if (!f->id.found) {
		rv->sum.ignored++;
	} else {
		f->touched = f->cut = true;
		f->cut_at = rec->size;
		rv->sum.replayed++;
		rv->sum.files++;
	}
	return 0;
}

/*
 * After a power loss a DONE counts when the journal had committed what it stands for: where it says so, and where a COMMIT follows,
 * before which the library has the journal committed.
 */
int sfs_rec_done(void *ctx, const struct sfs_record *rec)
{
	const bool commits = rec->type == SFS_REC_COMMIT;
	struct sfs_recovering *rv = ctx;
	struct sfs_rec_file *f;

	if (rec->type == SFS_REC_TRUNCATE)
		return on_truncate(rv, rec);
	rv->sum.ignored++;
	f = *sfs_rec_slot(rv, rec->ino, rec->gen);
	if (rv->void_log ||
	    !(commits || rv->same_boot || (rec->flags & SFS_REC_DURABLE) || rv->all_committed || (f && f->committed)))
		return 0;
	if (rec->ino == 0) {
		*(commits ? &rv->all_committed : &rv->all_retired) = true;
		return 0;
	}
	f = sfs_rec_file_get(rv, rec->ino, rec->gen);
	if (!f)
		return sfs_fail(rv->why, -ENOMEM, "not enough memory to recover %s", rv->root->path);
	*(commits ? &f->committed : &f->retired) = true;
	return 0;
}

/* Does the record stay inside of what it may name? 1 yes, 0 no, or an error. */
static int in_bounds(struct sfs_recovering *rv, const struct sfs_record *rec)
{
	struct sfs_chunk_ref *c;
	int err;

	if (rec->len == 0 || rec->off > SFS_SIZE_LIMIT - rec->len || rec->size > SFS_SIZE_LIMIT ||
	    rec->off + rec->len > rec->size || ((rec->off ^ rec->stage_off) & (SFS_BLOCK - 1)))
		return 0;
	c = sfs_chunks_get(&rv->chunks, rec->stage_file, &err);
	if (err)
		return sfs_fail(rv->why, err, "open staging file %u of %s: %s", rec->stage_file, rv->root->path,
				strerror(-err));
	if (!c || rec->stage_off > c->size || rec->len > c->size - rec->stage_off)
		return 0;
	sfs_rec_named(c, rec);
	return 1;
}

int sfs_rec_group(void *ctx, const struct sfs_record *rec, unsigned n)
{
	struct sfs_recovering *rv = ctx;
	struct sfs_rec_file *f;
	bool durable = true;

	for (unsigned i = 0; i < n; i++)
		durable &= (rec[i].flags & SFS_REC_DURABLE) != 0;
	f = rv->void_log || rv->all_retired ? NULL : *sfs_rec_slot(rv, rec->ino, rec->gen);
	durable = durable || rv->all_committed || (f && f->committed);
	if (rv->void_log || rv->all_retired || (f && f->retired) || (!rv->same_boot && !durable)) {
		rv->sum.ignored += n;
		return 0;
	}
	for (unsigned i = 0; f && i < n; i++) {
		const int r = f->leased ? in_bounds(rv, &rec[i]) : 0;

		if (r < 0)
			return r;
		if (r == 0)
			f = NULL;
	}
	if (!f) {
		rv->sum.quarantined += n;
		return 0;
	}
	if (!rv->apply) {
		f->wanted = true;
		return 0;
	}
	if (!f->id.found) {
		rv->sum.ignored += n;
		return 0;
	}
	return sfs_rec_apply(rv, f, rec, n);
}
