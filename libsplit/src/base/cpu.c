/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"

uint32_t sfs_cpu_cache;

#if defined(__x86_64__)

#include <cpuid.h>
#include <stdbool.h>

#define BIT_ERMS (1u << 9)
#define XCR0_AVX 6u /* the kernel saves the SSE and the AVX halves of the registers */

static uint32_t xcr0(void)
{
	uint32_t low, high;

	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return low;
}

static uint32_t detect(void)
{
	uint32_t a, b, c, d, f = 0;
	bool avx;

	__cpuid(1, a, b, c, d);
	avx = (c & bit_OSXSAVE) && (xcr0() & XCR0_AVX) == XCR0_AVX;
	f |= c & bit_SSE4_2 ? SFS_CPU_CRC32C : 0;
	f |= c & bit_PCLMUL ? SFS_CPU_CLMUL : 0;
	/* A processor with XSAVE has leaf 13, so it has leaf 7; asking for the last leaf would be one more trap. */
	if (c & bit_XSAVE) {
		__cpuid_count(7, 0, a, b, c, d);
		f |= b & BIT_ERMS ? SFS_CPU_ERMS : 0;
		f |= b & bit_CLFLUSHOPT ? SFS_CPU_CLFLUSHOPT : 0;
		f |= b & bit_CLWB ? SFS_CPU_CLWB : 0;
		avx = avx && (b & bit_AVX2) && (c & bit_VPCLMULQDQ);
		f |= avx && (f & SFS_CPU_CRC32C) && (f & SFS_CPU_CLMUL) ? SFS_CPU_VCLMUL : 0;
	}
	return f;
}

#else

#include <elf.h>

/* Bits of AT_HWCAP, which are the kernel's interface. */
#define HAS_PMULL (1ul << 4)
#define HAS_CRC32 (1ul << 7)
#define HAS_DCPOP (1ul << 16)

/* The registers that say it are the kernel's; glibc since 2.16 and musl since 1.1.0 have this. */
extern unsigned long getauxval(unsigned long type) __attribute__((weak));

static uint32_t detect(void)
{
	const unsigned long has = getauxval ? getauxval(AT_HWCAP) : 0;

	return (has & HAS_CRC32 ? SFS_CPU_CRC32C : 0) | (has & HAS_PMULL ? SFS_CPU_CLMUL : 0) |
	       (has & HAS_DCPOP ? SFS_CPU_DCPOP : 0);
}

#endif

uint32_t sfs_cpu_detect(void)
{
	const uint32_t f = detect() | SFS_CPU_KNOWN;

	__atomic_store_n(&sfs_cpu_cache, f, __ATOMIC_RELAXED);
	return f;
}
