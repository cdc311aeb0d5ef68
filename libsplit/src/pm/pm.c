/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a copy gets to the medium. Below PM_NT_MIN bytes: cached stores, then write-back of the lines, which beats draining
 * write-combining buffers. From there on: non-temporal stores of whole lines (vectors wider than 16 bytes gain nothing, memory is
 * the limit), with the unaligned head and tail as cached stores.
 */
#include "pm/pm.h"

#include <string.h>

#include "base/crc32c.h"
#include "base/protect.h"
#include "base/sys.h"
#include "pm/instructions.h"
#include "pm/lines_crc.h"

#define PM_NT_MIN  512u
#define BOUNCE	   1024u  /* bytes: a checksum of its own pass takes as long as a fence from here on */
#define CRC_BESIDE 16384u /* bytes: see pm_crc_max() */

/* The best way is looked for by the first who writes lines back: asking the processor costs microseconds in a virtual machine. */
static void write_back_first(const char *p, const char *end);
static write_back_fn *write_back_lines = write_back_first;

static void write_back_first(const char *p, const char *end)
{
	write_back_fn *best = write_back_best();

	__atomic_store_n(&write_back_lines, best, __ATOMIC_RELAXED);
	best(p, end);
}

/* What a power failure does to the caches, of the volumes that have joined. It goes down this list only, or from UNKNOWN to LOST. */
enum caches { CACHES_UNKNOWN, CACHES_KEPT, CACHES_LOST };
static enum caches caches;

void pm_join(bool kept)
{
	enum caches before = CACHES_UNKNOWN;

	if (kept)
		__atomic_compare_exchange_n(&caches, &before, CACHES_KEPT, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	else
		__atomic_store_n(&caches, CACHES_LOST, __ATOMIC_RELAXED);
}

#ifdef PM_RECORD
long (*sys_hook)(long n, long a, long b, long c, long d, long e, long f); /* base/sys.h */
static const struct pm_recorder *recorder;

void pm_record(const struct pm_recorder *r)
{
	recorder = r;
}

static void record(enum pm_event_kind kind, void *dst, const void *src, size_t n)
{
	if (recorder)
		recorder->event(recorder->ctx, kind, dst, src, n);
}
#else
#define record(kind, dst, src, n) ((void)0)
#endif

static void write_back(const void *p, size_t n)
{
	if (n && __atomic_load_n(&caches, __ATOMIC_RELAXED) != CACHES_KEPT)
		__atomic_load_n(&write_back_lines, __ATOMIC_RELAXED)(p, (const char *)p + n);
}

/* Lines that have been stored as a whole. */
static inline void lines_stored(const char *dst, size_t n)
{
	if (LINES_ARE_CACHED)
		write_back(dst, n);
}

void pm_flush(const void *p, size_t n)
{
	record(PM_EV_FLUSH, (void *)p, NULL, n);
	write_back(p, n);
}

void pm_fence(void)
{
	record(PM_EV_FENCE, NULL, NULL, 0);
	fence();
}

/*
 * Cached stores in ascending order of addresses: x86 makes the stores to one line durable in program order, and crash
 * exploration relies on that. arm64 promises no order, and what lies on the medium needs none: records and headers carry a CRC,
 * anything else that counts is one word. The compiler must neither reorder nor turn the stores into a call.
 */
static inline void store_ascending(char *d, const char *s, size_t n)
{
	for (; n >= 16; n -= 16, d += 16, s += 16)
		*(volatile v16_any *)d = *(const v16_any *)s;
	if (n & 8) {
		*(volatile u64_any *)d = *(const u64_any *)s;
		d += 8, s += 8;
	}
	if (n & 4) {
		*(volatile u32_any *)d = *(const u32_any *)s;
		d += 4, s += 4;
	}
	if (n & 2) {
		*(volatile u16_any *)d = *(const u16_any *)s;
		d += 2, s += 2;
	}
	if (n & 1)
		*(volatile char *)d = *s;
}

static inline void zero_ascending(char *d, size_t n)
{
	for (; n >= 16; n -= 16, d += 16)
		*(volatile v16_any *)d = (v16){};
	for (; n; n--)
		*(volatile char *)d++ = 0;
}

/* Cached stores and write-back; src NULL stores zeros. */
static void copy_cached(char *dst, const char *src, size_t n)
{
	if (!n)
		return;
	record(PM_EV_STORE, dst, src, n);
	if (src)
		store_ascending(dst, src, n);
	else
		zero_ascending(dst, n);
	pm_flush(dst, n);
}

/* Whole lines, dst aligned to a line; src NULL stores zeros. */
static void copy_nt(char *dst, const char *src, size_t n)
{
	const v16_any *from = (const v16_any *)src;
	const v16 zero = {};

	record(PM_EV_NT, dst, src, n);
	if (src)
		for (size_t i = 0; i < n; i += LINE, from += 4)
			store_line(dst + i, from[0], from[1], from[2], from[3]);
	else
		for (size_t i = 0; i < n; i += LINE)
			store_line(dst + i, zero, zero, zero, zero);
	lines_stored(dst, n);
}

#define OPENED __attribute__((noinline, cold))

static void copy(char *dst, const char *src, size_t n)
{
	size_t head, body;

	if (n < PM_NT_MIN) {
		copy_cached(dst, src, n);
		return;
	}
	head = -(uintptr_t)dst & (LINE - 1);
	body = (n - head) & ~(size_t)(LINE - 1);
	copy_cached(dst, src, head);
	copy_nt(dst + head, src ? src + head : NULL, body);
	copy_cached(dst + head + body, src ? src + head + body : NULL, n - head - body);
}

/*
 * The same where what is mapped is under a key (base/protect.h). Out of line, here and below, so that the way of everybody else has one look at
 * whether there is one and keeps nothing.
 */
static OPENED void copy_opened(char *dst, const char *src, size_t n)
{
	const uint32_t rights = sfs_protect_open();

	copy(dst, src, n);
	sfs_protect_close(rights);
}

void pm_copy(void *dst, const void *src, size_t n)
{
	if (sfs_protect_on())
		copy_opened(dst, src, n);
	else
		copy(dst, src, n);
}

static bool crc_beside_stores(void)
{
	return sfs_cpu() & SFS_CPU_VCLMUL;
}

size_t pm_crc_max(void)
{
	return crc_beside_stores() ? CRC_BESIDE : BOUNCE;
}

/* By way of a buffer of our own: the caller's may change between two passes. */
static uint32_t copy_bounced(uint32_t crc, char *dst, const char *src, size_t n)
{
	char bounce[BOUNCE];

	for (size_t done = 0, some; done < n; done += some) {
		some = n - done < sizeof(bounce) ? n - done : sizeof(bounce);
		memcpy(bounce, src + done, some);
		crc = crc32c(crc, bounce, some);
		if (pm_whole_lines(dst + done, some))
			copy_nt(dst + done, bounce, some);
		else
			copy(dst + done, bounce, some);
	}
	return crc;
}

static uint32_t copy_crc(uint32_t crc, void *dst, const void *src, size_t n)
{
	const size_t head = -(uintptr_t)dst & (LINE - 1);
	const size_t body = n < PM_NT_MIN || !crc_beside_stores() ? 0 : (n - head) & ~(size_t)(PM_LINES_CRC - 1);
	char *d = dst;
	const char *s = src;

	if (!body)
		return copy_bounced(crc, d, s, n);
	if (head)
		crc = copy_bounced(crc, d, s, head);
	record(PM_EV_NT, d + head, s + head, body);
	crc = pm_lines_crc(crc, d + head, s + head, body);
	if (n > head + body)
		crc = copy_bounced(crc, d + head + body, s + head + body, n - head - body);
	return crc;
}

static OPENED uint32_t copy_crc_opened(uint32_t crc, void *dst, const void *src, size_t n)
{
	const uint32_t rights = sfs_protect_open();

	crc = copy_crc(crc, dst, src, n);
	sfs_protect_close(rights);
	return crc;
}

uint32_t pm_copy_crc(uint32_t crc, void *dst, const void *src, size_t n)
{
	return sfs_protect_on() ? copy_crc_opened(crc, dst, src, n) : copy_crc(crc, dst, src, n);
}

static OPENED void store_opened(void *dst, const void *src, size_t n)
{
	const uint32_t rights = sfs_protect_open();

	store_ascending(dst, src, n);
	sfs_protect_close(rights);
}

void pm_store(void *dst, const void *src, size_t n)
{
	record(PM_EV_STORE, dst, src, n);
	if (sfs_protect_on())
		store_opened(dst, src, n);
	else
		store_ascending(dst, src, n);
}

void pm_zero(void *dst, size_t n)
{
	pm_copy(dst, NULL, n);
}

/* From words: see sfs_log_write() (record/log.h), whose words they are. */
static inline __attribute__((always_inline)) void copy_line(void *dst, const void *src)
{
	for (size_t i = 0; i < LINE; i += 8)
		store_word((char *)dst + i, *(const volatile u64_any *)((const char *)src + i));
	lines_stored(dst, LINE);
}

static OPENED void copy_line_opened(void *dst, const void *src)
{
	const uint32_t rights = sfs_protect_open();

	copy_line(dst, src);
	sfs_protect_close(rights);
}

void pm_copy_line(void *dst, const void *src)
{
	record(PM_EV_NT, dst, src, LINE);
	if (sfs_protect_on())
		copy_line_opened(dst, src);
	else
		copy_line(dst, src);
}

void pm_store_word_opened(uint64_t *dst, uint64_t value)
{
	const uint32_t rights = sfs_protect_open();

	__atomic_store_n(dst, value, __ATOMIC_RELEASE);
	sfs_protect_close(rights);
}

#ifdef PM_RECORD
void pm_store_word(uint64_t *dst, uint64_t value)
{
	record(PM_EV_STORE, dst, &value, sizeof(value));
	__atomic_store_n(dst, value, __ATOMIC_RELEASE);
}
#endif

void pm_store64(uint64_t *dst, uint64_t value)
{
	record(PM_EV_STORE, dst, &value, sizeof(value));
	pm_store_word_opened(dst, value);
	pm_flush(dst, sizeof(value));
}
