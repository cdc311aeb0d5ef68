/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks without libc: an exclusive lock and a reader-writer lock on futexes of one process. All-zero memory is an unlocked lock.
 * Taking a free lock is one locked instruction, so is releasing it; no system call happens without contention.
 *
 * On x86 every locked instruction also drains the non-temporal stores of this CPU. So what was stored with pm_copy() before a
 * release is visible to whoever takes the lock next, and so a lock taken per call costs a small append more than its copy:
 * base/bias.h has a lock whose owner pays neither.
 *
 * Not recursive. A thread that is interrupted by a signal while it holds a lock must not take it again in the handler. In the
 * child of a fork, locks that other threads held stay taken: initialise them again.
 */
#ifndef SFS_LOCK_H
#define SFS_LOCK_H

#include <stdbool.h>
#include <stdint.h>

/* --- exclusive */

struct sfs_mutex {
	uint32_t state; /* 0 free, 1 taken, 2 taken and somebody may sleep */
};
#define SFS_MUTEX_INIT                                                                                                         \
	{                                                                                                                      \
		0                                                                                                              \
	}

void sfs_mutex_lock_slow(struct sfs_mutex *m);
void sfs_mutex_wake(struct sfs_mutex *m);

static inline void sfs_mutex_init(struct sfs_mutex *m)
{
	__atomic_store_n(&m->state, 0, __ATOMIC_RELEASE);
}

static inline bool sfs_mutex_trylock(struct sfs_mutex *m)
{
	uint32_t free_state = 0;

	return __atomic_compare_exchange_n(&m->state, &free_state, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static inline void sfs_mutex_lock(struct sfs_mutex *m)
{
	if (__builtin_expect(!sfs_mutex_trylock(m), 0))
		sfs_mutex_lock_slow(m);
}

static inline void sfs_mutex_unlock(struct sfs_mutex *m)
{
	if (__builtin_expect(__atomic_exchange_n(&m->state, 0, __ATOMIC_RELEASE) == 2, 0))
		sfs_mutex_wake(m);
}

/* --- shared or exclusive: a waiting writer keeps new readers out; a release lets waiting readers and one writer compete */

struct sfs_rwlock {
	uint32_t state;	  /* SFS_RW_* bits over the number of readers */
	uint32_t writers; /* that wait */
};
#define SFS_RWLOCK_INIT                                                                                                        \
	{                                                                                                                      \
		0, 0                                                                                                           \
	}

#define SFS_RW_WRITER		 0x80000000u /* a writer has the lock */
#define SFS_RW_WRITER_WAITS	 0x40000000u /* new readers must wait */
#define SFS_RW_READERS_WAIT	 0x20000000u
#define SFS_RW_READERS		 0x1fffffffu /* mask of the number of readers that have the lock */
#define SFS_RW_KEEPS_READERS_OUT (SFS_RW_WRITER | SFS_RW_WRITER_WAITS)

void sfs_rwlock_rdlock_slow(struct sfs_rwlock *l);
void sfs_rwlock_wrlock_slow(struct sfs_rwlock *l);
void sfs_rwlock_wake(struct sfs_rwlock *l, uint32_t state);

static inline void sfs_rwlock_init(struct sfs_rwlock *l)
{
	__atomic_store_n(&l->writers, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&l->state, 0, __ATOMIC_RELEASE);
}

static inline bool sfs_rwlock_tryrdlock(struct sfs_rwlock *l)
{
	uint32_t s = __atomic_load_n(&l->state, __ATOMIC_RELAXED);

	while (!(s & SFS_RW_KEEPS_READERS_OUT))
		if (__atomic_compare_exchange_n(&l->state, &s, s + 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return true;
	return false;
}

static inline void sfs_rwlock_rdlock(struct sfs_rwlock *l)
{
	if (__builtin_expect(!sfs_rwlock_tryrdlock(l), 0))
		sfs_rwlock_rdlock_slow(l);
}

static inline void sfs_rwlock_rdunlock(struct sfs_rwlock *l)
{
	uint32_t s = __atomic_sub_fetch(&l->state, 1, __ATOMIC_RELEASE);

	if (__builtin_expect(!(s & SFS_RW_READERS) && (s & SFS_RW_WRITER_WAITS), 0))
		sfs_rwlock_wake(l, SFS_RW_WRITER_WAITS);
}

static inline bool sfs_rwlock_trywrlock(struct sfs_rwlock *l)
{
	uint32_t free_state = 0;

	return __atomic_compare_exchange_n(&l->state, &free_state, SFS_RW_WRITER, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static inline void sfs_rwlock_wrlock(struct sfs_rwlock *l)
{
	if (__builtin_expect(!sfs_rwlock_trywrlock(l), 0))
		sfs_rwlock_wrlock_slow(l);
}

static inline void sfs_rwlock_wrunlock(struct sfs_rwlock *l)
{
	uint32_t s = __atomic_exchange_n(&l->state, 0, __ATOMIC_RELEASE);

	if (__builtin_expect(s != SFS_RW_WRITER, 0))
		sfs_rwlock_wake(l, s);
}

/* A writer becomes a reader without letting another writer in between. */
static inline void sfs_rwlock_downgrade(struct sfs_rwlock *l)
{
	uint32_t s = __atomic_exchange_n(&l->state, 1, __ATOMIC_RELEASE);

	if (__builtin_expect(s != SFS_RW_WRITER, 0))
		sfs_rwlock_wake(l, s);
}

#endif
