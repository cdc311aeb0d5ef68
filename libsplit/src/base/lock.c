/* SPDX-License-Identifier: Apache-2.0 */
/* The contended halves of the locks: spin shortly (the holder copies a few KiB at most), then sleep on the futex. */
#include "base/lock.h"

#include <linux/futex.h>
#include <signal.h>
#include <string.h>

#include "base/sys.h"

#define SPINS 100

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

void sfs_locks_forget(void)
{
	memset(blocked, 0, sizeof(blocked));
}
