/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"

#include <cpuid.h>

#define BIT_ERMS (1u << 9)

uint32_t sfs_cpu_cache;

uint32_t sfs_cpu_detect(void)
{
	uint32_t a, b, c, d, f = SFS_CPU_KNOWN;

	__cpuid(1, a, b, c, d);
	f |= c & bit_SSE4_2 ? SFS_CPU_SSE42 : 0;
	f |= c & bit_PCLMUL ? SFS_CPU_PCLMUL : 0;
	/* A processor with XSAVE has leaf 13, so it has leaf 7; asking for the last leaf would be one more trap. */
	if (c & bit_XSAVE) {
		__cpuid_count(7, 0, a, b, c, d);
		f |= b & BIT_ERMS ? SFS_CPU_ERMS : 0;
		f |= b & bit_CLFLUSHOPT ? SFS_CPU_CLFLUSHOPT : 0;
		f |= b & bit_CLWB ? SFS_CPU_CLWB : 0;
	}
	__atomic_store_n(&sfs_cpu_cache, f, __ATOMIC_RELAXED);
	return f;
}
