/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker thread: recoveries first, then what a client waits for, then spare logs and staging files. Everything under
 * worker.lock is shared with the loop; work itself is done without the lock.
 */
#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "agent/internal.h"

uint64_t worker_nanoseconds(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
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
			until = fill_wait(&w->fill, worker_nanoseconds(CLOCK_MONOTONIC));
		if (w->grow) {
			making_grow(w);
		} else if (job) {
			w->recover_first = job->next;
			if (!w->recover_first)
				w->recover_last = NULL;
			pthread_mutex_unlock(&w->lock);
			worker_recover_log(w, job);
			pthread_mutex_lock(&w->lock);
			job->next = w->recovered;
			w->recovered = job;
		} else if (w->want.logs && (w->want.log_urgent || !w->want.chunk_urgent)) {
			making_log(w);
		} else if (making_lesser_wanted(w) < SFS_LESSER_SIZES && (w->want.lesser_now || !w->want.chunk_urgent)) {
			making_lesser(w);
		} else if (w->want.chunks_now || (w->want.chunks && !until)) {
			/* Space that is about to come back counts for who needs it now. */
			if (w->remove.n)
				making_remove(w);
			making_chunk(w);
		} else if (w->remove.n) {
			making_remove(w);
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

static void free_jobs(struct recovery_job *job)
{
	while (job) {
		struct recovery_job *next = job->next;

		for (size_t i = 0; i < job->ntargets; i++)
			target_close(&job->targets[i]);
		free(job->targets);
		free(job);
		job = next;
	}
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
	free_jobs(w->recover_first);
	free_jobs(w->recovered);
	free_growths(w->grow);
	free_growths(w->grown);
	free(w->logs);
	free(w->chunks);
	free(w->remove.v);
	close(w->done_fd);
	pthread_cond_destroy(&w->work);
	pthread_mutex_destroy(&w->lock);
}
