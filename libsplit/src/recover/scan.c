/* SPDX-License-Identifier: Apache-2.0 */
#include "recover/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/holes.h"

#define WINDOW 16384u /* records, 1 MiB */

/* Records of an operation, collected from its last one on; filled from the end. */
struct collect {
	struct sfs_record rec[SFS_GROUP_MAX + 1];
	unsigned first; /* index of the oldest one so far */
	unsigned missing;
	bool active;
};

static void give_up(struct sfs_scan *s, struct collect *g)
{
	if (g->active)
		s->incomplete += SFS_GROUP_MAX + 1 - g->first;
	g->active = false;
}

static bool continues(const struct collect *g, const struct sfs_record *rec)
{
	const struct sfs_record *newer = &g->rec[g->first];

	return rec->type == SFS_REC_WRITE && rec->group_pos == newer->group_pos - 1 &&
	       rec->group_left == newer->group_left + 1 &&
	       ((rec->ino == newer->ino && rec->gen == newer->gen) || (rec->flags & newer->flags & SFS_REC_FILES));
}

/* All are there: the records of each file are an operation, and the newest of one file is what it is, whatever those of another are. */
static int whole(struct sfs_scan *s, const struct sfs_record *rec, unsigned n)
{
	int r = 0;

	for (unsigned first; r == 0 && n > 0; n = first) {
		for (first = n - 1; first > 0 && rec[first - 1].ino == rec[n - 1].ino && rec[first - 1].gen == rec[n - 1].gen;)
			first--;
		r = s->group(s->ctx, &rec[first], n - first);
	}
	return r;
}

static int add(struct sfs_scan *s, struct collect *g, const struct sfs_record *rec)
{
	const unsigned n = SFS_GROUP_MAX + 1 - (g->first - 1);

	g->rec[--g->first] = *rec;
	if (rec->group_pos > 0)
		return 0;
	g->active = false;
	return whole(s, &g->rec[g->first], n);
}

/* rec: NULL when the slot holds nothing valid. */
static int take(struct sfs_scan *s, struct collect *g, const struct sfs_record *rec)
{
	if (g->active) {
		if (rec && continues(g, rec))
			return add(s, g, rec);
		give_up(s, g);
	}
	if (!rec)
		return 0;
	if (rec->type != SFS_REC_WRITE)
		return s->done(s->ctx, rec);
	if (rec->group_left > 0) {
		s->incomplete++;
		return 0;
	}
	g->active = true;
	g->first = SFS_GROUP_MAX + 1;
	return add(s, g, rec);
}

/* The next data at or behind `at`, or `end`. */
static off_t next_data(const struct sfs_scan *s, off_t at, off_t end)
{
	const off_t to = sfs_seek_data(s->fd, at);

	if (to < 0)
		return to == -ENXIO ? end : at; /* a file system that can't tell: all of it is data */
	return to < end ? to : end;
}

/* Where the data at `at` ends, or `end`. */
static off_t next_hole(const struct sfs_scan *s, off_t at, off_t end)
{
	const off_t to = sfs_seek_hole(s->fd, at);

	/* Behind `at` in any case: what is no hole is read, and this gets on. */
	return to <= at || to > end ? end : to;
}

static int read_run(const struct sfs_scan *s, char *buf, off_t at, size_t want)
{
	size_t done = 0;

	while (done < want) {
		const ssize_t r = pread(s->fd, buf + done, want - done, at + (off_t)done);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (r == 0)
			break;
		done += (size_t)r;
	}
	memset(buf + done, 0, want - done); /* cut off meanwhile */
	return 0;
}

/*
 * Slots from `from` on, `n` of them at most; *have: behind so many there is nothing. A log that was hardly used is hardly read:
 * where nobody ever stored it is allocated, and a hole to SEEK_DATA.
 */
static int read_window(const struct sfs_scan *s, struct sfs_record *buf, uint32_t from, uint32_t n, uint32_t *have)
{
	const off_t start = (off_t)(SFS_LOG_RECORDS_OFFSET + (uint64_t)from * sizeof(*buf)),
		    end = start + (off_t)(n * sizeof(*buf));
	off_t filled = start;
	int err = 0;

	for (off_t at = next_data(s, start, end), stop; !err && at < end; at = next_data(s, stop, end)) {
		stop = next_hole(s, at, end);
		memset((char *)buf + (filled - start), 0, (size_t)(at - filled));
		err = read_run(s, (char *)buf + (at - start), at, (size_t)(stop - at));
		filled = stop;
	}
	*have = (uint32_t)((size_t)(filled - start) / sizeof(*buf));
	return err;
}

int sfs_scan(struct sfs_scan *s)
{
	struct sfs_record *buf = malloc((s->slots < WINDOW ? s->slots + 1 : WINDOW) * sizeof(*buf));
	struct collect *g = calloc(1, sizeof(*g));
	int err = buf && g ? 0 : -ENOMEM;

	s->records = s->incomplete = 0;
	posix_fadvise(s->fd, 0, 0, POSIX_FADV_RANDOM); /* what is read ahead would count as filled in the next pass */
	for (uint32_t end = s->slots; !err && end > 0;) {
		const uint32_t n = end < WINDOW ? end : WINDOW, from = end - n;
		uint32_t have = 0;

		err = read_window(s, buf, from, n, &have);
		if (!err && have < n)
			give_up(s, g);
		for (uint32_t i = have; !err && i-- > 0;) {
			const bool valid = sfs_record_valid(&buf[i], s->seed, s->epoch, from + i);

			s->records += valid;
			if (valid || g->active)
				err = take(s, g, valid ? &buf[i] : NULL);
		}
		end = from;
	}
	if (!err)
		give_up(s, g);
	free(g);
	free(buf);
	return err;
}
