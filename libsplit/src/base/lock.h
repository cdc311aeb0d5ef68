/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks without libc: an exclusive lock and a reader-writer lock on futexes of one process. All-zero memory is an unlocked lock.
 * Taking a free lock is one locked instruction, so is releasing it; no system call happens without contention.
 *
 * On x86 every locked instruction also drains the non-temporal stores of this CPU. So what was stored with pm_copy() before a
 * release is visible to whoever takes the lock next; and it is what biased locking (base/bias.h) avoids where one thread
 * takes a lock again and again: the barrier is then made by the thread that takes the bias away.
 *
 * Not recursive. A thread that is interrupted by a signal while it holds a lock must not take it again in the handler: who holds a
 * mutex has its signals blocked, but for those that stand for an error of its own. That takes two system calls, which the mutexes of
 * slow paths can afford; the others are `brief`, as are reader-writer locks, and whoever takes them sees to it in another way
 * (files/inode.h). Mutexes are released in the reverse order of their taking. In the child of a fork, locks that other threads held stay taken: initialise them again.
 */
#ifndef SFS_LOCK_H
#define SFS_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bias.h"

/*
 * --- no signal handlers of this thread meanwhile; sections may lie within each other
 *
 * A program that has no handlers needs no system calls for that. Whoever sees all calls that install one says so with
 * sfs_handlers_none() at the start and sfs_handlers_seen() before the first; otherwise there may always be some.
 */

#define SFS_SIGNAL(sig) (1ull << ((sig)-1))
/* A fault of our own ends in the program's handler, or ends the program, wherever it happens. */
#define SFS_FAULTS                                                                                                             \
	(SFS_SIGNAL(SIGSEGV) | SFS_SIGNAL(SIGBUS) | SFS_SIGNAL(SIGFPE) | SFS_SIGNAL(SIGILL) | SFS_SIGNAL(SIGTRAP) |            \
	 SFS_SIGNAL(SIGSYS))

#define SFS_SIGNALS_BLOCKED (1ull << 8) /* SIGKILL, which no mask has: they were blocked already */
enum { SFS_HANDLERS_UNKNOWN, SFS_HANDLERS_NONE, SFS_HANDLERS_SEEN };
extern int sfs_handlers __attribute__((visibility("hidden")));
uint64_t sfs_signals_block_all(void);
/* Does this thread have them all blocked, as in a section? Asks the kernel. */
bool sfs_signals_blocked(void);
void sfs_signals_restore_mask(uint64_t mask);

static inline uint64_t sfs_signals_block(void)
{
	return __atomic_load_n(&sfs_handlers, __ATOMIC_RELAXED) == SFS_HANDLERS_NONE ? SFS_SIGNALS_BLOCKED
										     : sfs_signals_block_all();
}

static inline void sfs_signals_restore(uint64_t mask)
{
	if (mask != SFS_SIGNALS_BLOCKED)
		sfs_signals_restore_mask(mask);
}

void sfs_handlers_none(void);
/* False: it is known already. Sections that began before go on without: see sfs_handler_installed(). */
bool sfs_handlers_seen(void);

/* --- exclusive */

struct sfs_mutex {
	uint32_t state;	  /* 0 free, 1 taken, 2 taken and somebody may sleep */
	bool brief;	  /* signals are not blocked */
	uint64_t signals; /* what the holder had blocked before; under the mutex */
	struct sfs_bias bias;
};
#define SFS_MUTEX_INIT                                                                                                         \
	{                                                                                                                      \
		0                                                                                                              \
	}

void sfs_mutex_lock_slow(struct sfs_mutex *m);
void sfs_mutex_wake(struct sfs_mutex *m);

static inline void sfs_mutex_init(struct sfs_mutex *m)
{
	*m = (struct sfs_mutex)SFS_MUTEX_INIT;
}

/* The lock's word, without the bias. */
static inline bool sfs_mutex_try_word(struct sfs_mutex *m)
{
	uint32_t free_state = 0;

	return __atomic_compare_exchange_n(&m->state, &free_state, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static inline void sfs_mutex_unlock_word(struct sfs_mutex *m)
{
	if (__builtin_expect(__atomic_exchange_n(&m->state, 0, __ATOMIC_RELEASE) == 2, 0))
		sfs_mutex_wake(m);
}

static inline bool sfs_mutex_try(struct sfs_mutex *m)
{
	if (sfs_bias_take(&m->bias))
		return true;
	if (!sfs_mutex_try_word(m))
		return false;
	if (sfs_bias_end(&m->bias, false))
		return true;
	sfs_mutex_unlock_word(m);
	return false;
}

static inline void sfs_mutex_take(struct sfs_mutex *m)
{
	if (sfs_bias_take(&m->bias))
		return;
	if (__builtin_expect(!sfs_mutex_try_word(m), 0))
		sfs_mutex_lock_slow(m);
	sfs_bias_end(&m->bias, true);
}

static inline bool sfs_mutex_trylock(struct sfs_mutex *m)
{
	uint64_t signals;

	if (m->brief)
		return sfs_mutex_try(m);
	signals = sfs_signals_block();
	if (sfs_mutex_try(m)) {
		m->signals = signals;
		return true;
	}
	sfs_signals_restore(signals);
	return false;
}

static inline void sfs_mutex_lock(struct sfs_mutex *m)
{
	uint64_t signals;

	if (m->brief) {
		sfs_mutex_take(m);
		return;
	}
	signals = sfs_signals_block();
	sfs_mutex_take(m);
	m->signals = signals;
}

/* For who has seen to it otherwise that no signal handler of this thread takes the lock meanwhile. */
static inline void sfs_mutex_drop(struct sfs_mutex *m)
{
	if (sfs_bias_drop(&m->bias))
		return;
	sfs_bias_count(&m->bias);
	sfs_mutex_unlock_word(m);
}

static inline void sfs_mutex_unlock(struct sfs_mutex *m)
{
	const bool brief = m->brief;
	const uint64_t signals = m->signals;

	sfs_mutex_drop(m);
	if (!brief)
		sfs_signals_restore(signals);
}

/* In the child of a fork, where the other threads are gone: what they had announced. */
void sfs_locks_forget(void);

#endif
