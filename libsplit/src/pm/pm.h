/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Persistence: the only module that stores to persistent memory, flushes cache lines or fences. Everything that must survive a
 * crash goes through these functions; the recording build (-DPM_RECORD) reports each of them to a recorder, which is what crash
 * exploration works on.
 *
 * The contract is libpmem's (pmem_memcpy with PMEM_F_MEM_NODRAIN, pmem_flush, pmem_drain), and libpmem is the oracle of
 * the tests. No function fails, allocates or touches errno. Source and destination must not overlap.
 */
#ifndef SFS_PM_H
#define SFS_PM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/protect.h"

/*
 * A volume on persistent memory joins this process, before anything of it is stored to. kept: the platform writes the caches back when the
 * power fails (eADR), so a store is durable as soon as everybody sees it. While that holds for every volume that has joined, nothing is
 * written back, and pm_fence() is what makes stores visible; the first volume without it ends that for all.
 */
void pm_join(bool kept);

/*
 * Copy n bytes to PM. Durable after the next pm_fence() of this thread. Short copies are cached stores followed by write-back,
 * long ones non-temporal stores (the measured break-even is 512 to 1024 bytes). Any alignment, any n.
 */
void pm_copy(void *dst, const void *src, size_t n);

/* Whole lines: pm_copy_crc() stores them past the caches however few they are, so fetching them beforehand is of no use. */
static inline bool pm_whole_lines(const void *dst, size_t n)
{
	return (((uintptr_t)dst | n) & 63) == 0;
}

/*
 * pm_copy() to a place that nobody has read or stored to lately, and the CRC32C (begun with crc, 0 for the first piece) of the bytes
 * that were stored, even where another thread changes the source meanwhile.
 */
uint32_t pm_copy_crc(uint32_t crc, void *dst, const void *src, size_t n);

/*
 * Up to how many bytes pm_copy_crc() takes less time on this CPU than pm_copy() and a pm_fence(). By measurement: where the sum is made beside
 * the stores it costs nothing, and 16 KiB is where a fence has become a fifth of the copy; elsewhere it is a pass of its own.
 */
size_t pm_crc_max(void);

/*
 * Copy n bytes with cached stores only. They survive the death of the process at once, a power loss only after pm_flush() and
 * pm_fence(): for what posix mode promises no more about before fsync, and for a small copy ten times cheaper, because
 * write-back makes the next locked instruction wait.
 */
void pm_store(void *dst, const void *src, size_t n);

/* pm_copy() of zeros. */
void pm_zero(void *dst, size_t n);

/*
 * Copy one 64-byte line that nobody has read or stored to lately; dst is 64-byte aligned. Non-temporal: a cached store would fetch the line
 * first, and the fence would wait for that. Durable after the next pm_fence() of this thread, until then word by word in any order.
 */
void pm_copy_line(void *dst, const void *src);

/* Store 8 bytes atomically at an 8-byte aligned address and write the line back, not fenced. */
void pm_store64(uint64_t *dst, uint64_t value);

/* Write back the cache lines of [p, p+n) that were stored to by other means. */
void pm_flush(const void *p, size_t n);

/* Everything this thread copied, stored or flushed before is durable when pm_fence() returns. */
void pm_fence(void);

/* Store 8 bytes atomically at an 8-byte aligned address, after everything stored before; otherwise as pm_store(). */
void pm_store_word_opened(uint64_t *dst, uint64_t value); /* where what is mapped is under a key */
#ifdef PM_RECORD
void pm_store_word(uint64_t *dst, uint64_t value);
#else
static inline void pm_store_word(uint64_t *dst, uint64_t value)
{
	if (sfs_protect_on())
		pm_store_word_opened(dst, value);
	else
		__atomic_store_n(dst, value, __ATOMIC_RELEASE);
}
#endif

#ifdef PM_RECORD
enum pm_event_kind { PM_EV_STORE, PM_EV_NT, PM_EV_FLUSH, PM_EV_FENCE };
struct pm_recorder {
	/* Called before the effect. src is NULL for zeroing, flushes and fences. */
	void (*event)(void *ctx, enum pm_event_kind kind, void *dst, const void *src, size_t n);
	void *ctx;
};
/* NULL switches recording off. */
void pm_record(const struct pm_recorder *recorder);
#endif

#endif
