/* SPDX-License-Identifier: Apache-2.0 */
/* A part of the persistence module (pm/pm.c) and nobody else's: it stores without telling the recorder. */
#ifndef SFS_PM_LINES_CRC_H
#define SFS_PM_LINES_CRC_H

#include <stddef.h>
#include <stdint.h>

#define PM_LINES_CRC 128u /* bytes that are copied and summed at a time: two lines */

/*
 * Copy n > 0 bytes, a multiple of PM_LINES_CRC, by non-temporal stores to dst, aligned to a line. Returns the CRC32C, begun with crc, of the
 * bytes that were stored. Only where the processor has SFS_CPU_VCLMUL.
 */
uint32_t pm_lines_crc(uint32_t crc, char *dst, const char *src, size_t n);

#endif
