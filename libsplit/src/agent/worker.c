/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker thread: recoveries and what clients wait for in turns, a piece of each kind at a time, then what is kept ready. Of the
 * recoveries each tenant gets one in turn: who leaves a thousand logs behind keeps nobody else waiting, neither for a recovery nor for a
 * log. Everything under worker.lock is shared with the loop; work itself is done without the lock.
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

/* lock held. Does somebody wait for work of this kind? */
static bool awaited(const struct worker *w, enum work work)
{
	switch (work) {
	case WORK_RECOVERY:
		return w->recover != NULL;
	case WORK_LOG:
		return !w->short_of_space && w->want.logs && w->want.log_urgent;
	case WORK_LESSER:
		return !w->short_of_space && w->want.lesser_now && making_lesser_wanted(w) < SFS_LESSER_SIZES;
	case WORK_CHUNK:
		return !w->short_of_space && w->want.chunks_now;
	default:
		return false;
	}
}

/* lock held. What is to be done next. *until: when to look again, if that is nothing; 0: when there is work. */
static enum work next_work(struct worker *w, uint64_t *until)
{
	*until = 0;
	if (!w->recover)
		w->short_of_space = false;
	if (w->recover || !w->want.chunks)
		fill_rest(&w->fill);
	else if (w->want.chunks > w->want.chunks_now)
		*until = fill_wait(&w->fill, worker_nanoseconds(CLOCK_MONOTONIC));
	if (w->grow)
		return WORK_GROWTH; /* before the recovery of the same log */
	for (unsigned i = 1; i <= WORK_IN_TURNS; i++) {
		const enum work work = (w->last + i) % WORK_IN_TURNS;

		if (awaited(w, work)) {
			w->last = work;
			return work;
		}
	}
	if (w->want.logs)
		return WORK_LOG;
	if (making_lesser_wanted(w) < SFS_LESSER_SIZES)
		return WORK_LESSER;
	if (w->want.chunks && !*until)
		return WORK_CHUNK;
	return w->remove.n ? WORK_REMOVAL : WORK_NONE;
}

/* lock held; released while working. The recovery whose turn it is. */
static void recover(struct worker *w)
{
	struct recovery_job *job = w->recover;
	uint64_t cpu;

	w->recover = job->next;
	w->turn = job->turn;
	pthread_mutex_unlock(&w->lock);
	cpu = worker_nanoseconds(CLOCK_THREAD_CPUTIME_ID);
	worker_recover_log(w, job);
	job->cpu_us = (worker_nanoseconds(CLOCK_THREAD_CPUTIME_ID) - cpu) / 1000;
	pthread_mutex_lock(&w->lock);
	job->next = w->recovered;
	w->recovered = job;
}

/* lock held; released while working. Is the loop to be told? */
static bool do_work(struct worker *w, enum work work, uint64_t until)
{
	switch (work) {
	case WORK_GROWTH:
		making_grow(w);
		return true;
	case WORK_RECOVERY:
		recover(w);
		return true;
	case WORK_LOG:
		making_log(w);
		return true;
	case WORK_LESSER:
		making_lesser(w);
		return true;
	case WORK_CHUNK:
		/* Space that is about to come back counts for who needs it now. */
		if (w->remove.n)
			making_remove(w);
		making_chunk(w);
		return true;
	case WORK_REMOVAL:
		making_remove(w);
		return false;
	default:
		wait_for_work(w, until);
		return false;
	}
}

static void *run(void *arg)
{
	struct worker *w = arg;
	const uint64_t one = 1;

	pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		uint64_t until;
		const enum work work = next_work(w, &until);

		if (do_work(w, work, until) && write(w->done_fd, &one, sizeof(one)) < 0)
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
	err = -pthread_create(&w->thread, NULL, run, w);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	w->started = !err;
	return err;
}

static void free_jobs(struct recovery_job *job)
{
	while (job) {
		struct recovery_job *next = job->next;

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
	free_jobs(w->recover);
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
