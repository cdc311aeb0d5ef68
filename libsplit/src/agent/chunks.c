/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging files: who gets which. A client gets a tiny one for its first bytes, a small one then, and full-size ones when it goes on.
 *
 * Full-size ones are of the pool. A tenant has three times what it leaves free of it at most; and one. For a write that is to be whole it may
 * have more, of the volume's free space, while that write is staged. When there is no full-size one for
 * a client it gets a small one while the pool has space for that, and a tiny one at last, so that each client that is there can stage.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/internal.h"

/* ---- counting ---- */

static void count(struct agent *a, struct client *c, enum sfs_chunk_size size, int by)
{
	if (size != SFS_FULL) {
		a->leased_lesser[size] += (uint32_t)by;
		return;
	}
	a->leased_chunks += (uint32_t)by;
	c->tenant->chunks += (uint32_t)by;
}

static void count_extra(struct agent *a, struct client *c, int by)
{
	c->extra += (uint32_t)by;
	c->tenant->extra += (uint32_t)by;
	a->extra_chunks += (uint32_t)by;
}

static uint32_t lesser_of(const struct client *c)
{
	return (c->lesser[SFS_TINY] != 0) + (c->lesser[SFS_SMALL] != 0);
}

void chunks_count(struct agent *a, struct client *c, int by)
{
	for (unsigned i = 0; i < SFS_LESSER_SIZES; i++)
		if (c->lesser[i])
			count(a, c, i, by);
	count(a, c, SFS_FULL, by * (int)(c->lease.head.nchunks - lesser_of(c)));
	if (by < 0)
		count_extra(a, c, -(int)c->extra);
}

void chunks_known(struct agent *a, struct client *c)
{
	for (uint32_t i = 0; i < c->lease.head.nchunks; i++) {
		struct stat st;
		char name[32];

		sfs_number_name(name, c->lease.head.chunks[i], "");
		if (fstatat(a->root.pool, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		for (unsigned k = 0; k < SFS_LESSER_SIZES; k++)
			if ((uint64_t)st.st_size == sfs_lesser_bytes(k) && a->config->chunk_bytes != sfs_lesser_bytes(k) &&
			    !c->lesser[k])
				c->lesser[k] = c->lease.head.chunks[i];
		c->given[SFS_TINY] = c->given[SFS_SMALL] = true;
	}
}

uint64_t chunks_leased_bytes(const struct agent *a)
{
	return (uint64_t)a->leased_chunks * a->config->chunk_bytes + a->leased_lesser[SFS_TINY] * SFS_TINY_CHUNK +
	       a->leased_lesser[SFS_SMALL] * SFS_SMALL_CHUNK;
}

uint32_t chunks_awaited(const struct agent *a, enum sfs_chunk_size size, bool over)
{
	uint32_t n = 0;

	for (const struct client *c = client_count(a, C_WAIT_CHUNK) ? a->clients : NULL; c; c = c->next)
		n += c->state == C_WAIT_CHUNK && c->wants == size && (!over || c->wants_over);
	return n;
}

uint32_t chunks_give_up(struct agent *a)
{
	uint32_t n = a->nfree_chunks + reuse_kept(a);

	reuse_give_up(a);
	for (unsigned i = 0; i < SFS_LESSER_SIZES; i++) {
		n += a->lesser[i].n;
		while (a->lesser[i].n > 0)
			sfs_chunk_remove(&a->root, a->lesser[i].id[--a->lesser[i].n]);
	}
	while (a->nfree_chunks > 0)
		sfs_chunk_remove(&a->root, a->free_chunks[--a->nfree_chunks]);
	return n;
}

/* ---- leasing ---- */

/* A file that is ready becomes the client's, or goes, and the client is told why. */
static void give(struct agent *a, struct client *c, uint32_t id, enum sfs_chunk_size size)
{
	struct sfs_msg m = {
		.type = SFS_MSG_CHUNK, .a = id, .b = size == SFS_FULL ? a->config->chunk_bytes : sfs_lesser_bytes(size)};
	const bool kept = size == SFS_TINY && c->tiny_kept;
	int fd, err;

	c->tiny_kept = c->tiny_kept && !kept;
	client_set_state(a, c, C_READY);
	fd = sfs_chunk_open(&a->root, id);
	if (fd < 0) {
		agent_log(a, "open staging file %u: %s", id, strerror(-fd));
		sfs_chunk_remove(&a->root, id);
		client_reply_error(a, c, SFS_MSG_CHUNK, fd, "staging file unusable");
		return;
	}
	err = kept ? 0 : sfs_lease_add_chunk(&c->lease, id);
	if (err) {
		close(fd);
		sfs_chunk_remove(&a->root, id);
		client_reply_error(a, c, SFS_MSG_CHUNK, err, "lease can't be written");
		return;
	}
	c->given[size] = true;
	if (size != SFS_FULL)
		c->lesser[size] = id;
	if (!kept)
		count(a, c, size, 1);
	if (size == SFS_FULL && c->wants_extra)
		count_extra(a, c, 1);
	client_reply(a, c, &m, &fd, 1);
	close(fd);
}

bool chunk_ready(const struct agent *a, const struct client *c)
{
	if (c->wants == SFS_TINY && c->tiny_kept)
		return true;
	return c->wants == SFS_FULL ? a->nfree_chunks > 0 : a->lesser[c->wants].n > 0;
}

void chunk_give(struct agent *a, struct client *c)
{
	struct spares *s = &a->lesser[c->wants % SFS_LESSER_SIZES];

	if (c->wants == SFS_TINY && c->tiny_kept)
		give(a, c, c->lesser[SFS_TINY], SFS_TINY);
	else
		give(a, c, c->wants == SFS_FULL ? a->free_chunks[--a->nfree_chunks] : s->id[--s->n], c->wants);
}

/* May the client have one more full-size one? Where there are no lesser ones nobody is left without any. */
static bool full_may_be(const struct agent *a, const struct client *c)
{
	const struct tenant *t = c->tenant;

	if (c->lease.head.nchunks - lesser_of(c) - c->extra >= a->client_chunks_max ||
	    c->lease.head.nchunks >= SFS_LEASE_CHUNKS)
		return false;
	return t->chunks == 0 || (!a->plan.small && c->lease.head.nchunks == 0) ||
	       tenant_may(t->chunks - t->extra, a->leased_chunks - a->extra_chunks,
			  (uint32_t)(a->config->pool_bytes / a->config->chunk_bytes), CHUNK_TIMES);
}

/* One beyond its part, for such a write? As much as the longest one takes, all of a tenant together. */
static bool extra_may_be(const struct agent *a, const struct client *c, uint64_t whole)
{
	return whole > 0 && c->lease.head.nchunks < SFS_LEASE_CHUNKS &&
	       (uint64_t)c->tenant->extra * a->config->chunk_bytes < SFS_WHOLE_MAX;
}

static bool small_may_be(const struct agent *a, const struct client *c)
{
	return a->plan.small && !c->lesser[SFS_SMALL] && c->lease.head.nchunks < SFS_LEASE_CHUNKS &&
	       chunks_leased_bytes(a) + SFS_SMALL_CHUNK <= a->config->pool_bytes;
}

static bool tiny_may_be(const struct agent *a, const struct client *c)
{
	if (c->tiny_kept)
		return true;
	return a->plan.small && !c->lesser[SFS_TINY] && c->lease.head.nchunks < SFS_LEASE_CHUNKS;
}

/* The size that a client gets which is about to stage so many bytes (0: it does not say); -1: none. */
static int size_for(const struct agent *a, const struct client *c, uint64_t bytes)
{
	const bool grown = c->given[SFS_SMALL] || c->given[SFS_FULL];

	/* The first few bytes of a program are often all. */
	if (bytes > 0 && !grown && !c->given[SFS_TINY] && bytes <= SFS_TINY_CHUNK / 2 && tiny_may_be(a, c))
		return SFS_TINY;
	if (bytes > 0 && !grown && bytes <= SFS_SMALL_CHUNK / 2 && small_may_be(a, c))
		return SFS_SMALL;
	if (full_may_be(a, c))
		return SFS_FULL;
	/* Who has had its part of the pool has to bring in what it has staged, and use that again. */
	if (c->lease.head.nchunks > lesser_of(c))
		return -1;
	return small_may_be(a, c) ? (int)SFS_SMALL : tiny_may_be(a, c) ? (int)SFS_TINY : -1;
}

/* The shortest that is long enough. Has the client one of that length already, it is full, or holed: it goes back first. */
static int size_over(const struct agent *a, const struct client *c, uint64_t bytes)
{
	if (bytes <= SFS_TINY_CHUNK && tiny_may_be(a, c))
		return SFS_TINY;
	return bytes <= SFS_SMALL_CHUNK && small_may_be(a, c) ? (int)SFS_SMALL : -1;
}

void chunk_ask(struct agent *a, struct client *c, uint64_t bytes, uint64_t whole, bool over)
{
	int size;

	if (c->right < RIGHT_WRITE || c->lease.head.memory) {
		client_reply_error(a, c, SFS_MSG_CHUNK, -EACCES, "no file for writing yet");
		return;
	}
	size = over ? size_over(a, c, bytes) : -1;
	c->wants_over = size >= 0;
	if (size < 0)
		size = size_for(a, c, bytes);
	c->wants_extra = size < 0 && extra_may_be(a, c, whole);
	if (c->wants_extra)
		size = SFS_FULL;
	if (size < 0) {
		client_reply_error(a, c, SFS_MSG_CHUNK, -ENOSPC, "staging limit reached");
		return;
	}
	c->wants = (enum sfs_chunk_size)size;
	if (size == SFS_TINY && !a->lesser[SFS_TINY].n)
		request_more_spare(a);
	client_set_state(a, c, C_WAIT_CHUNK);
	request_serve_waiting(a);
	request_refill(a);
}

/*
 * Out of sight first, out of the lease then: whatever happens between, the file can't be leased to somebody else with its
 * old content, and what relink has taken out of it is in the journal before that.
 */
void chunk_return(struct agent *a, struct client *c, uint64_t id)
{
	enum sfs_chunk_size size = SFS_FULL;
	bool known = false;
	int err;

	for (uint32_t i = 0; i < c->lease.head.nchunks; i++)
		known |= c->lease.head.chunks[i] == id;
	if (!known) {
		client_drop(a, c, "RETURN of a staging file it does not have");
		return;
	}
	err = sfs_chunk_hide(&a->root, (uint32_t)id);
	if (err) {
		agent_log(a, "rename staging file %u: %s", (uint32_t)id, strerror(-err));
		return; /* it stays in the lease and goes when the client goes */
	}
	err = sfs_lease_del_chunk(&c->lease, (uint32_t)id);
	if (err)
		agent_log(a, "write the lease of log %u: %s", c->log_id, strerror(-err));
	for (unsigned i = 0; i < SFS_LESSER_SIZES; i++) {
		if (c->lesser[i] == (uint32_t)id) {
			c->lesser[i] = 0;
			c->tiny_kept = c->tiny_kept && i != SFS_TINY;
			size = i;
		}
	}
	count(a, c, size, -1);
	if (size == SFS_FULL && c->extra > 0)
		count_extra(a, c, -1);
	worker_remove(a, (uint32_t)id);
	request_refill(a);
}
