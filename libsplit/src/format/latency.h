/* SPDX-License-Identifier: Apache-2.0 */
/* How long served calls take: what a process counts in its log's first page, of the calls that it times (record/latency.h). */
#ifndef SFS_FORMAT_LATENCY_H
#define SFS_FORMAT_LATENCY_H

#include <stdint.h>

#define SFS_LATENCY_KINDS(X) X(append) X(overwrite) X(read) X(fsync)
enum sfs_latency_kind {
#define SFS_LATENCY_ENUM(name) SFS_LATENCY_##name,
	SFS_LATENCY_KINDS(SFS_LATENCY_ENUM)
#undef SFS_LATENCY_ENUM
		SFS_LATENCY_NKINDS
};

/* Bucket 0 ends at 32 ns; from there on two buckets double the time. The last one has no end. */
#define SFS_LATENCY_BUCKETS 48u
#define SFS_LATENCY_FIRST   5u /* log2 of where bucket 0 ends */

struct sfs_latency {
	uint64_t sum_ns[SFS_LATENCY_NKINDS];
	uint32_t bucket[SFS_LATENCY_NKINDS][SFS_LATENCY_BUCKETS];
};

static inline unsigned sfs_latency_bucket(uint64_t ns)
{
	unsigned log2, bucket;

	if (ns >> SFS_LATENCY_FIRST == 0)
		return 0;
	log2 = 63u - (unsigned)__builtin_clzll(ns);
	bucket = (log2 - SFS_LATENCY_FIRST) * 2 + (unsigned)(ns >> (log2 - 1) & 1) + 1;
	return bucket < SFS_LATENCY_BUCKETS ? bucket : SFS_LATENCY_BUCKETS - 1;
}

/* Where a bucket ends: all in it took less. Of the last one, where it begins to have no end. */
static inline uint64_t sfs_latency_bound(unsigned bucket)
{
	const unsigned half = bucket % 2, octave = bucket / 2;

	return half ? 3ull << (SFS_LATENCY_FIRST - 1 + octave) : 1ull << (SFS_LATENCY_FIRST + octave);
}

#endif
