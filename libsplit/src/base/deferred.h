/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals that have been put off (core/deferred.c) because they came in the middle of a call. They are delivered when nothing says any more
 * that the thread is in one: whoever takes back such a sign calls sfs_call_ended().
 */
#ifndef SFS_DEFERRED_H
#define SFS_DEFERRED_H

#include <stdint.h>

extern uint32_t sfs_deferred __attribute__((visibility("hidden"))); /* in all threads; atomic */
void sfs_deliver(void);
/* A signal mask of this thread, with or without those that are blocked only because one of them was put off. */
uint64_t sfs_mask_without(uint64_t mask);
uint64_t sfs_mask_with(uint64_t mask);

static inline void sfs_call_ended(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (__builtin_expect(__atomic_load_n(&sfs_deferred, __ATOMIC_RELAXED), 0))
		sfs_deliver();
}

#endif
