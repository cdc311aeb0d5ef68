/* SPDX-License-Identifier: Apache-2.0 */
/* Every log of a volume, one after the other, and the files that go with them. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recover/recover.h"
#include "recover/scan.h"

/*
 * Staging files first, the log's name last: while the log is there (cleared, so nothing in it counts) a repetition finds what is
 * left to remove. A staging file that no lease names would be taken for a fresh one.
 */
int sfs_recover_discard(const struct sfs_root *r, uint32_t id, const struct sfs_leasefile *lease, struct sfs_why *why)
{
	int err = 0;

	for (uint32_t i = 0; i < lease->head.nchunks && !err; i++)
		err = sfs_chunk_remove(r, lease->head.chunks[i]);
	if (!err)
		err = sfs_lease_remove(r, id);
	if (!err)
		err = sfs_log_remove(r, id);
	return err ? sfs_fail(why, err, "remove log %u of %s: %s", id, r->path, strerror(-err)) : 0;
}

/* Nothing is touched when a lease comes from the future. */
static int check_formats(const struct sfs_root *r, const struct sfs_numbers *leases, bool *damaged, struct sfs_why *why)
{
	for (uint32_t i = 0; i < leases->n; i++) {
		struct sfs_leasefile l;
		struct sfs_why here = {0};
		int err = sfs_lease_load(r, leases->v[i], &l, &here);

		if (err == -EINVAL)
			*damaged = true;
		else if (err)
			return sfs_fail(why, err, "%s", here.text);
		else
			sfs_lease_close(&l);
	}
	return 0;
}

/*
 * A lease that can't be read was cut short when it was made (power loss), or was destroyed. Which staging files went with it is
 * not known, so all that no other lease names are removed: they may hold somebody's data. Before anything else is, by which a repetition
 * would see that.
 */
static int remove_unleased(const struct sfs_root *r, const struct sfs_numbers *leases, struct sfs_why *why)
{
	struct sfs_numbers chunks;
	int err = sfs_chunk_list(r, &chunks, false, why);

	if (err)
		return err;
	for (uint32_t k = 0; k < chunks.n && !err; k++) {
		bool leased = false;

		for (uint32_t i = 0; i < leases->n && !leased && !err; i++) {
			struct sfs_leasefile l;

			err = sfs_lease_load(r, leases->v[i], &l, NULL);
			if (err) {
				err = err == -EINVAL || err == -ENOENT ? 0 : err;
				continue;
			}
			for (uint32_t c = 0; c < l.head.nchunks; c++)
				leased |= l.head.chunks[c] == chunks.v[k];
			sfs_lease_close(&l);
		}
		if (!leased && !err)
			err = sfs_chunk_remove(r, chunks.v[k]);
	}
	sfs_numbers_free(&chunks);
	return err ? sfs_fail(why, err, "remove a staging file of %s: %s", r->path, strerror(-err)) : 0;
}

static void notice(const struct sfs_recover_how *how, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void notice(const struct sfs_recover_how *how, const char *fmt, ...)
{
	char text[512];
	va_list args;

	if (!how->notice)
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	how->notice(how->notice_ctx, text);
}

static int nothing_to_do(void *ctx, const struct sfs_record *rec)
{
	(void)ctx;
	(void)rec;
	return 0;
}

static int nothing_to_replay(void *ctx, const struct sfs_record *rec, unsigned n)
{
	(void)ctx;
	(void)rec;
	(void)n;
	return 0;
}

/*
 * A log without a lease has not been given to anybody yet, and has no records. One that has some has lost its lease: what they may
 * name is not known, so nothing of it is used, and its staging files go as with a lease that can't be read.
 */
static int unleased(const struct sfs_root *r, uint32_t id, const struct sfs_numbers *leases, const struct sfs_recover_how *how,
		    struct sfs_recovery *sum, struct sfs_why *why)
{
	struct sfs_scan scan = {.seed = sfs_log_seed(r->uuid, id), .done = nothing_to_do, .group = nothing_to_replay};
	struct sfs_log_header h;
	struct stat st;
	int err = 0;

	scan.fd = sfs_log_open(r, id, O_RDONLY);
	if (scan.fd < 0)
		return scan.fd == -ENOENT ? 0
					  : sfs_fail(why, scan.fd, "open log %u of %s: %s", id, r->path, strerror(-scan.fd));
	if (fstat(scan.fd, &st) == 0 && st.st_size > SFS_LOG_RECORDS_OFFSET &&
	    pread(scan.fd, &h, sizeof(h), 0) == (ssize_t)sizeof(h)) {
		const uint64_t room = ((uint64_t)st.st_size - SFS_LOG_RECORDS_OFFSET) / sizeof(struct sfs_record);

		scan.slots = h.slots < room ? h.slots : (uint32_t)room;
		scan.epoch = h.epoch;
		err = sfs_scan(&scan);
	}
	close(scan.fd);
	if (err)
		return sfs_fail(why, err, "read log %u of %s: %s", id, r->path, strerror(-err));
	if (scan.records) {
		notice(how, "log %u of %s has %llu records and no lease that says what they may name; it is removed unread", id,
		       r->path, (unsigned long long)scan.records);
		sum->logs++;
		sum->records += scan.records;
		sum->quarantined += scan.records;
		err = remove_unleased(r, leases, why);
		if (err)
			return err;
	}
	err = sfs_log_remove(r, id);
	return err ? sfs_fail(why, err, "remove log %u of %s: %s", id, r->path, strerror(-err)) : 0;
}

static int one(const struct sfs_root *r, uint32_t id, const struct sfs_recover_how *how, struct sfs_recovery *sum,
	       uint32_t *living, struct sfs_usage *usage, struct sfs_why *why)
{
	struct sfs_leasefile lease;
	struct sfs_usage u;
	int fd, err;

	err = sfs_lease_load(r, id, &lease, NULL);
	if (err == -EINVAL) {
		notice(how, "the lease of log %u of %s is damaged; the log is removed unread", id, r->path);
		sum->logs++;
		sum->quarantined++;
		err = sfs_lease_remove(r, id);
		if (!err)
			err = sfs_log_remove(r, id);
		return err ? sfs_fail(why, err, "remove log %u of %s: %s", id, r->path, strerror(-err)) : 0;
	}
	if (err)
		return sfs_fail(why, err, "read the lease of log %u of %s: %s", id, r->path, strerror(-err));
	fd = sfs_log_open(r, id, O_RDONLY);
	if (fd == -ENOENT) {
		err = sfs_recover_discard(r, id, &lease, why); /* discarding it was interrupted */
		sfs_lease_close(&lease);
		return err;
	}
	if (fd < 0) {
		sfs_lease_close(&lease);
		return sfs_fail(why, fd, "open log %u of %s: %s", id, r->path, strerror(-fd));
	}
	if (!how->copy && sfs_lease_alive(&lease.head, fd)) {
		(*living)++;
		close(fd);
		sfs_lease_close(&lease);
		return 0;
	}
	sfs_log_usage(fd, lease.head.mode, &u); /* zeros of one that is shorter than a log is: recovery will say so */
	close(fd);
	err = sfs_recover_log(r, id, &lease, how, sum, why);
	if (!err)
		err = sfs_recover_discard(r, id, &lease, why);
	if (!err)
		sfs_usage_add(usage, &u);
	sfs_lease_close(&lease);
	return err;
}

/* A log that can't be recovered is left where that may be. */
static int one_or_later(const struct sfs_root *r, uint32_t id, const struct sfs_recover_how *how, struct sfs_recovery *sum,
			uint32_t *living, struct sfs_usage *usage, struct sfs_why *why)
{
	struct sfs_why here = {0};
	const int err = one(r, id, how, sum, living, usage, &here);

	if (!err || !how->later)
		return err ? sfs_fail(why, err, "%s", here.text) : 0;
	notice(how, "%s", here.text);
	(*living)++;
	return 0;
}

/* Logs that were being made when it ended; nobody makes any while we have the volume's lock. */
static int remove_unfinished(const struct sfs_root *r, struct sfs_why *why)
{
	struct sfs_numbers left;
	int err = sfs_list_dir(r->log, ".tmp", &left);

	for (uint32_t i = 0; !err && i < left.n; i++) {
		char name[32];

		sfs_number_name(name, left.v[i], ".tmp");
		if (unlinkat(r->log, name, 0) < 0 && errno != ENOENT)
			err = -errno;
	}
	sfs_numbers_free(&left);
	return err ? sfs_fail(why, err, "remove an unfinished log of %s: %s", r->path, strerror(-err)) : 0;
}

void sfs_totals_add(struct sfs_totals *t, const struct sfs_usage *usage, const struct sfs_recovery *s)
{
	sfs_counters_add(&t->counters, &usage->counters);
	for (unsigned mode = 0; mode < SFS_MODES; mode++)
		sfs_latencies_add(&t->latency[mode], &usage->latency[mode]);
	t->recovery_runs += s->replayed || s->quarantined;
	t->recovery_records += s->records;
	t->recovery_replayed += s->replayed;
	t->recovery_quarantined += s->quarantined;
}

int sfs_recover_all(const struct sfs_root *r, const struct sfs_recover_how *how, struct sfs_recovery *sum, uint32_t *living,
		    struct sfs_why *why)
{
	struct sfs_numbers logs, leases;
	struct sfs_recovery mine = {0};
	struct sfs_totals totals;
	struct sfs_usage usage = {0};
	bool damaged = false;
	int err;

	*living = 0;
	err = sfs_log_list(r, &logs, &leases, why);
	if (err)
		return err;
	err = check_formats(r, &leases, &damaged, why);
	if (!err && damaged)
		err = remove_unleased(r, &leases, why);
	for (uint32_t i = 0; i < leases.n && !err; i++)
		err = one_or_later(r, leases.v[i], how, &mine, living, &usage, why);
	for (uint32_t i = 0; i < logs.n && !err; i++)
		if (!sfs_numbers_has(&leases, logs.v[i]))
			err = unleased(r, logs.v[i], &leases, how, &mine, why);
	if (!err)
		err = remove_unfinished(r, why);
	sfs_numbers_free(&logs);
	sfs_numbers_free(&leases);
	if (mine.logs && !sfs_totals_read(r, &totals)) {
		int werr;

		sfs_totals_add(&totals, &usage, &mine);
		werr = sfs_totals_write(r, &totals);
		if (!err && werr)
			err = sfs_fail(why, werr, "write the totals of %s: %s", r->path, strerror(-werr));
	}
	sfs_recovery_add(sum, &mine);
	return err;
}
