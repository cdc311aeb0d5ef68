/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a copy gets to the medium. Below PM_NT_MIN bytes: cached stores, then write-back of the lines, which beats draining
 * write-combining buffers. From there on: non-temporal SSE2 stores of whole lines (wider vectors gain nothing, memory is the
 * limit), with the unaligned head and tail as cached stores.
 */
#include "pm/pm.h"

#include <emmintrin.h>
#include <stdbool.h>

#include "base/cpu.h"
#include "base/sys.h"

#define LINE	  64u
#define PM_NT_MIN 512u

/* Write back the lines [p, end); p is aligned to a line. */
struct pm_ops {
	void (*write_back)(const char *p, const char *end);
};

static void write_back_clwb(const char *p, const char *end)
{
	for (; p < end; p += LINE)
		__asm__ volatile("clwb %0" : : "m"(*p) : "memory");
}

static void write_back_clflushopt(const char *p, const char *end)
{
	for (; p < end; p += LINE)
		__asm__ volatile("clflushopt %0" : : "m"(*p) : "memory");
}

static void write_back_clflush(const char *p, const char *end)
{
	for (; p < end; p += LINE)
		__asm__ volatile("clflush %0" : : "m"(*p) : "memory");
}

/* clflush exists on every x86-64, so that a call before pm_init() is slow and not wrong. */
static struct pm_ops ops = {write_back_clflush};

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

void pm_init(void)
{
	uint32_t cpu = sfs_cpu();

	if (cpu & SFS_CPU_CLWB)
		ops.write_back = write_back_clwb;
	else if (cpu & SFS_CPU_CLFLUSHOPT)
		ops.write_back = write_back_clflushopt;
}

static inline char *line_of(const void *p)
{
	return (char *)((uintptr_t)p & ~(uintptr_t)(LINE - 1));
}

static void write_back(const void *p, size_t n)
{
	if (n)
		ops.write_back(line_of(p), (const char *)p + n);
}

void pm_flush(const void *p, size_t n)
{
	record(PM_EV_FLUSH, (void *)p, NULL, n);
	write_back(p, n);
}

void pm_fence(void)
{
	record(PM_EV_FENCE, NULL, NULL, 0);
	_mm_sfence();
}

typedef uint64_t u64_any __attribute__((aligned(1), may_alias));
typedef uint32_t u32_any __attribute__((aligned(1), may_alias));
typedef uint16_t u16_any __attribute__((aligned(1), may_alias));

/*
 * Cached stores in ascending order of addresses: x86 makes the stores to one line durable in program order, and crash
 * exploration relies on that. The compiler must neither reorder nor turn them into a call.
 */
static inline void store_ascending(char *d, const char *s, size_t n)
{
	for (; n >= 16; n -= 16, d += 16, s += 16) {
		_mm_storeu_si128((__m128i *)d, _mm_loadu_si128((const __m128i *)s));
		__asm__ volatile("" ::: "memory");
	}
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
	for (; n >= 16; n -= 16, d += 16) {
		_mm_storeu_si128((__m128i *)d, _mm_setzero_si128());
		__asm__ volatile("" ::: "memory");
	}
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
	__m128i a, b, c, d;

	record(PM_EV_NT, dst, src, n);
	if (!src) {
		for (a = _mm_setzero_si128(); n; n -= 16, dst += 16)
			_mm_stream_si128((__m128i *)dst, a);
		return;
	}
	for (; n; n -= LINE, dst += LINE, src += LINE) {
		a = _mm_loadu_si128((const __m128i *)src);
		b = _mm_loadu_si128((const __m128i *)src + 1);
		c = _mm_loadu_si128((const __m128i *)src + 2);
		d = _mm_loadu_si128((const __m128i *)src + 3);
		_mm_stream_si128((__m128i *)dst, a);
		_mm_stream_si128((__m128i *)dst + 1, b);
		_mm_stream_si128((__m128i *)dst + 2, c);
		_mm_stream_si128((__m128i *)dst + 3, d);
	}
}

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

void pm_copy(void *dst, const void *src, size_t n)
{
	copy(dst, src, n);
}

void pm_store(void *dst, const void *src, size_t n)
{
	record(PM_EV_STORE, dst, src, n);
	store_ascending(dst, src, n);
}

void pm_zero(void *dst, size_t n)
{
	copy(dst, NULL, n);
}

void pm_copy_line(void *dst, const void *src)
{
	copy_cached(dst, src, LINE);
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
	__atomic_store_n(dst, value, __ATOMIC_RELEASE);
	pm_flush(dst, sizeof(value));
}
