/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker thread: recoveries first, then what a client waits for, then spare logs and staging files. Everything under
 * worker.lock is shared with the loop; work itself is done without the lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "agent/internal.h"

/* Leave this much of the file system to its user when a staging file is made. */
#define SPACE_MARGIN (8ull << 20)

struct find {
	const struct recovery_job *job;
	const struct sfs_root *root;
};

static int reopen(const struct target *t, const struct sfs_root *root)
{
	char path[64];
	int fd, flags;

	if (t->handle) {
		fd = open_by_handle_at(root->fd, t->handle, O_RDWR | O_CLOEXEC | O_NONBLOCK);
		return fd < 0 ? (errno == ESTALE ? -ENOENT : -errno) : fd;
	}
	if (t->fd < 0)
		return -ENOENT;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", t->fd);
	fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0)
		return fd;
	fd = -errno;
	flags = fcntl(t->fd, F_GETFL);
	if (flags & O_PATH)
		return fd;
	/* What the client's own descriptor could do, ours can. */
	if (flags & O_APPEND)
		return -ENOENT;
	fd = fcntl(t->fd, F_DUPFD_CLOEXEC, 3);
	return fd < 0 ? -errno : fd;
}

static int find_target(void *ctx, uint64_t ino, uint32_t gen)
{
	const struct find *f = ctx;

	for (size_t i = 0; i < f->job->ntargets; i++)
		if (f->job->targets[i].ino == ino && f->job->targets[i].gen == gen)
			return reopen(&f->job->targets[i], f->root);
	return -ENOENT;
}

/*
 * The counters of the log go over to the totals before the log is removed: whoever adds up both (splitfs status) is to see them once at
 * any moment.
 */
static int settle(struct worker *w, const struct client *c, const struct sfs_recovery *s)
{
	struct sfs_totals *t = &w->totals;
	struct sfs_usage usage;

	if (t->settled_log == c->log_id)
		return 0;				      /* it could not be removed at the last try */
	sfs_log_usage(c->log_fd, c->lease.head.mode, &usage); /* zeros when it cannot be read */
	sfs_totals_add(t, &usage, s);
	t->settled_log = c->log_id;
	return sfs_totals_write(w->root, t);
}

/* The holder is gone: bring its data into the files, then remove its log and staging files. */
static void recover(struct worker *w, struct recovery_job *job)
{
	struct find f = {job, w->root};
	const struct sfs_targets targets = {find_target, &f};
	/* On an emulated volume a power loss voids everything that was not fsynced anyway. */
	const struct sfs_recover_how how = {.targets = &targets, .durable = w->root->dax};
	struct client *c = job->client;

	memset(&job->result, 0, sizeof(job->result));
	job->why.text[0] = 0;
	job->err = sfs_recover_log(w->root, c->log_id, &c->lease, &how, &job->result, &job->why);
	if (job->err)
		return;
	job->totals_err = settle(w, c, &job->result);
	job->err = sfs_recover_discard(w->root, c->log_id, &c->lease, &job->why);
}

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

/* lock held; released while working. */
static void make_log(struct worker *w)
{
	struct made m = {w->next_log++, -1};
	struct sfs_why why = {0};

	pthread_mutex_unlock(&w->lock);
	m.fd = sfs_log_create(w->root, m.id, FIRST_SLOTS, w->log_slots, &why);
	pthread_mutex_lock(&w->lock);
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
static void grow_log(struct worker *w)
{
	struct growth *g = w->grow;

	w->grow = g->next;
	pthread_mutex_unlock(&w->lock);
	g->err = sfs_log_grow(w->root, g->fd, g->from, g->slots);
	pthread_mutex_lock(&w->lock);
	g->next = w->grown;
	w->grown = g;
}

static int space_for(struct worker *w, uint64_t bytes, struct sfs_why *why)
{
	struct statvfs sv;

	if (fstatvfs(w->root->pool, &sv) < 0)
		return sfs_fail(why, -errno, "statvfs %s: %s", w->root->path, strerror(errno));
	if ((uint64_t)sv.f_bavail * sv.f_frsize < bytes + SPACE_MARGIN + __atomic_load_n(&w->reserve, __ATOMIC_RELAXED))
		return sfs_fail(why, -ENOSPC, "%s has no space left for another staging file", w->root->path);
	return 0;
}

static uint64_t nanoseconds(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* lock held; released while working. */
static int make_chunk_of(struct worker *w, uint32_t id, uint64_t bytes, struct sfs_why *why)
{
	uint64_t cpu;
	int err;

	pthread_mutex_unlock(&w->lock);
	cpu = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
	err = space_for(w, bytes, why);
	if (!err)
		err = sfs_chunk_create(w->root, id, bytes, why);
	/* Meanwhile somebody may have leased and staged what needs the space that was still there. */
	if (!err) {
		err = space_for(w, 0, why);
		if (err)
			sfs_chunk_remove(w->root, id);
	}
	fill_spent(&w->fill, nanoseconds(CLOCK_MONOTONIC), nanoseconds(CLOCK_THREAD_CPUTIME_ID) - cpu);
	pthread_mutex_lock(&w->lock);
	return err;
}

static void chunk_failed(struct worker *w, int err, const struct sfs_why *why)
{
	w->chunk_err = err;
	w->chunk_why = *why;
	w->want.chunks = w->want.chunks_now = w->want.lesser_now = 0;
	memset(w->want.lesser, 0, sizeof(w->want.lesser));
}

static void make_chunk(struct worker *w)
{
	struct made m = {w->next_chunk++, -1};
	struct sfs_why why = {0};
	int err = make_chunk_of(w, m.id, w->chunk_bytes, &why);

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

/* The first lesser size of which one is wanted, or SFS_LESSER_SIZES. */
static unsigned lesser_wanted(const struct worker *w)
{
	unsigned i = 0;

	while (i < SFS_LESSER_SIZES && !w->want.lesser[i])
		i++;
	return i;
}

static void make_lesser(struct worker *w)
{
	const unsigned size = lesser_wanted(w);
	const uint32_t id = w->next_chunk++;
	struct sfs_why why = {0};
	const int err = make_chunk_of(w, id, sfs_lesser_bytes(size), &why);
	struct spares *s = &w->lesser[size];

	w->want.lesser[size] -= w->want.lesser[size] > 0;
	w->want.lesser_now -= w->want.lesser_now > 0;
	if (err)
		chunk_failed(w, err, &why);
	else if (s->n < LESSER_MAX)
		s->id[s->n++] = id;
	else
		sfs_chunk_remove(w->root, id);
}

static void remove_chunks(struct worker *w)
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

/* lock held. Waits for work; for a staging file that can wait, at most until the budget has it. */
static void wait_for_work(struct worker *w, uint64_t until)
{
	const struct timespec ts = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};

	if (until)
		pthread_cond_timedwait(&w->work, &w->lock, &ts);
	else
		pthread_cond_wait(&w->work, &w->lock);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	const uint64_t one = 1;
	uint64_t until;

	pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		struct recovery_job *job = w->recover_first;

		until = 0;
		if (job || !w->want.chunks)
			fill_rest(&w->fill);
		else if (w->want.chunks > w->want.chunks_now)
			until = fill_wait(&w->fill, nanoseconds(CLOCK_MONOTONIC));
		if (w->grow) {
			grow_log(w);
		} else if (job) {
			w->recover_first = job->next;
			if (!w->recover_first)
				w->recover_last = NULL;
			pthread_mutex_unlock(&w->lock);
			recover(w, job);
			pthread_mutex_lock(&w->lock);
			job->next = w->recovered;
			w->recovered = job;
		} else if (w->want.logs && (w->want.log_urgent || !w->want.chunk_urgent)) {
			make_log(w);
		} else if (lesser_wanted(w) < SFS_LESSER_SIZES && (w->want.lesser_now || !w->want.chunk_urgent)) {
			make_lesser(w);
		} else if (w->want.chunks_now || (w->want.chunks && !until)) {
			/* Space that is about to come back counts for who needs it now. */
			if (w->remove.n)
				remove_chunks(w);
			make_chunk(w);
		} else if (w->remove.n) {
			remove_chunks(w);
			continue;
		} else {
			wait_for_work(w, until);
			continue;
		}
		if (write(w->done_fd, &one, sizeof(one)) < 0)
			continue; /* the counter is full: the loop has been told often enough */
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

int worker_start(struct agent *a)
{
	struct worker *w = &a->worker;
	pthread_condattr_t attr;
	sigset_t all, old;
	int err;

	w->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->done_fd < 0)
		return -errno;
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->work, &attr);
	pthread_condattr_destroy(&attr);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = -pthread_create(&w->thread, NULL, work, w);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	w->started = !err;
	return err;
}

static void free_growths(struct growth *g)
{
	while (g) {
		struct growth *next = g->next;

		free(g);
		g = next;
	}
}

/* Waits for what the worker is doing now, and only for that. */
void worker_stop(struct agent *a)
{
	struct worker *w = &a->worker;

	if (!w->started)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_signal(&w->work);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	w->started = false;
	for (uint32_t i = 0; i < w->nlogs; i++) {
		sfs_log_remove(w->root, w->logs[i].id);
		close(w->logs[i].fd);
	}
	for (struct recovery_job *job = w->recover_first, *next; job; job = next) {
		next = job->next;
		for (size_t i = 0; i < job->ntargets; i++)
			target_close(&job->targets[i]);
		free(job->targets);
		free(job);
	}
	for (struct recovery_job *job = w->recovered, *next; job; job = next) {
		next = job->next;
		for (size_t i = 0; i < job->ntargets; i++)
			target_close(&job->targets[i]);
		free(job->targets);
		free(job);
	}
	free_growths(w->grow);
	free_growths(w->grown);
	free(w->logs);
	free(w->chunks);
	free(w->remove.v);
	close(w->done_fd);
	pthread_cond_destroy(&w->work);
	pthread_mutex_destroy(&w->lock);
}

void worker_recover(struct agent *a, struct recovery_job *job)
{
	struct worker *w = &a->worker;

	job->next = NULL;
	pthread_mutex_lock(&w->lock);
	if (w->recover_last)
		w->recover_last->next = job;
	else
		w->recover_first = job;
	w->recover_last = job;
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
	if (w->want.logs || w->want.chunks || lesser_wanted(w) < SFS_LESSER_SIZES)
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

void worker_collect(struct agent *a)
{
	struct worker *w = &a->worker;
	struct recovery_job *recovered;
	struct growth *grown;
	struct made *chunks = NULL;
	uint32_t nchunks = 0;
	int log_err, chunk_err;
	struct sfs_why log_why, chunk_why;
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
	log_err = w->log_err;
	chunk_err = w->chunk_err;
	log_why = w->log_why;
	chunk_why = w->chunk_why;
	w->log_err = w->chunk_err = 0;
	pthread_mutex_unlock(&w->lock);

	for (uint32_t i = 0; i < nchunks; i++) {
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
		client_recovered(a, job);
	}
	request_serve_waiting(a);
	if (log_err) {
		agent_log(a, "%s", log_why.text);
		request_fail_waiting(a, C_WAIT_LOG, log_err);
	}
	if (chunk_err) {
		/* Without a client that waits this is only a pool that is not full. */
		if (client_count(a, C_WAIT_CHUNK))
			agent_log(a, "%s", chunk_why.text);
		request_fail_waiting(a, C_WAIT_CHUNK, chunk_err);
	}
	if (!chunk_err && !log_err)
		request_refill(a);
}
