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

#include "recover/recovering.h"

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

static int pass(struct sfs_recovering *rv, struct sfs_scan *scan, bool apply)
{
	int err;

	rv->apply = apply;
	rv->all_retired = rv->all_committed = false;
	memset(&rv->sum, 0, sizeof(rv->sum));
	for (uint32_t i = 0; i < rv->table_size; i++)
		for (struct sfs_rec_file *f = rv->table[i]; f; f = f->next)
			f->retired = f->committed = false;
	err = sfs_scan(scan);
	if (err)
		return sfs_fail(rv->why, err, "read a log of %s: %s", rv->root->path, strerror(-err));
	rv->sum.logs = 1;
	rv->sum.records = scan->records;
	rv->sum.ignored += scan->incomplete;
	for (uint32_t i = 0; apply && i < rv->table_size; i++)
		for (struct sfs_rec_file *f = rv->table[i]; f; f = f->next)
			if ((err = sfs_rec_flush(rv, f)))
				return err;
	return 0;
}

static int look_up(struct sfs_recovering *rv, uint32_t *nwanted)
{
	struct sfs_wanted **wanted = calloc(rv->nfiles + 1, sizeof(*wanted));
	int err;

	*nwanted = 0;
	if (!wanted)
		return sfs_fail(rv->why, -ENOMEM, "not enough memory to recover %s", rv->root->path);
	for (uint32_t i = 0; i < rv->table_size; i++)
		for (struct sfs_rec_file *f = rv->table[i]; f; f = f->next)
			if (f->wanted)
				wanted[(*nwanted)++] = &f->id;
	if (*nwanted)
		sfs_lookup_init(&rv->lookup, rv->root, rv->how->targets);
	err = sfs_lookup_find(&rv->lookup, wanted, *nwanted, rv->why);
	free(wanted);
	return err;
}

/* Sizes, then durability: the log may be cleared when this has returned. */
static int settle(struct sfs_recovering *rv)
{
	bool any = false;

	for (uint32_t i = 0; i < rv->table_size; i++) {
		for (struct sfs_rec_file *f = rv->table[i]; f; f = f->next) {
			struct stat st;
			int err;

			if (!f->touched)
				continue;
			err = sfs_rec_file_open(rv, f);
			if (err == -ENOENT)
				continue;
			if (err)
				return err;
			if (fstat(f->fd, &st) < 0)
				return sfs_rec_fail(rv, f, -errno, "stat");
			if (f->cut && (uint64_t)st.st_size > f->cut_at && ftruncate(f->fd, (off_t)f->cut_at) < 0)
				return sfs_rec_fail(rv, f, -errno, "truncate");
			if ((uint64_t)st.st_size < f->size && ftruncate(f->fd, (off_t)f->size) < 0)
				return sfs_rec_fail(rv, f, -errno, "extend");
			sfs_rec_file_close(rv, f);
			any = true;
		}
	}
	if (any && rv->how->durable && syncfs(rv->root->fd) < 0)
		return sfs_fail(rv->why, -errno, "sync %s: %s", rv->root->path, strerror(errno));
	return 0;
}

static int clear_log(struct sfs_recovering *rv, int fd, uint64_t epoch)
{
	const uint64_t next = epoch + 1;

	if (pwrite(fd, &next, sizeof(next), offsetof(struct sfs_log_header, epoch)) != (ssize_t)sizeof(next) ||
	    (rv->how->durable && fdatasync(fd) < 0))
		return sfs_fail(rv->why, errno ? -errno : -EIO, "clear a log of %s: %s", rv->root->path, strerror(errno));
	return 0;
}

static void free_all(struct sfs_recovering *rv)
{
	for (uint32_t i = 0; i < rv->table_size; i++) {
		struct sfs_rec_file *next;

		for (struct sfs_rec_file *f = rv->table[i]; f; f = next) {
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

static int replay(struct sfs_recovering *rv, struct sfs_scan *scan)
{
	uint32_t nwanted;
	int err = pass(rv, scan, false);

	if (!err)
		err = look_up(rv, &nwanted);
	if (err || !nwanted)
		return err; /* most logs: what follows costs more than all before */
	rv->buf = malloc(SFS_REPLAY_BUFFER);
	if (!rv->buf)
		return sfs_fail(rv->why, -ENOMEM, "not enough memory to recover %s", rv->root->path);
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

static int start(struct sfs_recovering *rv, const struct sfs_leasefile *lease)
{
	rv->table_size = 64;
	while (rv->table_size < lease->head.ninodes)
		rv->table_size *= 2;
	rv->table = calloc(rv->table_size, sizeof(*rv->table));
	if (!rv->table)
		return -ENOMEM;
	for (uint32_t i = 0; i < lease->head.ninodes; i++) {
		struct sfs_rec_file *f;

		if (lease->inodes[i].valid != 1)
			continue;
		f = sfs_rec_file_get(rv, lease->inodes[i].ino, lease->inodes[i].gen);
		if (!f)
			return -ENOMEM;
		f->leased = true;
	}
	sfs_chunks_init(&rv->chunks, rv->root, &lease->head);
	return 0;
}

/* The header is the log's: what of its records counts goes into the files. */
static int recover_records(struct sfs_recovering *rv, int fd, uint32_t id, const struct sfs_log_header *h,
			   const struct sfs_leasefile *lease)
{
	struct sfs_scan scan = {.fd = fd,
				.seed = sfs_log_seed(rv->root->uuid, id),
				.epoch = h->epoch,
				.done = sfs_rec_done,
				.group = sfs_rec_group,
				.ctx = rv};
	uint64_t room = 0;
	uint8_t boot[16];
	struct stat st;
	int err = sfs_boot_id(boot);

	if (!err)
		err = fstat(fd, &st) < 0 ? -errno : 0;
	if (!err)
		err = start(rv, lease);
	if (err)
		return sfs_fail(rv->why, err, "recover log %u of %s: %s", id, rv->root->path, strerror(-err));
	if ((uint64_t)st.st_size > SFS_LOG_RECORDS_OFFSET)
		room = ((uint64_t)st.st_size - SFS_LOG_RECORDS_OFFSET) / sizeof(struct sfs_record);
	scan.slots = h->slots < room ? h->slots : (uint32_t)room;
	rv->same_boot = memcmp(boot, h->boot_id, sizeof(boot)) == 0;
	rv->void_log = !rv->same_boot && !h->dax;
	return replay(rv, &scan);
}

int sfs_recover_log(const struct sfs_root *r, uint32_t id, const struct sfs_leasefile *lease, const struct sfs_recover_how *how,
		    struct sfs_recovery *sum, struct sfs_why *why)
{
	struct sfs_recovering *rv = calloc(1, sizeof(*rv));
	int fd = sfs_log_open(r, id, O_RDWR), err;
	struct sfs_log_header h;

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
	if (err == 1)
		err = recover_records(rv, fd, id, &h, lease);
	else if (err == 0)
		/* The agent made it and its holder changed what is none of its business: nothing in it can be believed. */
		rv->sum.logs = rv->sum.quarantined = 1;
	else
		sfs_fail(why, err, "read log %u of %s: %s", id, r->path, strerror(-err));
	if (!err)
		err = clear_log(rv, fd, h.epoch);
	if (!err)
		sfs_recovery_add(sum, &rv->sum);
	free_all(rv);
	close(fd);
	return err;
}
