/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C (Castagnoli polynomial 0x1EDC6F41, reflected), as in RFC 3720 appendix B.4; hardware instruction where there is one. */
#ifndef SFS_CRC32C_H
#define SFS_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/*
 * CRC of n bytes continuing from crc. crc32c(0, "123456789", 9) is 0xe3069283, and
 * crc32c(crc32c(0, a, n), b, m) is the CRC of a followed by b (pre- and post-inversion are inside).
 */
uint32_t crc32c(uint32_t crc, const void *data, size_t n);

/* The table-driven version, for CPUs without the instruction and as the oracle of the tests. */
uint32_t crc32c_table(uint32_t crc, const void *data, size_t n);

#endif
