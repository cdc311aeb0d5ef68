/* SPDX-License-Identifier: Apache-2.0 */
/* What this CPU can do, asked once: CPUID traps to the hypervisor in a virtual machine and then costs microseconds. */
#ifndef SFS_CPU_H
#define SFS_CPU_H

#include <stdint.h>

#define SFS_CPU_CLFLUSHOPT 0x01u /* x86 */
#define SFS_CPU_CLWB	   0x02u /* x86 */
#define SFS_CPU_CRC32C	   0x04u /* an instruction for that polynomial: SSE 4.2, the CRC extension of arm64 */
#define SFS_CPU_CLMUL	   0x08u /* carry-less multiplication of 64-bit words: pclmulqdq, pmull */
#define SFS_CPU_ERMS	   0x10u /* x86: rep movsb is fast */
#define SFS_CPU_DCPOP	   0x20u /* arm64: dc cvap, clean to the point of persistence */
#define SFS_CPU_VCLMUL	   0x40u /* x86: both, and vpclmulqdq and AVX2 in registers that the kernel saves */
#define SFS_CPU_KNOWN	   0x80000000u

extern uint32_t sfs_cpu_cache __attribute__((visibility("hidden")));
uint32_t sfs_cpu_detect(void);

static inline uint32_t sfs_cpu(void)
{
	uint32_t f = __atomic_load_n(&sfs_cpu_cache, __ATOMIC_RELAXED);

	return __builtin_expect(f != 0, 1) ? f : sfs_cpu_detect();
}

#endif
