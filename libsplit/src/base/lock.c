/* SPDX-License-Identifier: Apache-2.0 */
/* The contended halves of the locks: spin shortly (the holder copies a few KiB at most), then sleep on the futex. */
#include "base/lock.h"

#include <linux/futex.h>
#include <signal.h>
#include <string.h>

#include "base/sys.h"

#define SPINS	   100
#define PAUSE_NS   50000
#define TURN_SPINS 2000 /* turns go to and fro: to be put to sleep and woken at each takes longer than what is waited for */
/* Wake-up classes of one reader-writer lock; both sleep on its state word. */
#define WAIT_READERS 1u
#define WAIT_WRITERS 2u

/* Returns at once when *word is not `seen`; any wake-up, also a spurious one or a signal, makes the caller look again. */
static void futex_wait(uint32_t *word, uint32_t seen, uint32_t who)
{
	sys_call6(SYS_futex, (long)word, FUTEX_WAIT_BITSET_PRIVATE, seen, 0, 0, who);
}

static void futex_wake(uint32_t *word, int count, uint32_t who)
{
	sys_call6(SYS_futex, (long)word, FUTEX_WAKE_BITSET_PRIVATE, count, 0, 0, who);
}

/*
 * Who has its signals blocked, by hash of the thread pointer: only the outermost section of a thread makes the system calls. Two threads
 * in one slot overwrite each other; then a section makes calls that it could have spared.
 */
static struct {
	void *self;
} __attribute__((aligned(64))) blocked[256];

static void **slot(void)
{
	return &blocked[sfs_thread_hash() % (sizeof(blocked) / sizeof(blocked[0]))].self;
}

int sfs_handlers;

void sfs_handlers_none(void)
{
	int unknown = SFS_HANDLERS_UNKNOWN;

	__atomic_compare_exchange_n(&sfs_handlers, &unknown, SFS_HANDLERS_NONE, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

bool sfs_handlers_seen(void)
{
	return __atomic_exchange_n(&sfs_handlers, SFS_HANDLERS_SEEN, __ATOMIC_SEQ_CST) != SFS_HANDLERS_SEEN;
}

static bool in_section(void)
{
	return __atomic_load_n(slot(), __ATOMIC_RELAXED) == sfs_self();
}

static bool all_of(uint64_t mask)
{
	const uint64_t most = ~(SFS_FAULTS | SFS_SIGNAL(SIGKILL) | SFS_SIGNAL(SIGSTOP));

	return (mask & most) == most;
}

/* Not by the table: two threads may share a place, and a handler for a fault may have left a section by a jump. */
bool sfs_signals_blocked(void)
{
	uint64_t mask = 0;

	sys_sigmask(SIG_BLOCK, NULL, &mask);
	return all_of(mask);
}

uint64_t sfs_signals_block_all(void)
{
	const uint64_t most = ~SFS_FAULTS;
	uint64_t mask = 0;

	if (in_section())
		return SFS_SIGNALS_BLOCKED;
	sys_sigmask(SIG_BLOCK, &most, &mask);
	__atomic_store_n(slot(), sfs_self(), __ATOMIC_RELAXED);
	/* They may have been delivered when the mask is restored. */
	return sfs_any_deferred() && !all_of(mask) ? mask & ~sfs_blocked_meanwhile() : mask;
}

void sfs_signals_restore_mask(uint64_t mask)
{
	if (in_section())
		__atomic_store_n(slot(), NULL, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (sfs_any_deferred())
		mask |= sfs_blocked_meanwhile();
	sys_sigmask(SIG_SETMASK, &mask, NULL);
	sfs_call_ended();
}

void sfs_mutex_lock_slow(struct sfs_mutex *m)
{
	for (int i = 0; i < SPINS; i++) {
		if (__atomic_load_n(&m->state, __ATOMIC_RELAXED) == 0 && sfs_mutex_try_word(m))
			return;
		sfs_relax();
	}
	/* From here on the lock is taken as 2: others may sleep besides us, so our release has to wake one. */
	while (__atomic_exchange_n(&m->state, 2, __ATOMIC_ACQUIRE) != 0)
		futex_wait(&m->state, 2, FUTEX_BITSET_MATCH_ANY);
}

void sfs_mutex_wake(struct sfs_mutex *m)
{
	futex_wake(&m->state, 1, FUTEX_BITSET_MATCH_ANY);
}

void sfs_rwlock_rdlock_slow(struct sfs_rwlock *l)
{
	uint32_t s;

	for (int i = 0; i < SPINS; i++) {
		if (sfs_rwlock_try_word_shared(l))
			return;
		sfs_relax();
	}
	for (;;) {
		if (sfs_rwlock_try_word_shared(l))
			return;
		s = __atomic_load_n(&l->state, __ATOMIC_RELAXED);
		if (!(s & SFS_RW_KEEPS_READERS_OUT))
			continue;
		if (!(s & SFS_RW_READERS_WAIT) && !__atomic_compare_exchange_n(&l->state, &s, s | SFS_RW_READERS_WAIT, false,
									       __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			continue;
		futex_wait(&l->state, s | SFS_RW_READERS_WAIT, WAIT_READERS);
	}
}

void sfs_rwlock_wrlock_slow(struct sfs_rwlock *l)
{
	uint32_t s, taken;

	for (int i = 0; i < SPINS; i++) {
		if (__atomic_load_n(&l->state, __ATOMIC_RELAXED) == 0 && sfs_rwlock_try_word(l))
			return;
		sfs_relax();
	}
	__atomic_add_fetch(&l->writers, 1, __ATOMIC_RELAXED);
	for (;;) {
		s = __atomic_load_n(&l->state, __ATOMIC_ACQUIRE);
		if (!(s & (SFS_RW_WRITER | SFS_RW_READERS))) {
			/*
			 * A release clears WRITER_WAITS and wakes one writer only, so the one that gets the lock sets the bit
			 * again for those that still sleep: all but itself. One too many costs a wake-up of nobody.
			 */
			taken = SFS_RW_WRITER | (s & SFS_RW_READERS_WAIT);
			if (__atomic_load_n(&l->writers, __ATOMIC_RELAXED) > 1)
				taken |= SFS_RW_WRITER_WAITS;
			if (__atomic_compare_exchange_n(&l->state, &s, taken, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
				break;
			continue;
		}
		if (!(s & SFS_RW_WRITER_WAITS) && !__atomic_compare_exchange_n(&l->state, &s, s | SFS_RW_WRITER_WAITS, false,
									       __ATOMIC_RELEASE, __ATOMIC_RELAXED))
			continue;
		futex_wait(&l->state, s | SFS_RW_WRITER_WAITS, WAIT_WRITERS);
	}
	__atomic_sub_fetch(&l->writers, 1, __ATOMIC_RELAXED);
}

void sfs_rwlock_wake(struct sfs_rwlock *l, uint32_t state)
{
	if (state & SFS_RW_WRITER_WAITS)
		futex_wake(&l->state, 1, WAIT_WRITERS);
	if (state & SFS_RW_READERS_WAIT)
		futex_wake(&l->state, 0x7fffffff, WAIT_READERS);
}

void sfs_turns_wait_slow(struct sfs_turns *t, uint32_t mine)
{
	uint32_t now;

	for (int i = 0; i < TURN_SPINS; i++) {
		if (__atomic_load_n(&t->now, __ATOMIC_ACQUIRE) == mine)
			return;
		sfs_relax();
	}
	/* Either who passes sees us, or we see that it has. */
	__atomic_add_fetch(&t->waiters, 1, __ATOMIC_SEQ_CST);
	while ((now = __atomic_load_n(&t->now, __ATOMIC_SEQ_CST)) != mine)
		futex_wait(&t->now, now, FUTEX_BITSET_MATCH_ANY);
	__atomic_sub_fetch(&t->waiters, 1, __ATOMIC_RELAXED);
}

/* Few wait at a time, and which of them is next they know best. */
void sfs_turns_wake(struct sfs_turns *t)
{
	futex_wake(&t->now, 0x7fffffff, FUTEX_BITSET_MATCH_ANY);
}

struct sfs_spread_place sfs_spread_places[SFS_SPREAD_PLACES];

bool sfs_spread_end(struct sfs_rwlock *l, bool wait)
{
	__atomic_exchange_n(&l->spread, 0, __ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < SFS_SPREAD_PLACES; i++) {
		for (unsigned n = 0; __atomic_load_n(&sfs_spread_places[i].lock, __ATOMIC_SEQ_CST) == l; n++) {
			if (!wait) {
				/* Who takes the word next has to look for that reader, too. */
				__atomic_store_n(&l->spread, 1, __ATOMIC_SEQ_CST);
				return false;
			}
			/* A reader may wait for the disk, or for the processor that we have. */
			if (n < SPINS)
				sfs_relax();
			else
				sys_nap(PAUSE_NS);
		}
	}
	__atomic_store_n(&l->shared_turns, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&l->spread_ends, l->spread_ends + 1, __ATOMIC_RELAXED);
	return true;
}

void sfs_locks_forget(void)
{
	memset(blocked, 0, sizeof(blocked));
	memset(sfs_spread_places, 0, sizeof(sfs_spread_places));
}
