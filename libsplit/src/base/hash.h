/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SFS_HASH_H
#define SFS_HASH_H

/* Multiplicative hashing of 64 bits: 2^64 over the golden ratio. The upper bits of the product are the good ones. */
#define SFS_HASH_FACTOR 0x9e3779b97f4a7c15ull

#endif
