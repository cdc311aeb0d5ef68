/* SPDX-License-Identifier: Apache-2.0 */
#include "record/latency.h"

#include <sys/prctl.h>
#include <sys/syscall.h>

#include "base/protect.h"
#include "base/sys.h"

#define LEARN_NS 1000000 /* two looks at both clocks so far apart are off by less than a hundredth */
#define SHIFT	 24u	 /* of nanoseconds for a tick */

struct sfs_timer sfs_timers[SFS_TIMER_PLACES];

static uint64_t ns_of_tick; /* << SHIFT; 0: not known */
/* The first look at both clocks: nobody has taken it, somebody is taking it, it is there. */
static enum { LOOK_NONE, LOOK_BEGUN, LOOK_DONE } look;
static uint64_t first_ticks;
static int64_t first_ns;

/* A program may forbid itself to look at the ticks: then whoever does gets SIGSEGV. */
static bool ticks_allowed(void)
{
#ifdef PR_GET_TSC
	int how = PR_TSC_ENABLE;

	return sys_call2(SYS_prctl, PR_GET_TSC, (long)&how) < 0 || how == PR_TSC_ENABLE;
#else
	return true;
#endif
}

bool sfs_timing_learn(int64_t now_ns)
{
	const int was = __atomic_load_n(&look, __ATOMIC_ACQUIRE);
	int none = LOOK_NONE;
	uint64_t ticks;

	if (was == LOOK_BEGUN || !ticks_allowed())
		return false;
	ticks = sfs_ticks();
	if (was == LOOK_NONE) {
		if (__atomic_compare_exchange_n(&look, &none, LOOK_BEGUN, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
			first_ns = now_ns;
			first_ticks = ticks;
			__atomic_store_n(&look, LOOK_DONE, __ATOMIC_RELEASE);
		}
		return false;
	}
	if (now_ns - first_ns < LEARN_NS || ticks <= first_ticks)
		return false;
	__atomic_store_n(&ns_of_tick, ((uint64_t)(now_ns - first_ns) << SHIFT) / (ticks - first_ticks), __ATOMIC_RELAXED);
	return true;
}

uint64_t sfs_timing_begin(bool fsync)
{
	struct sfs_timer *here = sfs_timer_here();
	const uint32_t every = fsync ? SFS_TIMED_EVERY_FSYNC : SFS_TIMED_EVERY;
	uint64_t now;

	if (unlikely(!__atomic_load_n(&ns_of_tick, __ATOMIC_RELAXED)) && !sfs_timing_learn(sys_now_ns())) {
		here->left[fsync] = every;
		return 0;
	}
	now = sfs_ticks();
	/* The time alone would not do: in a loop it follows from the last distance, and distances could repeat for ever. */
	here->random = here->random * 1664525u + 1013904223u + (uint32_t)now;
	here->left[fsync] = every / 2 + (here->random >> 16) % every;
	return now;
}

void sfs_timing_end(const struct sfs_log *log, enum sfs_latency_kind kind, uint64_t begun)
{
	struct sfs_log_header *h = (struct sfs_log_header *)log->map;
	uint32_t rights;
	uint64_t ns;

	if (!begun || !h)
		return;
	ns = (uint64_t)((unsigned __int128)(sfs_ticks() - begun) * __atomic_load_n(&ns_of_tick, __ATOMIC_RELAXED) >> SHIFT);
	rights = sfs_protect_open();
	__atomic_fetch_add(&h->latency.bucket[kind][sfs_latency_bucket(ns)], 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&h->latency.sum_ns[kind], ns, __ATOMIC_RELAXED);
	sfs_protect_close(rights);
}
