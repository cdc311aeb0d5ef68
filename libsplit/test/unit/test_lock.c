/* SPDX-License-Identifier: Apache-2.0 */
/* The lock: mutual exclusion, the bias and its hand-over, try. The thread sanitizer runs this too. */
#include "base/lock.h"

#include <pthread.h>
#include <sched.h>

#include "harness.h"

#define THREADS 6
#define ROUNDS	20000

static struct sfs_mutex mutex = SFS_MUTEX_INIT;
static uint64_t counter[2]; /* equal whenever the lock is free */

static void *mutex_worker(void *arg)
{
	(void)arg;
	for (int i = 0; i < ROUNDS; i++) {
		if (i % 7 || !sfs_mutex_trylock(&mutex))
			sfs_mutex_lock(&mutex);
		CHECK_EQ(counter[0], counter[1]);
		counter[0]++;
		if (i % 1000 == 0)
			sched_yield(); /* let the others run into the taken lock and sleep */
		counter[1]++;
		sfs_mutex_unlock(&mutex);
	}
	return NULL;
}

static void run(void *(*worker)(void *))
{
	pthread_t t[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, worker, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
}

/*
 * One thread takes a lock very often, so that the lock is biased to it, and the others now and then. Plain variables under the
 * lock, so that the thread sanitizer sees whether the hand-over orders memory.
 */
#define OFTEN  400000
#define RARELY 2000
static uint64_t handed[2];
static uint32_t biased_seen;

static void *often(void *arg)
{
	(void)arg;
	for (int i = 0; i < OFTEN; i++) {
		sfs_mutex_lock(&mutex);
		if (sfs_bias_mine(&mutex.bias))
			__atomic_store_n(&biased_seen, biased_seen + 1, __ATOMIC_RELAXED);
		CHECK_EQ(handed[0], handed[1]);
		handed[0]++;
		if (i % 1000 == 0)
			sched_yield();
		handed[1]++;
		sfs_mutex_unlock(&mutex);
	}
	return NULL;
}

static void *rarely(void *arg)
{
	const struct timespec pause = {0, 20000};

	(void)arg;
	for (int i = 0; i < RARELY; i++) {
		if (i % 2 || !sfs_mutex_trylock(&mutex))
			sfs_mutex_lock(&mutex);
		CHECK_EQ(handed[0], handed[1]);
		handed[0]++;
		handed[1]++;
		sfs_mutex_unlock(&mutex);
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static void biased(void)
{
	pthread_t t[3];

	handed[0] = handed[1] = biased_seen = 0;
	CHECK_EQ(pthread_create(&t[0], NULL, often, NULL), 0);
	while (!__atomic_load_n(&biased_seen, __ATOMIC_RELAXED))
		sched_yield(); /* the others must not be the first to earn the bias */
	for (int i = 1; i < 3; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, rarely, NULL), 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
	CHECK_EQ(handed[0], OFTEN + 2 * RARELY);
}

static void *once(void *arg)
{
	sfs_mutex_lock(arg);
	sfs_mutex_unlock(arg);
	return NULL;
}

/* A bias that was taken away comes back, later each time it was not worth it. */
static void comes_back(void)
{
	struct sfs_mutex m = SFS_MUTEX_INIT;
	int turns, before = 0;
	pthread_t t;

	for (int i = 0; i < 4; i++) {
		for (turns = 0;; turns++) {
			CHECK(turns < 10000);
			sfs_mutex_lock(&m);
			if (sfs_bias_mine(&m.bias))
				break;
			sfs_mutex_unlock(&m);
		}
		sfs_mutex_unlock(&m);
		CHECK(turns > before);
		before = turns;
		CHECK_EQ(pthread_create(&t, NULL, once, &m), 0);
		CHECK_EQ(pthread_join(t, NULL), 0);
	}
}

/* A lock that its thread holds through the bias cannot be had a second time, as from a signal handler. */
static void not_twice(void)
{
	struct sfs_mutex m = SFS_MUTEX_INIT;

	for (int i = 0; i < 100; i++) {
		sfs_mutex_lock(&m);
		CHECK(!sfs_mutex_trylock(&m));
		sfs_mutex_unlock(&m);
	}
	for (int i = 0; i < 200; i++) {
		sfs_mutex_lock(&m);
		sfs_mutex_unlock(&m);
	}
	sfs_mutex_lock(&m);
	CHECK(sfs_bias_mine(&m.bias));
	CHECK(!sfs_mutex_trylock(&m));
	sfs_mutex_unlock(&m);
}

int main(void)
{
	int err;

	run(mutex_worker);
	CHECK_EQ(counter[0], (uint64_t)THREADS * ROUNDS);
	CHECK_EQ(mutex.state, 0);

	err = sfs_bias_enable();
	if (err == 0) {
		sfs_mutex_init(&mutex);
		counter[0] = counter[1] = 0;
		run(mutex_worker);
		CHECK_EQ(counter[0], (uint64_t)THREADS * ROUNDS);
		sfs_mutex_init(&mutex);
		biased();
		comes_back();
		not_twice();
	} else {
		printf("no membarrier here (%s): biased locks not tested\n", strerror(-err));
	}

	sfs_mutex_init(&mutex);
	CHECK(sfs_mutex_trylock(&mutex));
	CHECK(!sfs_mutex_trylock(&mutex));
	sfs_mutex_unlock(&mutex);
	return 0;
}
