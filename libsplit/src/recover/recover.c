/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One log: two passes over its records, newest first. The first finds out which files are needed; then they are looked up; the
 * second copies, for each file, every byte that no newer record has decided already. So the order of relink.h is kept ("newest
 * wins"), memory grows with the number of separate ranges and not with the log, and a log with nothing to do costs one pass.
 */
#include "recover/recover.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "recover/cover.h"
#include "recover/lookup.h"
#include "recover/replay.h"
#include "recover/scan.h"

#define OPEN_TARGETS 256u
#define SIZE_LIMIT   (UINT64_MAX >> 1)

/* A range to copy, kept back for a while: appends that follow each other become one copy. */
struct pending {
	uint32_t chunk;
	uint64_t off, stage_off, len;
};

/* What we know of one inode that a record named. */
struct file {
	struct file *next; /* hash chain */
	struct sfs_wanted id;
	bool leased;
	bool retired;	/* a newer DONE: nothing before counts */
	bool committed; /* a newer COMMIT: everything before was durable */
	bool wanted;
	bool touched;
	bool stripped;
	bool cut; /* a truncate was under way */
	uint64_t cut_at;
	int fd;
	uint32_t open_index;
	uint64_t size;
	struct sfs_cover cover;
	struct pending pending;
};

struct recovery {
	const struct sfs_root *root;
	const struct sfs_recover_how *how;
	struct sfs_why *why;
	struct sfs_lookup lookup;
	struct sfs_chunks chunks;
	struct file **table;
	uint32_t table_size, nfiles;
	bool apply;	/* second pass */
	bool void_log;	/* emulated volume and another boot */
	bool same_boot; /* memory was never lost */
	bool all_retired, all_committed;
	struct file *open[OPEN_TARGETS];
	uint32_t next_open;
	void *buf;
	struct sfs_recovery sum;
	const struct sfs_record *gap_rec; /* of the call of copy_gap */
	struct file *gap_file;
};

void sfs_recovery_add(struct sfs_recovery *to, const struct sfs_recovery *from)
{
	to->logs += from->logs;
	to->records += from->records;
	to->replayed += from->replayed;
	to->bytes += from->bytes;
	to->ignored += from->ignored;
	to->files += from->files;
	to->quarantined += from->quarantined;
}

/* ---- files ---- */

static struct file **slot(struct recovery *rv, uint64_t ino, uint32_t gen)
{
	struct file **p = &rv->table[((ino ^ gen) * SFS_HASH_FACTOR >> 20) & (rv->table_size - 1)];

	while (*p && ((*p)->id.ino != ino || (*p)->id.gen != gen))
		p = &(*p)->next;
	return p;
}

static struct file *file_get(struct recovery *rv, uint64_t ino, uint32_t gen)
{
	struct file **p = slot(rv, ino, gen), *f;

	if (*p)
		return *p;
	f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	f->id.ino = ino;
	f->id.gen = gen;
	f->fd = -1;
	*p = f;
	rv->nfiles++;
	if (rv->nfiles > rv->table_size * 2) {
		struct file **old = rv->table, **table = calloc(rv->table_size * 4, sizeof(*table));
		const uint32_t old_size = rv->table_size;

		if (!table)
			return f; /* longer chains do no harm */
		rv->table = table;
		rv->table_size *= 4;
		for (uint32_t i = 0; i < old_size; i++) {
			struct file *next;

			for (struct file *g = old[i]; g; g = next) {
				next = g->next;
				g->next = NULL;
				*slot(rv, g->id.ino, g->id.gen) = g;
			}
		}
		free(old);
	}
	return f;
}

static int fail_file(struct recovery *rv, const struct file *f, int err, const char *what)
{
	return sfs_fail(rv->why, err, "%s inode %llu of %s: %s%s", what, (unsigned long long)f->id.ino, rv->root->path,
			strerror(-err), err == -ENOSPC ? "; free some space and run 'splitfs recover' again" : "");
}

static void file_close(struct recovery *rv, struct file *f)
{
	if (f->fd < 0)
		return;
	close(f->fd);
	f->fd = -1;
	rv->open[f->open_index] = NULL;
}

/* 0 with f->fd open, -ENOENT when the file does not exist any more. */
static int file_open(struct recovery *rv, struct file *f)
{
	int fd;

	if (f->fd >= 0)
		return 0;
	if (rv->open[rv->next_open])
		file_close(rv, rv->open[rv->next_open]);
	fd = sfs_lookup_open(&rv->lookup, &f->id);
	if (fd == -ENOENT || fd == -EAGAIN) {
		f->id.found = false;
		return -ENOENT;
	}
	if (fd < 0)
		return fail_file(rv, f, fd, "open");
	f->fd = fd;
	f->open_index = rv->next_open;
	rv->open[rv->next_open] = f;
	rv->next_open = (rv->next_open + 1) % OPEN_TARGETS;
	if (!f->stripped) {
		f->stripped = true;
		fd = sfs_replay_strip(f->fd);
		if (fd)
			return fail_file(rv, f, fd, "chmod");
	}
	return 0;
}

/* ---- copying ---- */

static int flush_pending(struct recovery *rv, struct file *f)
{
	struct pending *p = &f->pending;
	struct sfs_chunk_ref *c;
	const uint64_t before = rv->sum.bytes;
	int err;

	if (!p->len)
		return 0;
	err = file_open(rv, f);
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
	err = sfs_replay_copy(c, p->stage_off, f->fd, p->off, p->len, rv->buf, &rv->sum.bytes);
	if (err)
		return fail_file(rv, f, err, "write");
	p->len = 0;
	if (rv->how->progress && rv->sum.bytes != before)
		rv->how->progress(rv->how->progress_ctx, &rv->sum);
	return 0;
}

static int copy_gap(void *ctx, uint64_t from, uint64_t to)
{
	struct recovery *rv = ctx;
	struct pending *p = &rv->gap_file->pending;
	const struct sfs_record *rec = rv->gap_rec;
	const uint64_t stage = rec->stage_off + (from - rec->off);
	int err;

	if (p->len && p->chunk == rec->stage_file && p->off == to && p->stage_off == stage + (to - from)) {
		p->off = from;
		p->stage_off = stage;
		p->len += to - from;
		return 0;
	}
	err = flush_pending(rv, rv->gap_file);
	*p = (struct pending){rec->stage_file, from, stage, to - from};
	return err;
}

/* ---- records ---- */

/* The newest record of its inode, or it does not count: the holder writes nothing between it and its DONE. */
static int on_truncate(struct recovery *rv, const struct sfs_record *rec)
{
	struct file *f = *slot(rv, rec->ino, rec->gen);

	if (rv->void_log || rv->all_retired || (f && f->retired) || (!rv->same_boot && !(rec->flags & SFS_REC_DURABLE))) {
		rv->sum.ignored++;
	} else if (!f || !f->leased || f->touched || rec->size > SIZE_LIMIT) {
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
static int on_done(void *ctx, const struct sfs_record *rec)
{
	const bool commits = rec->type == SFS_REC_COMMIT;
	struct recovery *rv = ctx;
	struct file *f;

	if (rec->type == SFS_REC_TRUNCATE)
		return on_truncate(rv, rec);
	rv->sum.ignored++;
	f = *slot(rv, rec->ino, rec->gen);
	if (rv->void_log ||
	    !(commits || rv->same_boot || (rec->flags & SFS_REC_DURABLE) || rv->all_committed || (f && f->committed)))
		return 0;
	if (rec->ino == 0) {
		*(commits ? &rv->all_committed : &rv->all_retired) = true;
		return 0;
	}
	f = file_get(rv, rec->ino, rec->gen);
	if (!f)
		return sfs_fail(rv->why, -ENOMEM, "not enough memory to recover %s", rv->root->path);
	*(commits ? &f->committed : &f->retired) = true;
	return 0;
}

/* Does the record stay inside of what it may name? 1 yes, 0 no, or an error. */
static int in_bounds(struct recovery *rv, const struct sfs_record *rec)
{
	struct sfs_chunk_ref *c;
	int err;

	if (rec->len == 0 || rec->off > SIZE_LIMIT - rec->len || rec->size > SIZE_LIMIT || rec->off + rec->len > rec->size ||
	    ((rec->off ^ rec->stage_off) & (SFS_BLOCK - 1)))
		return 0;
	c = sfs_chunks_get(&rv->chunks, rec->stage_file, &err);
	if (err)
		return sfs_fail(rv->why, err, "open staging file %u of %s: %s", rec->stage_file, rv->root->path,
				strerror(-err));
	return c && rec->stage_off <= c->size && rec->len <= c->size - rec->stage_off;
}

/* 1 when the data of every record that has a checksum is what it says, 0 when not, or an error. */
static int data_whole(struct recovery *rv, const struct sfs_record *rec, unsigned n)
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

static int apply_group(struct recovery *rv, struct file *f, const struct sfs_record *rec, unsigned n)
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

static int on_group(void *ctx, const struct sfs_record *rec, unsigned n)
{
	struct recovery *rv = ctx;
	struct file *f;
	bool durable = true;

	for (unsigned i = 0; i < n; i++)
		durable &= (rec[i].flags & SFS_REC_DURABLE) != 0;
	f = rv->void_log || rv->all_retired ? NULL : *slot(rv, rec->ino, rec->gen);
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
	return apply_group(rv, f, rec, n);
}

/* ---- passes ---- */

static int pass(struct recovery *rv, struct sfs_scan *scan, bool apply)
{
	int err;

	rv->apply = apply;
	rv->all_retired = rv->all_committed = false;
	memset(&rv->sum, 0, sizeof(rv->sum));
	for (uint32_t i = 0; i < rv->table_size; i++)
		for (struct file *f = rv->table[i]; f; f = f->next)
			f->retired = f->committed = false;
	err = sfs_scan(scan);
	if (err)
		return sfs_fail(rv->why, err, "read a log of %s: %s", rv->root->path, strerror(-err));
	rv->sum.logs = 1;
	rv->sum.records = scan->records;
	rv->sum.ignored += scan->incomplete;
	for (uint32_t i = 0; apply && i < rv->table_size; i++)
		for (struct file *f = rv->table[i]; f; f = f->next)
			if ((err = flush_pending(rv, f)))
				return err;
	return 0;
}

static int look_up(struct recovery *rv, uint32_t *nwanted)
{
	struct sfs_wanted **wanted = calloc(rv->nfiles + 1, sizeof(*wanted));
	int err;

	*nwanted = 0;
	if (!wanted)
		return sfs_fail(rv->why, -ENOMEM, "not enough memory to recover %s", rv->root->path);
	for (uint32_t i = 0; i < rv->table_size; i++)
		for (struct file *f = rv->table[i]; f; f = f->next)
			if (f->wanted)
				wanted[(*nwanted)++] = &f->id;
	err = sfs_lookup_find(&rv->lookup, wanted, *nwanted, rv->why);
	free(wanted);
	return err;
}

/* Sizes, then durability: the log may be cleared when this has returned. */
static int settle(struct recovery *rv)
{
	bool any = false;

	for (uint32_t i = 0; i < rv->table_size; i++) {
		for (struct file *f = rv->table[i]; f; f = f->next) {
			struct stat st;
			int err;

			if (!f->touched)
				continue;
			err = file_open(rv, f);
			if (err == -ENOENT)
				continue;
			if (err)
				return err;
			if (fstat(f->fd, &st) < 0)
				return fail_file(rv, f, -errno, "stat");
			if (f->cut && (uint64_t)st.st_size > f->cut_at && ftruncate(f->fd, (off_t)f->cut_at) < 0)
				return fail_file(rv, f, -errno, "truncate");
			if ((uint64_t)st.st_size < f->size && ftruncate(f->fd, (off_t)f->size) < 0)
				return fail_file(rv, f, -errno, "extend");
			file_close(rv, f);
			any = true;
		}
	}
	if (any && rv->how->durable && syncfs(rv->root->fd) < 0)
		return sfs_fail(rv->why, -errno, "sync %s: %s", rv->root->path, strerror(errno));
	return 0;
}

static int clear_log(struct recovery *rv, int fd, uint64_t epoch)
{
	const uint64_t next = epoch + 1;

	if (pwrite(fd, &next, sizeof(next), offsetof(struct sfs_log_header, epoch)) != (ssize_t)sizeof(next) ||
	    (rv->how->durable && fdatasync(fd) < 0))
		return sfs_fail(rv->why, errno ? -errno : -EIO, "clear a log of %s: %s", rv->root->path, strerror(errno));
	return 0;
}

static void free_all(struct recovery *rv)
{
	for (uint32_t i = 0; i < rv->table_size; i++) {
		struct file *next;

		for (struct file *f = rv->table[i]; f; f = next) {
			next = f->next;
			if (f->fd >= 0)
				close(f->fd);
			sfs_cover_free(&f->cover);
			free(f->id.path);
			free(f);
		}
	}
	free(rv->table);
	free(rv->buf);
	sfs_chunks_close(&rv->chunks);
	free(rv);
}

static int replay(struct recovery *rv, struct sfs_scan *scan)
{
	uint32_t nwanted;
	int err = pass(rv, scan, false);

	if (!err)
		err = look_up(rv, &nwanted);
	if (err || !nwanted)
		return err;
	err = pass(rv, scan, true);
	return err ? err : settle(rv);
}

/* 1: the header is that of log `id` of this volume, 0: it is not. */
static int read_header(const struct sfs_root *r, uint32_t id, int fd, struct sfs_log_header *h)
{
	const ssize_t n = pread(fd, h, sizeof(*h), 0);

	if (n < 0)
		return -errno;
	return n == (ssize_t)sizeof(*h) && h->magic == SFS_LOG_MAGIC && h->format == SFS_FORMAT && h->log_id == id &&
	       memcmp(h->uuid, r->uuid, sizeof(h->uuid)) == 0;
}

static int start(struct recovery *rv, const struct sfs_leasefile *lease)
{
	rv->table_size = 64;
	while (rv->table_size < lease->head.ninodes)
		rv->table_size *= 2;
	rv->table = calloc(rv->table_size, sizeof(*rv->table));
	rv->buf = malloc(SFS_REPLAY_BUFFER);
	if (!rv->table || !rv->buf)
		return -ENOMEM;
	for (uint32_t i = 0; i < lease->head.ninodes; i++) {
		struct file *f;

		if (lease->inodes[i].valid != 1)
			continue;
		f = file_get(rv, lease->inodes[i].ino, lease->inodes[i].gen);
		if (!f)
			return -ENOMEM;
		f->leased = true;
	}
	sfs_chunks_init(&rv->chunks, rv->root, &lease->head);
	return 0;
}

int sfs_recover_log(const struct sfs_root *r, uint32_t id, const struct sfs_leasefile *lease, const struct sfs_recover_how *how,
		    struct sfs_recovery *sum, struct sfs_why *why)
{
	struct sfs_log_header h;
	struct recovery *rv = calloc(1, sizeof(*rv));
	uint8_t boot[16];
	struct stat st;
	int fd = sfs_log_open(r, id, O_RDWR), err;

	if (!rv || fd < 0) {
		err = !rv ? -ENOMEM : fd;
		if (fd >= 0)
			close(fd);
		free(rv);
		return sfs_fail(why, err, "open log %u of %s: %s", id, r->path, strerror(-err));
	}
	rv->root = r;
	rv->how = how;
	rv->why = why;
	err = read_header(r, id, fd, &h);
	if (err == 1) {
		err = sfs_boot_id(boot);
		if (!err)
			err = fstat(fd, &st) < 0 ? -errno : 0;
		if (!err)
			err = start(rv, lease);
		if (!err) {
			struct sfs_scan scan = {.fd = fd,
						.seed = sfs_log_seed(r->uuid, id),
						.epoch = h.epoch,
						.done = on_done,
						.group = on_group,
						.ctx = rv};
			const uint64_t room =
				(uint64_t)st.st_size > SFS_LOG_RECORDS_OFFSET
					? ((uint64_t)st.st_size - SFS_LOG_RECORDS_OFFSET) / sizeof(struct sfs_record)
					: 0;

			scan.slots = h.slots < room ? h.slots : (uint32_t)room;
			rv->same_boot = memcmp(boot, h.boot_id, sizeof(boot)) == 0;
			rv->void_log = !rv->same_boot && !h.dax;
			sfs_lookup_init(&rv->lookup, r, how->targets);
			err = replay(rv, &scan);
		} else {
			sfs_fail(why, err, "recover log %u of %s: %s", id, r->path, strerror(-err));
		}
	} else if (err == 0) {
		/* The agent made it and its holder changed what is none of its business: nothing in it can be believed. */
		rv->sum.logs = rv->sum.quarantined = 1;
	} else {
		sfs_fail(why, err, "read log %u of %s: %s", id, r->path, strerror(-err));
	}
	if (!err)
		err = clear_log(rv, fd, h.epoch);
	if (!err)
		sfs_recovery_add(sum, &rv->sum);
	free_all(rv);
	close(fd);
	return err;
}
