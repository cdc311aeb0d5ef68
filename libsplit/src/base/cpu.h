/* SPDX-License-Identifier: Apache-2.0 */
/* What this CPU can do, asked once: CPUID traps to the hypervisor in a virtual machine and then costs microseconds. */
#ifndef SFS_CPU_H
#define SFS_CPU_H

#include <stdint.h>

#define SFS_CPU_CLFLUSHOPT 0x01u
#define SFS_CPU_CLWB	   0x02u
#define SFS_CPU_SSE42	   0x04u /* crc32 */
#define SFS_CPU_PCLMUL	   0x08u
#define SFS_CPU_ERMS	   0x10u /* rep movsb is fast */
#define SFS_CPU_KNOWN	   0x80000000u

extern uint32_t sfs_cpu_cache __attribute__((visibility("hidden")));
uint32_t sfs_cpu_detect(void);

static inline uint32_t sfs_cpu(void)
{
	uint32_t f = __atomic_load_n(&sfs_cpu_cache, __ATOMIC_RELAXED);

	return __builtin_expect(f != 0, 1) ? f : sfs_cpu_detect();
}

#endif
