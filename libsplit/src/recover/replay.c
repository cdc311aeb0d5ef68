/* SPDX-License-Identifier: Apache-2.0 */
#include "recover/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"

#define OPEN_MAX_ 256u

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
	for (uint32_t i = 0; i < c->n; i++)
		c->chunk[i] = (struct sfs_chunk_ref){.id = lease->chunks[i], .fd = -1};
	qsort(c->chunk, c->n, sizeof(c->chunk[0]), by_id);
}

void sfs_chunks_close(struct sfs_chunks *c)
{
	for (uint32_t i = 0; i < c->n; i++) {
		if (c->chunk[i].fd >= 0)
			close(c->chunk[i].fd);
		if (c->chunk[i].fd >= 0)
			c->chunk[i].fd = -1;
	}
	c->last = NULL;
}

static int open_chunk(struct sfs_chunks *c, struct sfs_chunk_ref *ref)
{
	uint32_t open_now = 0;
	struct stat st;
	int fd;

	for (uint32_t i = 0; i < c->n; i++)
		open_now += c->chunk[i].fd >= 0;
	if (open_now >= OPEN_MAX_)
		sfs_chunks_close(c);
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
	off_t data = lseek(fd, (off_t)*from, SEEK_DATA), hole;

	if (data < 0)
		return errno == ENXIO ? 0 : -errno;
	if ((uint64_t)data >= end)
		return 0;
	hole = lseek(fd, data, SEEK_HOLE);
	if (hole < 0)
		return -errno;
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

int sfs_replay_check(const struct sfs_chunk_ref *c, uint64_t off, uint32_t len, uint32_t crc, enum sfs_data *state)
{
	uint64_t from = off, to = 0;
	unsigned char buf[16384];
	uint32_t found = 0;
	int r;

	r = next_data(c->fd, &from, &to, off + len);
	if (r < 0)
		return r;
	if (r == 0 || from != off || to != off + len) {
		*state = SFS_DATA_MOVED;
		return 0;
	}
	for (uint32_t done = 0; done < len;) {
		const size_t n = len - done < sizeof(buf) ? len - done : sizeof(buf);
		const ssize_t got = read_all(c->fd, buf, n, off + done);

		if (got < 0)
			return (int)got;
		if ((size_t)got < n) {
			*state = SFS_DATA_TORN; /* cut off meanwhile */
			return 0;
		}
		found = crc32c(found, buf, n);
		done += (uint32_t)n;
	}
	*state = found == crc ? SFS_DATA_WHOLE : SFS_DATA_TORN;
	return 0;
}

int sfs_replay_copy(const struct sfs_chunk_ref *c, uint64_t from, int target, uint64_t to, uint64_t len, void *buf,
		    uint64_t *bytes)
{
	const uint64_t start = from, end = from + len;

	while (from < end) {
		uint64_t stop;
		int r = next_data(c->fd, &from, &stop, end);

		if (r <= 0)
			return r;
		while (from < stop) {
			const size_t n = stop - from < SFS_REPLAY_BUFFER ? (size_t)(stop - from) : SFS_REPLAY_BUFFER;
			const ssize_t got = read_all(c->fd, buf, n, from);

			if (got <= 0)
				return (int)got; /* 0: its owner cut it off, which harms its owner alone */
			for (ssize_t done = 0; done < got;) {
				const ssize_t w = pwrite(target, (char *)buf + done, (size_t)(got - done),
							 (off_t)(to + (from - start) + (uint64_t)done));

				if (w < 0 && errno == EINTR)
					continue;
				if (w <= 0)
					return w < 0 ? -errno : -ENOSPC;
				done += w;
			}
			*bytes += (uint64_t)got;
			from += (uint64_t)got;
		}
	}
	return 0;
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
