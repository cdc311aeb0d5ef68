/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A part of the persistence module (pm/pm.c) and nobody else's: what the processors call writing back, a fence, and storing whole lines. arm64 has
 * no stores that go past the caches; there whole lines are written back as well.
 */
#ifndef SFS_PM_INSTRUCTIONS_H
#define SFS_PM_INSTRUCTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"

#define LINE 64u

typedef uint8_t v16 __attribute__((vector_size(16)));
typedef v16 v16_any __attribute__((aligned(1), may_alias));
typedef uint64_t u64_any __attribute__((aligned(1), may_alias));
typedef uint32_t u32_any __attribute__((aligned(1), may_alias));
typedef uint16_t u16_any __attribute__((aligned(1), may_alias));

/* Write back the lines that hold [p, end). write_back_first() is right on each processor, write_back_best() returns the fastest. */
typedef void write_back_fn(const char *p, const char *end);

static inline char *line_of(const void *p, size_t line)
{
	return (char *)((uintptr_t)p & ~(uintptr_t)(line - 1));
}

#if defined(__x86_64__)

#include <emmintrin.h>

/* Non-temporal stores go past the caches. */
#define LINES_ARE_CACHED false

static void write_back_clwb(const char *p, const char *end)
{
	for (p = line_of(p, LINE); p < end; p += LINE)
		__asm__ volatile("clwb %0" : : "m"(*p) : "memory");
}

static void write_back_clflushopt(const char *p, const char *end)
{
	for (p = line_of(p, LINE); p < end; p += LINE)
		__asm__ volatile("clflushopt %0" : : "m"(*p) : "memory");
}

/* Every x86-64 has it. */
static void write_back_clflush(const char *p, const char *end)
{
	for (p = line_of(p, LINE); p < end; p += LINE)
		__asm__ volatile("clflush %0" : : "m"(*p) : "memory");
}

static write_back_fn *write_back_best(void)
{
	const uint32_t cpu = sfs_cpu();

	return cpu & SFS_CPU_CLWB ? write_back_clwb : cpu & SFS_CPU_CLFLUSHOPT ? write_back_clflushopt : write_back_clflush;
}

static inline void fence(void)
{
	_mm_sfence();
}

static inline void store_line(char *dst, v16 a, v16 b, v16 c, v16 d)
{
	_mm_stream_si128((__m128i *)dst, (__m128i)a);
	_mm_stream_si128((__m128i *)dst + 1, (__m128i)b);
	_mm_stream_si128((__m128i *)dst + 2, (__m128i)c);
	_mm_stream_si128((__m128i *)dst + 3, (__m128i)d);
}

static inline void store_word(char *dst, uint64_t v)
{
	_mm_stream_si64((long long *)dst, (long long)v);
}

#else /* arm64 */

/* Non-temporal is a hint here: the lines are in the caches as any others. */
#define LINES_ARE_CACHED true

static size_t data_line;

/*
 * dc cvap cleans to the point of persistence; where the processor has none apart from the point of coherency, the kernel too uses
 * dc cvac. Both are ordered behind the stores to their line, and complete with the next dsb. By its encoding: the assembler takes the name
 * dc cvap only for newer architectures.
 */
static void write_back_cvap(const char *p, const char *end)
{
	for (p = line_of(p, data_line); p < end; p += data_line)
		__asm__ volatile("sys #3, c7, c12, #1, %0" : : "r"(p) : "memory");
}

static void write_back_cvac(const char *p, const char *end)
{
	for (p = line_of(p, data_line); p < end; p += data_line)
		__asm__ volatile("dc cvac, %0" : : "r"(p) : "memory");
}

static write_back_fn *write_back_best(void)
{
	uint64_t ctr;

	__asm__("mrs %0, ctr_el0" : "=r"(ctr));
	data_line = (size_t)4 << (ctr >> 16 & 15); /* DminLine: words of the smallest data cache line */
	return sfs_cpu() & SFS_CPU_DCPOP ? write_back_cvap : write_back_cvac;
}

static inline void fence(void)
{
	__asm__ volatile("dsb sy" ::: "memory");
}

static inline void store_line(char *dst, v16 a, v16 b, v16 c, v16 d)
{
	__asm__ volatile("stnp %q1, %q2, [%0]\n\t"
			 "stnp %q3, %q4, [%0, #32]"
			 :
			 : "r"(dst), "w"(a), "w"(b), "w"(c), "w"(d)
			 : "memory");
}

static inline void store_word(char *dst, uint64_t v)
{
	*(volatile u64_any *)dst = v;
}

#endif
#endif
