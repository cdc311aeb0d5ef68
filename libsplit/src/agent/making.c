/* SPDX-License-Identifier: Apache-2.0 */
/* What the worker makes and takes away: logs and staging files. */
#include <errno.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "agent/internal.h"

/* Leave this much of the file system to its user when a staging file is made. */
#define SPACE_MARGIN (8ull << 20)
#define OVER_MARGIN  (256ull << 10) /* the same for writes that take none of it in the end */
#define LATE_LOOKS   3u
#define LATE_US	     10000u

static int made_add(struct made **list, uint32_t *n, uint32_t *room, struct made m)
{
	if (*n == *room) {
		struct made *bigger = reallocarray(*list, *room ? *room * 2 : 16, sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		*list = bigger;
		*room = *room ? *room * 2 : 16;
	}
	(*list)[(*n)++] = m;
	return 0;
}

/* lock held. No space, but recoveries are about to give some back: what could not be made is tried again after them. */
static bool short_of_space(struct worker *w, int err)
{
	if ((err != -ENOSPC && err != -EDQUOT) || !w->recover)
		return false;
	w->short_of_space = true;
	return true;
}

/* lock held; released while working. */
void making_log(struct worker *w)
{
	struct made m = {w->next_log++, -1, NULL};
	struct sfs_why why = {0};

	pthread_mutex_unlock(&w->lock);
	m.fd = sfs_log_create(w->root, m.id, FIRST_SLOTS, w->log_slots, &why);
	pthread_mutex_lock(&w->lock);
	if (short_of_space(w, m.fd))
		return;
	w->want.logs -= w->want.logs > 0;
	if (m.fd >= 0 && made_add(&w->logs, &w->nlogs, &w->logs_room, m)) {
		sfs_log_remove(w->root, m.id);
		close(m.fd);
		m.fd = sfs_fail(&why, -ENOMEM, "not enough memory for a log");
	}
	if (m.fd < 0) {
		w->log_err = m.fd;
		w->log_why = why;
		w->want.logs = 0;
	}
}

/* lock held; released while working. */
void making_grow(struct worker *w)
{
	struct growth *g = w->grow;

	w->grow = g->next;
	pthread_mutex_unlock(&w->lock);
	g->err = sfs_log_grow(w->root, g->fd, g->from, g->slots);
	pthread_mutex_lock(&w->lock);
	g->next = w->grown;
	w->grown = g;
}

/* XFS gives what was removed back a moment later, and says only then that it is free; its own writes wait for that. */
static int space_for(struct worker *w, uint64_t bytes, bool over, struct sfs_why *why)
{
	const uint64_t reserve = __atomic_load_n(&w->reserve, __ATOMIC_RELAXED);
	const uint64_t want = bytes + (over ? OVER_MARGIN : SPACE_MARGIN + reserve);
	struct statfs sf;

	for (unsigned looks = 0;; looks++) {
		if (fstatfs(w->root->pool, &sf) < 0)
			return sfs_fail(why, -errno, "statfs %s: %s", w->root->path, strerror(errno));
		if ((uint64_t)sf.f_bavail * (uint64_t)sf.f_bsize >= want)
			return 0;
		if (looks == LATE_LOOKS || sf.f_type != XFS_SUPER_MAGIC)
			return sfs_fail(why, -ENOSPC, "%s has no space left for another staging file", w->root->path);
		usleep(LATE_US);
	}
}

/* lock held; released while working. */
static int make_chunk_of(struct worker *w, uint32_t id, uint64_t bytes, bool over, struct sfs_why *why)
{
	uint64_t cpu;
	int err;

	pthread_mutex_unlock(&w->lock);
	cpu = worker_nanoseconds(CLOCK_THREAD_CPUTIME_ID);
	err = space_for(w, bytes, over, why);
	if (!err)
		err = sfs_chunk_create(w->root, id, bytes, why);
	/* Meanwhile somebody may have leased and staged what needs the space that was still there. */
	if (!err) {
		err = space_for(w, 0, over, why);
		if (err)
			sfs_chunk_remove(w->root, id);
	}
	fill_spent(&w->fill, worker_nanoseconds(CLOCK_MONOTONIC), worker_nanoseconds(CLOCK_THREAD_CPUTIME_ID) - cpu);
	pthread_mutex_lock(&w->lock);
	return err;
}

static void chunk_failed(struct worker *w, int err, const struct sfs_why *why)
{
	w->chunk_err = err;
	w->chunk_why = *why;
	w->want.chunks = w->want.chunks_now = w->want.lesser_now = 0;
	memset(w->want.lesser, 0, sizeof(w->want.lesser));
	memset(w->want.lesser_over, 0, sizeof(w->want.lesser_over));
}

void making_chunk(struct worker *w)
{
	struct made m = {w->next_chunk++, -1, NULL};
	struct sfs_why why = {0};
	int err = make_chunk_of(w, m.id, w->chunk_bytes, false, &why);

	if (short_of_space(w, err))
		return;
	w->want.chunks -= w->want.chunks > 0;
	w->want.chunks_now -= w->want.chunks_now > 0;
	if (!err) {
		err = made_add(&w->chunks, &w->nchunks, &w->chunks_room, m);
		if (err) {
			sfs_chunk_remove(w->root, m.id);
			sfs_fail(&why, err, "not enough memory for a staging file");
		}
	}
	if (err)
		chunk_failed(w, err, &why);
}

unsigned making_lesser_wanted(const struct worker *w)
{
	for (unsigned size = 0; size < SFS_LESSER_SIZES; size++)
		if (w->want.lesser[size] && w->want.lesser_over[size])
			return size;
	for (unsigned i = 1; i <= SFS_LESSER_SIZES; i++) {
		const unsigned size = (w->lesser_last + i) % SFS_LESSER_SIZES;

		if (w->want.lesser[size])
			return size;
	}
	return SFS_LESSER_SIZES;
}

void making_lesser(struct worker *w)
{
	const unsigned size = making_lesser_wanted(w);
	const uint32_t id = w->next_chunk++;
	struct sfs_why why = {0};
	const bool over = w->want.lesser_over[size] > 0;
	const int err = make_chunk_of(w, id, sfs_lesser_bytes(size), over, &why);
	struct spares *s = &w->lesser[size];

	if (short_of_space(w, err))
		return;
	w->lesser_last = size;
	w->want.lesser[size] -= w->want.lesser[size] > 0;
	w->want.lesser_now -= w->want.lesser_now > 0;
	w->want.lesser_over[size] -= w->want.lesser_over[size] > 0;
	if (err)
		chunk_failed(w, err, &why);
	else if (s->n < LESSER_MAX)
		s->id[s->n++] = id;
	else
		sfs_chunk_remove(w->root, id);
}

void making_remove(struct worker *w)
{
	const struct sfs_numbers list = w->remove;

	w->remove = (struct sfs_numbers){0};
	w->remove_room = 0;
	pthread_mutex_unlock(&w->lock);
	for (uint32_t i = 0; i < list.n; i++) {
		char name[32];

		sfs_number_name(name, list.v[i], ".tmp");
		unlinkat(w->root->pool, name, 0); /* a leftover goes when the next agent starts */
	}
	free(list.v);
	pthread_mutex_lock(&w->lock);
}
