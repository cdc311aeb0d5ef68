/* SPDX-License-Identifier: Apache-2.0 */
#include "recover/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/hash.h"
#include "base/holes.h"

#define OPEN_MAX_   256u
#define SHORT_RANGE (1u << 20)

static int by_id(const void *a, const void *b)
{
	const uint32_t x = ((const struct sfs_chunk_ref *)a)->id, y = ((const struct sfs_chunk_ref *)b)->id;

	return x < y ? -1 : x > y;
}

void sfs_chunks_init(struct sfs_chunks *c, const struct sfs_root *root, const struct sfs_lease *lease)
{
	c->root = root;
	c->n = lease->nchunks < SFS_LEASE_CHUNKS ? lease->nchunks : SFS_LEASE_CHUNKS;
	c->last = NULL;
	c->window = NULL;
	for (uint32_t i = 0; i < c->n; i++)
		c->chunk[i] = (struct sfs_chunk_ref){.id = lease->chunks[i], .fd = -1};
	qsort(c->chunk, c->n, sizeof(c->chunk[0]), by_id);
}

static void close_files(struct sfs_chunks *c)
{
	for (uint32_t i = 0; i < c->n; i++) {
		if (c->chunk[i].fd >= 0)
			close(c->chunk[i].fd);
		if (c->chunk[i].fd >= 0)
			c->chunk[i].fd = -1;
	}
	c->last = NULL;
}

void sfs_chunks_close(struct sfs_chunks *c)
{
	close_files(c);
	for (uint32_t i = 0; c->window && i < SFS_REPLAY_WINDOW_SETS; i++)
		for (uint32_t k = 0; k < SFS_REPLAY_WINDOW_WAYS; k++)
			free(c->window[i][k].data);
	free(c->window);
	c->window = NULL;
}

static int open_chunk(struct sfs_chunks *c, struct sfs_chunk_ref *ref)
{
	uint32_t open_now = 0;
	struct stat st;
	int fd;

	for (uint32_t i = 0; i < c->n; i++)
		open_now += c->chunk[i].fd >= 0;
	if (open_now >= OPEN_MAX_)
		close_files(c);
	fd = sfs_chunk_open(c->root, ref->id);
	if (fd == -ENOENT) {
		ref->fd = -2;
		return 0;
	}
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0) {
		const int err = -errno;

		close(fd);
		return err;
	}
	ref->fd = fd;
	ref->size = (uint64_t)st.st_size;
	return 0;
}

struct sfs_chunk_ref *sfs_chunks_get(struct sfs_chunks *c, uint32_t id, int *err)
{
	const struct sfs_chunk_ref key = {.id = id};
	struct sfs_chunk_ref *ref = c->last;

	*err = 0;
	if (!ref || ref->id != id)
		ref = bsearch(&key, c->chunk, c->n, sizeof(c->chunk[0]), by_id);
	if (!ref || ref->fd == -2)
		return NULL;
	if (ref->fd < 0) {
		*err = open_chunk(c, ref);
		if (*err || ref->fd < 0)
			return NULL;
	}
	c->last = ref;
	return ref;
}

/* The first data in [*from, end): 1 and [*from, *to), or 0. */
static int next_data(int fd, uint64_t *from, uint64_t *to, uint64_t end)
{
	const off_t data = sfs_seek_data(fd, (off_t)*from);
	off_t hole;

	if (data < 0)
		return data == -ENXIO ? 0 : (int)data;
	if ((uint64_t)data >= end)
		return 0;
	hole = sfs_seek_hole(fd, data);
	if (hole < 0)
		return (int)hole;
	*from = (uint64_t)data;
	*to = (uint64_t)hole < end ? (uint64_t)hole : end;
	return 1;
}

/* n bytes, or fewer at the end of the file. */
static ssize_t read_all(int fd, void *buf, size_t n, uint64_t off)
{
	size_t done = 0;

	while (done < n) {
		const ssize_t r = pread(fd, (char *)buf + done, n - done, (off_t)(off + done));

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (r == 0)
			break;
		done += (size_t)r;
	}
	return (ssize_t)done;
}

/*
 * Is all of [from, end) data, and no hole? SEEK_HOLE may look at every page up to the end of the file: a short range is
 * cheaper block by block.
 */
static int all_data(int fd, uint64_t from, uint64_t end)
{
	off_t at;

	if (end - from > SHORT_RANGE) {
		at = sfs_seek_hole(fd, (off_t)from);
		return at < 0 ? (at == -ENXIO ? 0 : (int)at) : (uint64_t)at >= end;
	}
	for (; from < end; from = (from | (SFS_BLOCK - 1)) + 1) {
		at = sfs_seek_data(fd, (off_t)from);
		if (at < 0)
			return at == -ENXIO ? 0 : (int)at;
		if ((uint64_t)at != from)
			return 0;
	}
	return 1;
}

/* What is around `off` in the staging file, read now or a while ago. NULL with *err set. */
static const struct sfs_replay_window *window(struct sfs_chunks *c, const struct sfs_chunk_ref *ref, uint64_t off, int *err)
{
	const uint64_t at = off - off % SFS_REPLAY_WINDOW_BYTES, key = off / SFS_REPLAY_WINDOW_BYTES ^ (uint64_t)ref->id << 40;
	struct sfs_replay_window *set, w;
	uint32_t i = 0;
	ssize_t got;

	if (!c->window)
		c->window = calloc(SFS_REPLAY_WINDOW_SETS, sizeof(*c->window));
	if (!c->window) {
		*err = -ENOMEM;
		return NULL;
	}
	set = c->window[(key * SFS_HASH_FACTOR >> 32) % SFS_REPLAY_WINDOW_SETS];
	while (i < SFS_REPLAY_WINDOW_WAYS - 1 && !(set[i].data && set[i].chunk == ref->id && set[i].at == at))
		i++;
	w = set[i];
	if (!w.data || w.chunk != ref->id || w.at != at) {
		if (!w.data)
			w.data = malloc(SFS_REPLAY_WINDOW_BYTES);
		got = w.data ? read_all(ref->fd, w.data, SFS_REPLAY_WINDOW_BYTES, at) : -ENOMEM;
		set[i] = (struct sfs_replay_window){.data = w.data, .at = UINT64_MAX}; /* nothing, when reading fails */
		if (got < 0) {
			*err = (int)got;
			return NULL;
		}
		w.chunk = ref->id;
		w.at = at;
		w.n = (size_t)got;
	}
	memmove(set + 1, set, i * sizeof(*set));
	set[0] = w;
	return set;
}

/* The checksum of what is in the staging file now; *whole is false when it ends before. */
static int checksum(struct sfs_chunks *c, const struct sfs_chunk_ref *ref, uint64_t off, uint32_t len, uint32_t *crc,
		    bool *whole)
{
	int err = 0;

	*crc = 0;
	*whole = true;
	while (len > 0) {
		const struct sfs_replay_window *w = window(c, ref, off, &err);
		size_t n;

		if (!w)
			return err;
		if (off - w->at >= w->n) {
			*whole = false; /* cut off meanwhile */
			return 0;
		}
		n = w->n - (size_t)(off - w->at) < len ? w->n - (size_t)(off - w->at) : len;
		*crc = crc32c(*crc, w->data + (off - w->at), n);
		off += n;
		len -= (uint32_t)n;
	}
	return 0;
}

/*
 * Records are small and stand in the staging file next to each other, so it is read in windows. What they hold may be old by now only
 * if the client lives and relinks, and then the copy finds the hole.
 */
int sfs_replay_check(struct sfs_chunks *c, const struct sfs_chunk_ref *ref, uint64_t off, uint32_t len, uint32_t crc,
		     enum sfs_data *state)
{
	uint32_t found;
	bool whole;
	int r = checksum(c, ref, off, len, &found, &whole);

	if (r < 0)
		return r;
	if (whole && found == crc) {
		*state = SFS_DATA_WHOLE;
		return 0;
	}
	r = all_data(ref->fd, off, off + len);
	if (r < 0)
		return r;
	*state = whole && r == 0 ? SFS_DATA_MOVED : SFS_DATA_TORN;
	return 0;
}

static int write_all(int target, const char *buf, size_t n, uint64_t off)
{
	for (size_t done = 0; done < n;) {
		const ssize_t w = pwrite(target, buf + done, n - done, (off_t)(off + done));

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return w < 0 ? -errno : -ENOSPC;
		done += (size_t)w;
	}
	return 0;
}

int sfs_replay_copy(const struct sfs_chunk_ref *c, uint64_t from, int target, uint64_t to, uint64_t len, void *buf,
		    uint64_t *bytes)
{
	const uint64_t start = from, end = from + len;
	uint64_t stop = end;
	int r = len <= SHORT_RANGE ? 1 : next_data(c->fd, &from, &stop, end);

	while (r > 0 && from < end) {
		const size_t n = stop - from < SFS_REPLAY_BUFFER ? (size_t)(stop - from) : SFS_REPLAY_BUFFER;
		const ssize_t got = read_all(c->fd, buf, n, from);

		if (got <= 0)
			return (int)got; /* 0: its owner cut it off, which harms its owner alone */
		/* Asked after reading: then what was read was the data, and not the hole that a relink left. */
		r = all_data(c->fd, from, from + (uint64_t)got);
		if (r > 0) {
			const int err = write_all(target, buf, (size_t)got, to + (from - start));

			if (err)
				return err;
			*bytes += (uint64_t)got;
			from += (uint64_t)got;
		}
		if (r == 0 || (r > 0 && from == stop && stop < end)) {
			r = next_data(c->fd, &from, &stop, end);
		}
	}
	return r < 0 ? r : 0;
}

int sfs_replay_strip(int target)
{
	struct stat st;
	mode_t strip = S_ISUID;

	if (fstat(target, &st) < 0)
		return -errno;
	if (st.st_mode & S_IXGRP)
		strip |= S_ISGID;
	if (!(st.st_mode & strip))
		return 0;
	return fchmod(target, (st.st_mode & 07777) & ~strip) < 0 ? -errno : 0;
}
