/* SPDX-License-Identifier: Apache-2.0 */
/* The locks: mutual exclusion, readers together, writers not starved, try and downgrade. The thread sanitizer runs this too. */
#include "base/lock.h"

#include <pthread.h>
#include <sched.h>

#include "harness.h"

#define THREADS 6
#define ROUNDS	20000

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
			if (i % 3) {
				sfs_rwlock_wrunlock(&rwlock);
				continue;
			}
			sfs_rwlock_downgrade(&rwlock);
		} else if (i % 5 || !sfs_rwlock_tryrdlock(&rwlock)) {
			sfs_rwlock_rdlock(&rwlock);
		}
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

int main(void)
{
	run(mutex_worker);
	CHECK_EQ(counter[0], (uint64_t)THREADS * ROUNDS);
	CHECK_EQ(mutex.state, 0);

	run(rw_worker);
	CHECK_EQ(counter[0], counter[1]);
	CHECK_EQ(rwlock.state, 0);
	CHECK_EQ(rwlock.writers, 0);
	CHECK(most_readers > 1);

	writer_is_not_starved();

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
