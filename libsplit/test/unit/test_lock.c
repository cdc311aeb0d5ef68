/* SPDX-License-Identifier: Apache-2.0 */
/* The locks: mutual exclusion, readers together, writers not starved, try. The thread sanitizer runs this too. */
#include "base/lock.h"

#include <pthread.h>
#include <sched.h>

#include "harness.h"

#define THREADS 6
#define ROUNDS	20000
#define TURNS	1000

static struct sfs_mutex mutex = SFS_MUTEX_INIT;
static struct sfs_rwlock rwlock = SFS_RWLOCK_INIT;
static uint64_t counter[2]; /* equal whenever the lock is free */
static uint32_t inside, most_readers;

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

static void *rw_worker(void *arg)
{
	uint64_t rnd = (uintptr_t)arg + 1;
	uint32_t n;

	for (int i = 0; i < ROUNDS; i++) {
		if (test_below(&rnd, 4) == 0) {
			if (!sfs_rwlock_trywrlock(&rwlock))
				sfs_rwlock_wrlock(&rwlock);
			CHECK_EQ(__atomic_load_n(&inside, __ATOMIC_RELAXED), 0);
			CHECK_EQ(counter[0], counter[1]);
			counter[0]++;
			if (i % 500 == 0)
				sched_yield();
			counter[1]++;
			sfs_rwlock_wrunlock(&rwlock);
			continue;
		}
		if (i % 5 || !sfs_rwlock_tryrdlock(&rwlock))
			sfs_rwlock_rdlock(&rwlock);
		n = __atomic_add_fetch(&inside, 1, __ATOMIC_RELAXED);
		if (n > __atomic_load_n(&most_readers, __ATOMIC_RELAXED))
			__atomic_store_n(&most_readers, n, __ATOMIC_RELAXED);
		CHECK_EQ(counter[0], counter[1]);
		if (i % 500 == 0)
			sched_yield();
		__atomic_sub_fetch(&inside, 1, __ATOMIC_RELAXED);
		sfs_rwlock_rdunlock(&rwlock);
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

static volatile int stop;
static void *reader_forever(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		sfs_rwlock_rdlock(&rwlock);
		sched_yield();
		sfs_rwlock_rdunlock(&rwlock);
	}
	return NULL;
}

/* With readers that always overlap, a writer gets in only because it keeps new readers out. */
static void writer_is_not_starved(void)
{
	pthread_t t[THREADS];

	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, reader_forever, NULL), 0);
	for (int i = 0; i < 100; i++) {
		sfs_rwlock_wrlock(&rwlock);
		sfs_rwlock_wrunlock(&rwlock);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
}

static void *in_turn(void *arg)
{
	(void)arg;
	sfs_rwlock_rdlock(&rwlock);
	sfs_rwlock_rdunlock(&rwlock);
	CHECK(!sfs_rwlock_trywrlock(&rwlock));
	return NULL;
}

/* Who has the lock for itself and takes it for long shares it, and its signal handlers don't have it either. */
static void lent_for_long(void)
{
	pthread_t t;
	bool lent;

	rwlock = (struct sfs_rwlock)SFS_RWLOCK_INIT;
	for (unsigned i = 0; i < 2 * SFS_BIAS_STREAK; i++) {
		sfs_rwlock_wrlock(&rwlock);
		sfs_rwlock_wrunlock(&rwlock);
	}
	CHECK(rwlock.bias.owner == sfs_self());
	lent = sfs_rwlock_rdlock_long(&rwlock);
	CHECK(lent && !sfs_rwlock_trywrlock(&rwlock) && sfs_rwlock_tryrdlock(&rwlock));
	sfs_rwlock_rdunlock(&rwlock);
	CHECK_EQ(pthread_create(&t, NULL, in_turn, NULL), 0);
	CHECK_EQ(pthread_join(t, NULL), 0);
	sfs_rwlock_rdunlock_long(&rwlock, lent);
	CHECK(!rwlock.bias.owner && !rwlock.bias.held && rwlock.state == 0 && sfs_rwlock_trywrlock(&rwlock));
	sfs_rwlock_wrunlock(&rwlock);
	rwlock = (struct sfs_rwlock)SFS_RWLOCK_INIT;
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
	for (int i = 0; i < OFTEN; i++) {
		if (arg)
			sfs_rwlock_wrlock(&rwlock);
		else
			sfs_mutex_lock(&mutex);
		if (sfs_bias_mine(arg ? &rwlock.bias : &mutex.bias))
			__atomic_store_n(&biased_seen, biased_seen + 1, __ATOMIC_RELAXED);
		CHECK_EQ(handed[0], handed[1]);
		handed[0]++;
		if (i % 1000 == 0)
			sched_yield();
		handed[1]++;
		if (!arg) {
			sfs_mutex_unlock(&mutex);
		} else if (i % 5) {
			sfs_rwlock_wrunlock(&rwlock);
		} else {
			bool lent;

			sfs_rwlock_wrunlock(&rwlock);
			lent = sfs_rwlock_rdlock_long(&rwlock);
			CHECK_EQ(handed[0], handed[1]);
			sfs_rwlock_rdunlock_long(&rwlock, lent);
		}
	}
	return NULL;
}

static void *rarely(void *arg)
{
	const struct timespec pause = {0, 20000};
	uint64_t n = 0;

	for (int i = 0; i < RARELY; i++) {
		if (arg && i % 3) {
			if (i % 2 || !sfs_rwlock_tryrdlock(&rwlock))
				sfs_rwlock_rdlock(&rwlock);
			CHECK_EQ(handed[0], handed[1]);
			sfs_rwlock_rdunlock(&rwlock);
		} else {
			if (arg ? i % 2 || !sfs_rwlock_trywrlock(&rwlock) : i % 2 || !sfs_mutex_trylock(&mutex)) {
				if (arg)
					sfs_rwlock_wrlock(&rwlock);
				else
					sfs_mutex_lock(&mutex);
			}
			CHECK_EQ(handed[0], handed[1]);
			handed[0]++;
			handed[1]++;
			n++;
			if (arg)
				sfs_rwlock_wrunlock(&rwlock);
			else
				sfs_mutex_unlock(&mutex);
		}
		nanosleep(&pause, NULL);
	}
	return (void *)(uintptr_t)n;
}

static void biased(void *kind)
{
	uint64_t total = OFTEN;
	pthread_t t[3];
	void *n;

	handed[0] = handed[1] = biased_seen = 0;
	CHECK_EQ(pthread_create(&t[0], NULL, often, kind), 0);
	while (!__atomic_load_n(&biased_seen, __ATOMIC_RELAXED))
		sched_yield(); /* the others must not be the first to earn the bias */
	for (int i = 1; i < 3; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, rarely, kind), 0);
	CHECK_EQ(pthread_join(t[0], NULL), 0);
	for (int i = 1; i < 3; i++) {
		CHECK_EQ(pthread_join(t[i], &n), 0);
		total += (uintptr_t)n;
	}
	CHECK_EQ(handed[0], total);
}

/*
 * Readers that seldom see a writer: the lock is spread over their threads, over and over, and still keeps both sides apart. More threads
 * than places, so that some find theirs taken.
 */
#define CROWD  (SFS_SPREAD_PLACES + 32)
#define WRITES 200
static struct sfs_rwlock shared = SFS_RWLOCK_INIT;
static uint64_t kept[2];
static uint32_t writes_done;

static void *reads_on(void *arg)
{
	(void)arg;
	while (__atomic_load_n(&writes_done, __ATOMIC_RELAXED) < WRITES) {
		for (int i = 0; i < 50; i++) {
			if (i % 5 || !sfs_rwlock_tryrdlock(&shared))
				sfs_rwlock_rdlock(&shared);
			CHECK_EQ(kept[0], kept[1]);
			if (i == 0)
				sched_yield();
			CHECK_EQ(kept[0], kept[1]);
			sfs_rwlock_rdunlock(&shared);
		}
		sched_yield();
	}
	return NULL;
}

static void spread(unsigned threads)
{
	pthread_t t[CROWD];

	writes_done = 0;
	shared = (struct sfs_rwlock)SFS_RWLOCK_INIT;
	for (unsigned i = 0; i < threads; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, reads_on, NULL), 0);
	for (int i = 0; i < WRITES; i++) {
		/* Not before the readers have it to themselves, the first times; later that takes them too long. */
		while (i < 4 && !__atomic_load_n(&shared.spread, __ATOMIC_RELAXED))
			sched_yield();
		if (i % 2 == 0 || !sfs_rwlock_trywrlock(&shared))
			sfs_rwlock_wrlock(&shared);
		CHECK_EQ(shared.spread, 0);
		kept[0]++;
		sched_yield();
		kept[1]++;
		sfs_rwlock_wrunlock(&shared);
		__atomic_store_n(&writes_done, i + 1, __ATOMIC_RELAXED);
		sched_yield();
	}
	for (unsigned i = 0; i < threads; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
	CHECK(shared.spread_ends >= 4);
	CHECK_EQ(shared.state, 0);
	for (unsigned i = 0; i < SFS_SPREAD_PLACES; i++)
		CHECK(!sfs_spread_places[i].lock && !sfs_spread_places[i].thread);
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

static struct sfs_turns turns;
static uint32_t order[THREADS * TURNS];
static uint32_t ended; /* by who has the turn */

static void *turn_worker(void *arg)
{
	(void)arg;
	for (int i = 0; i < TURNS; i++) {
		uint32_t mine;

		sfs_mutex_lock(&mutex);
		mine = turns.next++;
		sfs_mutex_unlock(&mutex);
		if (i % 64 == 0)
			usleep(100); /* the others go to sleep */
		sfs_turns_wait(&turns, mine);
		order[ended++] = mine;
		sfs_turns_pass(&turns);
	}
	return NULL;
}

/* One after the other, each sees what was done before, and all come to an end. The numbers begin again from 0 meanwhile. */
static void in_turns(void)
{
	const uint32_t first = -1000u;

	turns = (struct sfs_turns){.next = first, .now = first};
	run(turn_worker);
	CHECK_EQ(ended, THREADS * TURNS);
	for (uint32_t i = 0; i < ended; i++)
		CHECK_EQ(order[i], first + i);
	CHECK(sfs_turns_over(&turns));
	CHECK_EQ(turns.waiters, 0);
}

int main(void)
{
	int err;

	run(mutex_worker);
	CHECK_EQ(counter[0], (uint64_t)THREADS * ROUNDS);
	CHECK_EQ(mutex.state, 0);

	run(rw_worker);
	CHECK_EQ(counter[0], counter[1]);
	CHECK_EQ(rwlock.state, 0);
	CHECK_EQ(rwlock.writers, 0);
	CHECK(most_readers > 1);

	writer_is_not_starved();
	in_turns();
	spread(4);
	spread(CROWD);

	err = sfs_bias_enable();
	if (err == 0) {
		sfs_mutex_init(&mutex);
		sfs_rwlock_init(&rwlock);
		counter[0] = counter[1] = 0;
		run(mutex_worker);
		CHECK_EQ(counter[0], (uint64_t)THREADS * ROUNDS);
		run(rw_worker);
		sfs_mutex_init(&mutex);
		sfs_rwlock_init(&rwlock);
		biased(NULL);
		biased(&rwlock);
		comes_back();
		not_twice();
		lent_for_long();
	} else {
		printf("no membarrier here (%s): biased locks not tested\n", strerror(-err));
	}

	sfs_rwlock_init(&rwlock);
	sfs_mutex_init(&mutex);
	CHECK(sfs_rwlock_tryrdlock(&rwlock));
	CHECK(!sfs_rwlock_trywrlock(&rwlock));
	CHECK(sfs_rwlock_tryrdlock(&rwlock));
	sfs_rwlock_rdunlock(&rwlock);
	sfs_rwlock_rdunlock(&rwlock);
	CHECK(sfs_rwlock_trywrlock(&rwlock));
	CHECK(!sfs_rwlock_tryrdlock(&rwlock));
	sfs_rwlock_wrunlock(&rwlock);
	CHECK(sfs_mutex_trylock(&mutex));
	CHECK(!sfs_mutex_trylock(&mutex));
	sfs_mutex_unlock(&mutex);
	return 0;
}
