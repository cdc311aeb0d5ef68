/* SPDX-License-Identifier: Apache-2.0 */
/* What the loop has the worker do, and what comes back. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/internal.h"

void worker_recover(struct agent *a, struct recovery_job *job)
{
	struct worker *w = &a->worker;
	struct tenant *t = job->client->tenant;
	struct recovery_job **p = &w->recover;

	pthread_mutex_lock(&w->lock);
	/* As many turns from now as its tenant has waiting, so that each tenant gets one in each turn. */
	t->turn = (t->turn > w->turn ? t->turn : w->turn) + 1;
	job->turn = t->turn;
	while (*p && (*p)->turn <= job->turn)
		p = &(*p)->next;
	job->next = *p;
	*p = job;
	pthread_cond_signal(&w->work);
	pthread_mutex_unlock(&w->lock);
}

bool worker_grow(struct agent *a, struct client *c, uint32_t slots)
{
	struct worker *w = &a->worker;
	struct growth *g = calloc(1, sizeof(*g));

	if (!g)
		return false;
	*g = (struct growth){.client = c, .fd = c->log_fd, .from = c->log_slots, .slots = slots};
	pthread_mutex_lock(&w->lock);
	g->next = w->grow;
	w->grow = g;
	pthread_cond_signal(&w->work);
	pthread_mutex_unlock(&w->lock);
	return true;
}

void worker_want(struct agent *a, const struct wanted *want)
{
	struct worker *w = &a->worker;

	pthread_mutex_lock(&w->lock);
	w->want = *want;
	/* What is done and not collected yet is on its way. */
	w->want.logs = missing(want->logs, w->nlogs);
	w->want.chunks = missing(want->chunks, w->nchunks);
	w->want.chunks_now = missing(want->chunks_now, w->nchunks);
	for (unsigned i = 0; i < SFS_LESSER_SIZES; i++)
		w->want.lesser[i] = missing(want->lesser[i], w->lesser[i].n);
	/* Where relink copies, staged bytes need room a second time: a full volume is to say so to the write, not to the relink. */
	__atomic_store_n(&w->reserve, a->provider == RELINK_COPY ? chunks_leased_bytes(a) : 0, __ATOMIC_RELAXED);
	if (w->want.logs || w->want.chunks || making_lesser_wanted(w) < SFS_LESSER_SIZES)
		pthread_cond_signal(&w->work);
	pthread_mutex_unlock(&w->lock);
}

void worker_remove(struct agent *a, uint32_t chunk)
{
	struct worker *w = &a->worker;

	pthread_mutex_lock(&w->lock);
	if (w->remove.n == w->remove_room) {
		const uint32_t room = w->remove_room ? w->remove_room * 2 : 16;
		uint32_t *bigger = reallocarray(w->remove.v, room, sizeof(*bigger));

		if (!bigger) {
			pthread_mutex_unlock(&w->lock);
			return; /* the leftover goes when the next agent starts */
		}
		w->remove.v = bigger;
		w->remove_room = room;
	}
	w->remove.v[w->remove.n++] = chunk;
	pthread_cond_signal(&w->work);
	pthread_mutex_unlock(&w->lock);
}

static void take(struct made **to, uint32_t *n, struct made *from, uint32_t count)
{
	struct made *bigger = count ? reallocarray(*to, *n + count, sizeof(*bigger)) : NULL;

	if (!bigger)
		return;
	memcpy(bigger + *n, from, count * sizeof(*from));
	*to = bigger;
	*n += count;
}

/* Staging files that nobody has leased yet. */
static void keep_chunks(struct agent *a, const struct made *chunks, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (a->nfree_chunks == a->free_chunks_room) {
			const uint32_t room = a->free_chunks_room ? a->free_chunks_room * 2 : 64;
			uint32_t *bigger = reallocarray(a->free_chunks, room, sizeof(*bigger));

			if (!bigger) {
				sfs_chunk_remove(&a->root, chunks[i].id);
				continue;
			}
			a->free_chunks = bigger;
			a->free_chunks_room = room;
		}
		a->free_chunks[a->nfree_chunks++] = chunks[i].id;
	}
}

/* What could not be made. */
struct failed {
	int log_err, chunk_err;
	struct sfs_why log_why, chunk_why;
};

/* Somebody waits for it, and there may be space now. */
static bool once_more(struct agent *a, const struct failed *f)
{
	if (client_count(a, C_WAIT_LOG) && full_makes_room(a, f->log_err, "a client needs a log"))
		return true;
	/* Of writes only those are helped that leave the file system as full as it was. */
	for (unsigned i = 0; i < SFS_LESSER_SIZES; i++)
		if (chunks_awaited(a, i, true) && full_makes_room(a, f->chunk_err, "a client writes over what a file has"))
			return true;
	return false;
}

static void tell_waiting(struct agent *a, const struct failed *f)
{
	if ((f->log_err || f->chunk_err) && once_more(a, f)) {
		request_refill(a);
		return;
	}
	if (f->log_err) {
		agent_log(a, "%s", f->log_why.text);
		request_fail_waiting(a, C_WAIT_LOG, f->log_err);
	}
	if (f->chunk_err) {
		/* Without a client that waits this is only a pool that is not full. */
		if (client_count(a, C_WAIT_CHUNK))
			agent_log(a, "%s", f->chunk_why.text);
		request_fail_waiting(a, C_WAIT_CHUNK, f->chunk_err);
	}
	if (!f->chunk_err && !f->log_err)
		request_refill(a);
}

void worker_collect(struct agent *a)
{
	struct worker *w = &a->worker;
	struct recovery_job *recovered;
	bool gone = false;
	struct made *chunks = NULL;
	struct growth *grown;
	uint32_t nchunks = 0;
	struct failed failed;
	uint64_t n;

	if (read(w->done_fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		agent_log(a, "read an eventfd: %s", strerror(errno));
	pthread_mutex_lock(&w->lock);
	grown = w->grown;
	w->grown = NULL;
	recovered = w->recovered;
	w->recovered = NULL;
	n = a->nspare_logs;
	take(&a->spare_logs, &a->nspare_logs, w->logs, w->nlogs);
	w->nlogs -= a->nspare_logs - (uint32_t)n;
	take(&chunks, &nchunks, w->chunks, w->nchunks);
	w->nchunks -= nchunks;
	for (unsigned i = 0; i < SFS_LESSER_SIZES; i++)
		while (w->lesser[i].n && a->lesser[i].n < LESSER_MAX)
			a->lesser[i].id[a->lesser[i].n++] = w->lesser[i].id[--w->lesser[i].n];
	failed = (struct failed){w->log_err, w->chunk_err, w->log_why, w->chunk_why};
	w->log_err = w->chunk_err = 0;
	pthread_mutex_unlock(&w->lock);

	keep_chunks(a, chunks, nchunks);
	free(chunks);
	/* First: the client of one may be recovered as well, and gone then. */
	while (grown) {
		struct growth *g = grown;

		grown = g->next;
		logs_grown(a, g);
	}
	while (recovered) {
		struct recovery_job *job = recovered;

		recovered = job->next;
		gone |= client_recovered(a, job);
	}
	if (gone) {
		deleg_retry_all(a);
		request_refill(a);
	}
	request_serve_waiting(a);
	tell_waiting(a, &failed);
}
