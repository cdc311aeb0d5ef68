/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a log says about one file, for tests of the core that replay it with a few lines of their own. Not recovery: nothing is
 * distrusted, and nothing has survived a power loss.
 */
#ifndef SFS_TEST_CORE_LOG_H
#define SFS_TEST_CORE_LOG_H

#include "harness.h"

#include "base/crc32c.h"
#include "format/layout.h"
#include "recover/scan.h"

/* The record of a slot, as long as it has grown; good until 255 more are asked for. */
static inline const struct sfs_record *core_log_record(const struct sfs_log_header *h, uint32_t slot)
{
	static struct sfs_record copies[256];
	struct sfs_record *r = &copies[slot % 256];

	if (slot >= h->slots)
		return NULL;
	*r = ((const struct sfs_record *)((const uint8_t *)h + SFS_LOG_RECORDS_OFFSET))[slot];
	return sfs_record_valid(r, h->seed, h->epoch, slot) ? r : NULL;
}

/* All extents of the operation that the record in this slot belongs to are there. */
static inline bool core_log_complete(const struct sfs_log_header *h, uint32_t slot, const struct sfs_record *r)
{
	const uint32_t first = slot - r->group_pos, n = r->group_pos + r->group_left + 1u;

	if (r->group_pos > slot)
		return false;
	for (uint32_t i = 0; i < n; i++) {
		const struct sfs_record *o = core_log_record(h, first + i);

		if (!o || o->type != SFS_REC_WRITE || o->ino != r->ino || o->group_pos != i || o->group_left != n - 1 - i)
			return false;
	}
	return true;
}

/*
 * Call `apply` for each WRITE of the inode that counts, oldest first. `staged` maps a staging file. Returns how many there were. A
 * process that dies has stored the bytes before the record, so a wrong checksum is a bug.
 */
static inline unsigned core_log_each(const struct sfs_log_header *h, uint64_t ino, const uint8_t *(*staged)(uint32_t file),
				     void (*apply)(void *ctx, const struct sfs_record *r, const uint8_t *data), void *ctx)
{
	uint32_t from = 0;
	unsigned n = 0;

	for (uint32_t i = 0; i < h->slots; i++) {
		const struct sfs_record *r = core_log_record(h, i);

		if (r && r->type == SFS_REC_DONE && (r->ino == 0 || r->ino == ino))
			from = i + 1;
	}
	for (uint32_t i = from; i < h->slots; i++) {
		const struct sfs_record *r = core_log_record(h, i);
		const uint8_t *data;

		if (!r || r->type != SFS_REC_WRITE || r->ino != ino || !core_log_complete(h, i, r))
			continue;
		data = staged(r->stage_file) + r->stage_off;
		if (r->flags & SFS_REC_DATA_CRC)
			CHECK_EQ(crc32c(0, data, r->len), r->data_crc);
		apply(ctx, r, data);
		n++;
	}
	return n;
}

#endif
