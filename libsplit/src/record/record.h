/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One record of the log: how it is made valid, and how it is told that it is. The library and recovery share this; what lies on the
 * medium is in format/layout.h.
 */
#ifndef SFS_RECORD_H
#define SFS_RECORD_H

#include <stdbool.h>
#include <stddef.h>

#include "format/layout.h"

/*
 * Give the record, as its eight words, its place in the log and its checksum. What grows gets its grow word, of the length that it has
 * now. Returns the checksum.
 */
uint32_t sfs_record_seal(uint64_t word[8], uint32_t seed, uint64_t epoch, uint32_t slot);

/* Does the record belong to this slot of this log? One that grows gets the length and size it has grown to. */
bool sfs_record_valid(struct sfs_record *rec, uint32_t seed, uint64_t epoch, uint32_t slot);

/* The bytes that the checksum covers end here; a grow word changes and is outside. */
static inline size_t sfs_record_covered(uint8_t flags)
{
	return flags & SFS_REC_GROWS ? offsetof(struct sfs_record, size) : sizeof(struct sfs_record);
}

#endif
