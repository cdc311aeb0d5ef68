/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"

#include <cpuid.h>

uint32_t sfs_cpu_cache;

/* Are the SSE and AVX halves of the registers enabled in XCR0? */
static int os_saves_avx(void)
{
	uint32_t lo, hi;

	__asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	return (lo & 6) == 6;
}

uint32_t sfs_cpu_detect(void)
{
	uint32_t a, b, c, d, f = SFS_CPU_KNOWN;

	if (__get_cpuid(1, &a, &b, &c, &d)) {
		f |= c & bit_SSE4_2 ? SFS_CPU_SSE42 : 0;
		f |= c & bit_PCLMUL ? SFS_CPU_PCLMUL : 0;
		f |= (c & bit_OSXSAVE) && (c & bit_AVX) && os_saves_avx() ? SFS_CPU_AVX : 0;
	}
	if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
		f |= b & bit_CLFLUSHOPT ? SFS_CPU_CLFLUSHOPT : 0;
		f |= b & bit_CLWB ? SFS_CPU_CLWB : 0;
	}
	__atomic_store_n(&sfs_cpu_cache, f, __ATOMIC_RELAXED);
	return f;
}
