/* SPDX-License-Identifier: Apache-2.0 */
#include "record/record.h"

#include "base/crc32c.h"

uint32_t sfs_record_seal(uint64_t word[8], uint32_t seed, uint64_t epoch, uint32_t slot)
{
	const uint8_t flags = (uint8_t)(word[0] >> 40);
	uint32_t crc;

	word[1] = epoch << 32 | slot;
	crc = crc32c(crc32c(seed, (const char *)word + 4, 4), word + 1, sfs_record_covered(flags) - 8);
	word[0] |= crc;
	if (flags & SFS_REC_GROWS)
		word[7] = sfs_grow_word(crc, (uint32_t)word[5]);
	return crc;
}

/* What the record has grown to becomes its length. False: the word is not of this record. */
static bool grown(struct sfs_record *rec)
{
	const uint32_t len = (uint32_t)rec->size;

	if (rec->type != SFS_REC_WRITE || (rec->flags & (SFS_REC_DATA_CRC | SFS_REC_DURABLE)) || rec->group_pos > 0 ||
	    rec->group_left > 0 || rec->size != sfs_grow_word(rec->crc, len) || len < rec->len)
		return false;
	rec->len = len;
	rec->size = rec->off + len;
	return true;
}

bool sfs_record_valid(struct sfs_record *rec, uint32_t seed, uint64_t epoch, uint32_t slot)
{
	/* The comparison of 8 bytes sorts out nearly everything before a checksum is computed. */
	return rec->seq == (epoch << 32 | slot) && rec->type >= SFS_REC_WRITE && rec->type <= SFS_REC_TRUNCATE &&
	       rec->crc ==
		       crc32c(seed, (const char *)rec + sizeof(rec->crc), sfs_record_covered(rec->flags) - sizeof(rec->crc)) &&
	       (!(rec->flags & SFS_REC_GROWS) || grown(rec));
}
