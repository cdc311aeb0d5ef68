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

static inline void sfs_mutex_unlock(struct sfs_mutex *m)
{
	const bool brief = m->brief;
	const uint64_t signals = m->signals;

	if (!sfs_bias_drop(&m->bias)) {
		sfs_bias_count(&m->bias);
		sfs_mutex_unlock_word(m);
	}
	if (!brief)
		sfs_signals_restore(signals);
}

/* --- shared or exclusive: a waiting writer keeps new readers out; a release lets waiting readers and one writer compete */

/*
 * Readers that do nothing but count themselves in one word take longer for that, on several processors, than for a small read. So a lock
 * that was taken shared many times is *spread*: a reader announces itself in a place of its thread instead, and a writer, when it
 * has the word, ends that and looks for the lock in all places (as BRAVO does, Dice and Kogan, USENIX ATC'19). Each time it happens doubles
 * the number of turns until the next. A lock that is biased is not spread, and the other way round.
 */
struct sfs_rwlock {
	uint32_t state;	       /* SFS_RW_* bits over the number of readers */
	uint32_t writers;      /* that wait */
	uint32_t spread;       /* set by who has the word shared, cleared by who has it exclusively */
	uint32_t shared_turns; /* since then; about right is enough, like the next */
	uint32_t spread_ends;
	struct sfs_bias bias; /* held through it: exclusively, whatever was asked for */
};

#define SFS_SPREAD_TURNS  512u
#define SFS_SPREAD_PLACES 128u
struct sfs_spread_place {
	const struct sfs_rwlock *lock; /* that a thread of this place has shared */
	void *thread;		       /* the one that has; its own between taking and giving the place */
} __attribute__((aligned(64)));
extern struct sfs_spread_place sfs_spread_places[SFS_SPREAD_PLACES] __attribute__((visibility("hidden")));

/* The word was taken exclusively. False: somebody still reads and `wait` was not wanted; release the word. */
bool sfs_spread_end(struct sfs_rwlock *l, bool wait);
/* In the child of a fork, where the other threads are gone: what they had announced, readers and blocked signals. */
void sfs_locks_forget(void);
#define SFS_RWLOCK_INIT                                                                                                        \
	{                                                                                                                      \
		0                                                                                                              \
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
	*l = (struct sfs_rwlock)SFS_RWLOCK_INIT;
}

static inline bool sfs_rwlock_try_word_shared(struct sfs_rwlock *l)
{
	uint32_t s = __atomic_load_n(&l->state, __ATOMIC_RELAXED);

	while (!(s & SFS_RW_KEEPS_READERS_OUT))
		if (__atomic_compare_exchange_n(&l->state, &s, s + 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return true;
	return false;
}

static inline bool sfs_rwlock_try_word(struct sfs_rwlock *l)
{
	uint32_t free_state = 0;

	return __atomic_compare_exchange_n(&l->state, &free_state, SFS_RW_WRITER, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static inline void sfs_rwlock_unlock_word_shared(struct sfs_rwlock *l)
{
	uint32_t s = __atomic_sub_fetch(&l->state, 1, __ATOMIC_RELEASE);

	/* All ones: nobody had it. A fork in a signal handler below the section has made the lock a new one. */
	if (__builtin_expect(s == ~0u, 0))
		__atomic_store_n(&l->state, 0, __ATOMIC_RELAXED);
	else if (__builtin_expect(!(s & SFS_RW_READERS) && (s & SFS_RW_WRITER_WAITS), 0))
		sfs_rwlock_wake(l, SFS_RW_WRITER_WAITS);
}

static inline void sfs_rwlock_unlock_word(struct sfs_rwlock *l)
{
	uint32_t s = __atomic_exchange_n(&l->state, 0, __ATOMIC_RELEASE);

	if (__builtin_expect(s != SFS_RW_WRITER, 0))
		sfs_rwlock_wake(l, s);
}

static inline bool sfs_spread_take(struct sfs_rwlock *l)
{
	const struct sfs_rwlock *nobody = NULL;
	struct sfs_spread_place *p;

	if (!__atomic_load_n(&l->spread, __ATOMIC_RELAXED))
		return false;
	p = &sfs_spread_places[sfs_thread_hash() % SFS_SPREAD_PLACES];
	/* Taken by another thread, or by this one for another lock: the word will do. */
	if (__atomic_load_n(&p->lock, __ATOMIC_RELAXED) ||
	    !__atomic_compare_exchange_n(&p->lock, &nobody, l, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		return false;
	/* Either we see that it is over, or who ended it sees us. */
	if (__builtin_expect(__atomic_load_n(&l->spread, __ATOMIC_SEQ_CST), 1)) {
		__atomic_store_n(&p->thread, sfs_self(), __ATOMIC_RELAXED);
		return true;
	}
	__atomic_store_n(&p->lock, NULL, __ATOMIC_RELEASE);
	return false;
}

static inline bool sfs_spread_drop(struct sfs_rwlock *l)
{
	struct sfs_spread_place *p = &sfs_spread_places[sfs_thread_hash() % SFS_SPREAD_PLACES];

	if (__atomic_load_n(&p->thread, __ATOMIC_RELAXED) != sfs_self() || __atomic_load_n(&p->lock, __ATOMIC_RELAXED) != l)
		return false;
	__atomic_store_n(&p->thread, NULL, __ATOMIC_RELAXED);
	__atomic_store_n(&p->lock, NULL, __ATOMIC_RELEASE);
	return true;
}

/* The word is held shared and about to be released. */
static inline void sfs_spread_count(struct sfs_rwlock *l)
{
	const uint32_t turns = __atomic_load_n(&l->shared_turns, __ATOMIC_RELAXED) + 1;
	const uint32_t ends = __atomic_load_n(&l->spread_ends, __ATOMIC_RELAXED);

	if (turns <= SFS_SPREAD_TURNS << (ends < 12 ? ends : 12))
		__atomic_store_n(&l->shared_turns, turns, __ATOMIC_RELAXED);
	else if (!__atomic_load_n(&l->bias.owner, __ATOMIC_ACQUIRE))
		__atomic_store_n(&l->spread, 1, __ATOMIC_RELEASE);
}

static inline bool sfs_rwlock_tryrdlock(struct sfs_rwlock *l)
{
	if (sfs_bias_take(&l->bias) || sfs_spread_take(l))
		return true;
	if (!sfs_rwlock_try_word_shared(l))
		return false;
	if (sfs_bias_end(&l->bias, false))
		return true;
	sfs_rwlock_unlock_word_shared(l);
	return false;
}

static inline void sfs_rwlock_rdlock(struct sfs_rwlock *l)
{
	if (sfs_bias_take(&l->bias) || sfs_spread_take(l))
		return;
	if (__builtin_expect(!sfs_rwlock_try_word_shared(l), 0))
		sfs_rwlock_rdlock_slow(l);
	sfs_bias_end(&l->bias, true);
}

static inline void sfs_rwlock_rdunlock(struct sfs_rwlock *l)
{
	if (sfs_bias_drop(&l->bias) || sfs_spread_drop(l))
		return;
	sfs_spread_count(l);
	sfs_rwlock_unlock_word_shared(l);
}

/*
 * For what takes long: shared with others also where the lock is this thread's own. Returns what the release is to be told; there is
 * nothing else to release it with.
 */
static inline bool sfs_rwlock_rdlock_long(struct sfs_rwlock *l)
{
	const bool lent = sfs_bias_lend(&l->bias);

	sfs_rwlock_rdlock(l);
	return lent;
}

static inline void sfs_rwlock_rdunlock_long(struct sfs_rwlock *l, bool lent)
{
	sfs_rwlock_rdunlock(l);
	if (lent)
		sfs_bias_back(&l->bias);
}

/* The lock proper was taken exclusively: end what lets others in without it. */
static inline bool sfs_rwlock_alone(struct sfs_rwlock *l, bool wait)
{
	return sfs_bias_end(&l->bias, wait) &&
	       (__builtin_expect(!__atomic_load_n(&l->spread, __ATOMIC_ACQUIRE), 1) || sfs_spread_end(l, wait));
}

static inline bool sfs_rwlock_trywrlock(struct sfs_rwlock *l)
{
	if (sfs_bias_take(&l->bias))
		return true;
	if (!sfs_rwlock_try_word(l))
		return false;
	if (sfs_rwlock_alone(l, false))
		return true;
	sfs_rwlock_unlock_word(l);
	return false;
}

static inline void sfs_rwlock_wrlock(struct sfs_rwlock *l)
{
	if (sfs_bias_take(&l->bias))
		return;
	if (__builtin_expect(!sfs_rwlock_try_word(l), 0))
		sfs_rwlock_wrlock_slow(l);
	sfs_rwlock_alone(l, true);
}

static inline void sfs_rwlock_wrunlock(struct sfs_rwlock *l)
{
	if (sfs_bias_drop(&l->bias))
		return;
	sfs_bias_count(&l->bias);
	sfs_rwlock_unlock_word(l);
}

/* --- turns: who drew them does something at the same time, and ends it one after the other, in the order in which they were drawn */

struct sfs_turns {
	uint32_t next; /* to be drawn; by who holds a lock for it */
	uint32_t now;  /* whose turn it is */
	uint32_t waiters;
};

void sfs_turns_wait_slow(struct sfs_turns *t, uint32_t mine);
void sfs_turns_wake(struct sfs_turns *t);

/* Has every turn that was drawn ended? */
static inline bool sfs_turns_over(const struct sfs_turns *t)
{
	return __atomic_load_n(&t->now, __ATOMIC_ACQUIRE) == t->next;
}

/* Everything done in earlier turns is visible when it returns. */
static inline void sfs_turns_wait(struct sfs_turns *t, uint32_t mine)
{
	if (__builtin_expect(__atomic_load_n(&t->now, __ATOMIC_ACQUIRE) != mine, 0))
		sfs_turns_wait_slow(t, mine);
}

/* It is my turn, and it ends. */
static inline void sfs_turns_pass(struct sfs_turns *t)
{
	__atomic_add_fetch(&t->now, 1, __ATOMIC_SEQ_CST);
	if (__builtin_expect(__atomic_load_n(&t->waiters, __ATOMIC_SEQ_CST), 0))
		sfs_turns_wake(t);
}

#endif
