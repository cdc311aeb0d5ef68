/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call of many is timed, so that the others pay for a subtraction and no clock. The distance to the next one is not always the same:
 * what a program does at regular intervals must be met as often as anything else.
 */
#ifndef SFS_LATENCY_H
#define SFS_LATENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arch.h"
#include "base/atomic.h"
#include "format/latency.h"
#include "record/log.h"

/* Calls from one timed call to the next, on average; of fsync, which takes long and is rare. */
#define SFS_TIMED_EVERY	      128u
#define SFS_TIMED_EVERY_FSYNC 4u

/* A place for each thread, or for a few: two that share one are timed at other calls, and nothing else. */
#define SFS_TIMER_PLACES 64u
struct sfs_timer {
	uint32_t left[2]; /* calls before the next that is timed: reads and writes, fsync */
	uint32_t random;
	uint32_t pad[13];
};
extern struct sfs_timer sfs_timers[SFS_TIMER_PLACES] __attribute__((visibility("hidden"), aligned(64)));

/* Thread pointers lie at the same place of areas that are whole pages. */
static inline struct sfs_timer *sfs_timer_here(void)
{
	const uintptr_t self = (uintptr_t)sfs_self();

	return &sfs_timers[(self >> 12 ^ self >> 21) % SFS_TIMER_PLACES];
}

/* Is this call to be timed? */
static inline bool sfs_timed(bool fsync)
{
	return unlikely(sfs_timer_here()->left[fsync]-- == 0);
}

/* It is: when it begins, in ticks. Chooses the next one. */
uint64_t sfs_timing_begin(bool fsync);
/* It is over. Nothing is counted without a log, or before the clock is known. */
void sfs_timing_end(const struct sfs_log *log, enum sfs_latency_kind kind, uint64_t begun);

/* now_ns: CLOCK_MONOTONIC. True when ticks can be told in nanoseconds from now on; a call at least a millisecond later may know. */
bool sfs_timing_learn(int64_t now_ns);

#endif
