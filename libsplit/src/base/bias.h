/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Biased locking for the locks of base/lock.h. A lock that one thread has taken many times in a row becomes that thread's: it
 * takes and releases it with plain stores. Another thread that wants it first takes the bias away, which costs it two
 * membarrier(2) calls (about a microsecond) and the owner nothing.
 *
 * Why: a locked instruction drains the non-temporal stores and write-backs that are under way, which makes a 64-byte append ten
 * times slower. The price is paid by sharing alone: each bias that did not last doubles the number of turns needed for the next.
 *
 * The first barrier makes the owner either see that its bias is gone or us see that it is inside. The second makes everything
 * that it did inside visible to us, its non-temporal stores included.
 *
 * A lock can be biased to one thread in its life, the first that earns it. Were it given to a second one, the first might be
 * just between finding that it is the owner and storing `held`, sleep through the change, and overwrite the other's.
 *
 * Off until sfs_bias_enable(). Threads are told apart by their thread pointer (base/arch.h); a bare clone(2) thread that takes such
 * locks needs CLONE_SETTLS with a block of its own whose first word is its own address.
 */
#ifndef SFS_BIAS_H
#define SFS_BIAS_H

#include "base/arch.h"
#include "base/deferred.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sfs_bias {
	void *owner;	    /* whose lock it is: a thread pointer, NULL or SFS_BIAS_REVOKING */
	void *held;	    /* the owner, while it holds the lock by its bias; stored by that thread only, like `uses` */
	void *candidate;    /* the only thread that can be the owner; this and the next two under the lock, taken exclusively */
	void *last;	    /* who had the lock last */
	uint32_t streak;    /* turns of `last` in a row */
	uint32_t uses;	    /* of the present bias */
	uint32_t doublings; /* of the streak that the next bias needs; atomic */
};

#define SFS_BIAS_REVOKING ((void *)1)
#define SFS_BIAS_STREAK	  64u

/* Allow locks to become biased. Returns 0, or the error of membarrier(2): then they work as before. */
int sfs_bias_enable(void);
/* Every other thread of the process has executed a full barrier when this returns: what it stored before can be seen. */
void sfs_all_threads_fence(void);
void sfs_bias_grant(struct sfs_bias *b);
void sfs_bias_revoke(struct sfs_bias *b, bool wait);

static inline bool sfs_bias_take(struct sfs_bias *b)
{
	void *me = sfs_self();

	if (__atomic_load_n(&b->owner, __ATOMIC_RELAXED) != me || __atomic_load_n(&b->held, __ATOMIC_RELAXED))
		return false;
	__atomic_store_n(&b->held, me, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST); /* the processor's half of this fence is the revoker's membarrier */
	if (__builtin_expect(__atomic_load_n(&b->owner, __ATOMIC_ACQUIRE) == me, 1))
		return true;
	__atomic_store_n(&b->held, NULL, __ATOMIC_RELEASE);
	sfs_call_ended();
	return false;
}

/* Is the lock held by this thread through its bias? */
static inline bool sfs_bias_mine(const struct sfs_bias *b)
{
	return __atomic_load_n(&b->held, __ATOMIC_RELAXED) == sfs_self();
}

static inline bool sfs_bias_drop(struct sfs_bias *b)
{
	if (!sfs_bias_mine(b))
		return false;
	__atomic_store_n(&b->uses, __atomic_load_n(&b->uses, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&b->held, NULL, __ATOMIC_RELEASE);
	sfs_call_ended();
	return true;
}

/* The lock proper was taken: end somebody else's bias. False: it is held and `wait` was not wanted; release the lock. */
static inline bool sfs_bias_end(struct sfs_bias *b, bool wait)
{
	void *owner = __atomic_load_n(&b->owner, __ATOMIC_ACQUIRE);

	/* Held by ourselves: a signal handler that takes a lock its thread holds, which waits for ever, as with any lock. */
	if (__builtin_expect(owner && (owner != sfs_self() || sfs_bias_mine(b)), 0))
		sfs_bias_revoke(b, wait);
	return wait || __atomic_load_n(&b->owner, __ATOMIC_ACQUIRE) != SFS_BIAS_REVOKING;
}

/*
 * The lock proper is held exclusively and about to be released: whose turn was it? (Not when it is taken: a bias that is granted
 * while the lock is held would let a signal handler in.)
 */
static inline void sfs_bias_count(struct sfs_bias *b)
{
	void *me = sfs_self();

	if (b->last != me) {
		b->last = me;
		b->streak = 0;
	} else if (++b->streak >= SFS_BIAS_STREAK << __atomic_load_n(&b->doublings, __ATOMIC_RELAXED)) {
		sfs_bias_grant(b);
	}
}

#endif
