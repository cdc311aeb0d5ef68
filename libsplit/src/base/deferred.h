/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals that have been put off (process/deferred.c) because they came in the middle of a call. Whoever takes back what says that the thread is
 * in one calls sfs_call_ended().
 */
#ifndef SFS_DEFERRED_H
#define SFS_DEFERRED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern uint32_t sfs_deferred __attribute__((visibility("hidden"))); /* in all threads; atomic */
/* Deliver those of this thread whose call is over. call: one is, and `mark` was its mark (struct sfs_ops), NULL if it had none. */
void sfs_deliver(bool call, const uint64_t *mark);
/* What this thread has blocked only because signals of it were put off, a bit for each signal. 0: none was. */
uint64_t sfs_blocked_meanwhile(void);
/* In the child of a fork. */
void sfs_deferred_forget(void);

static inline bool sfs_any_deferred(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	return __builtin_expect(__atomic_load_n(&sfs_deferred, __ATOMIC_RELAXED), 0);
}

static inline void sfs_call_ended(void)
{
	if (sfs_any_deferred())
		sfs_deliver(false, NULL);
}

#endif
