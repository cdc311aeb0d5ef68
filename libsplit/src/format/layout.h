/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies on the medium, and nothing else. Every structure is little-endian, explicitly padded and checked for size; a
 * change of any of them is a change of SFS_FORMAT.
 *
 *   ROOT/.splitfs/volume          struct sfs_volume_header, one page
 *   ROOT/.splitfs/lock            flock()ed by whoever serves or recovers the volume
 *   ROOT/.splitfs/log/NNNNNN      operation log: header page, counters page, then 64-byte records; written by its client
 *   ROOT/.splitfs/log/NNNNNN.lease  who holds that log and what it may name; written only by the agent
 *   ROOT/.splitfs/pool/NNNNNN     staging files
 *   ROOT/.splitfs/owners          who stages what, of this boot (owners.h); written only by the agent
 *
 * The log is written by the application and therefore not trusted: recovery applies a record only to an inode, and only from a
 * staging file, that the lease names.
 */
#ifndef SFS_LAYOUT_H
#define SFS_LAYOUT_H

#include <stdint.h>

#include "format/latency.h"

#define SFS_FORMAT	 1u
#define SFS_CONTROL_DIR	 ".splitfs"
#define SFS_VOLUME_MAGIC 0x31534654494c5053ull /* "SPLITFS1" */
#define SFS_LOG_MAGIC	 0x31474f4c53464653ull /* "SFSLOG1" */
#define SFS_LEASE_MAGIC	 0x3153414553464653ull
#define SFS_BLOCK	 4096u
#define SFS_CHUNK_ALIGN	 (2ull << 20) /* bytes of a huge page: staging files are made of whole ones */

enum sfs_mode { SFS_POSIX = 0, SFS_SYNC = 1, SFS_STRICT = 2 };
#define SFS_MODES 3u

struct sfs_volume_header {
	uint64_t magic;
	uint32_t format;
	uint32_t crc; /* CRC32C of the whole structure with this field zero */
	uint8_t uuid[16];
	uint64_t created; /* seconds since 1970 */
	uint8_t pad[4096 - 40];
};
_Static_assert(sizeof(struct sfs_volume_header) == 4096, "volume header is one page");

/* Inodes that the client is changing by the kernel at this moment (owners.h). They mean nothing when it is gone. */
#define SFS_CLAIMS 31u
struct sfs_claim {
	uint64_t ino; /* 0: free */
	uint64_t pad[7];
};
struct sfs_claims {
	uint64_t unnamed; /* so many found no place: of any inode */
	uint64_t pad[7];
	struct sfs_claim claim[SFS_CLAIMS];
};
_Static_assert(sizeof(struct sfs_claims) == 2048, "claims take half a page");
#define SFS_CLAIMS_OFFSET  2048u
#define SFS_LATENCY_OFFSET 1024u

/* Threads of the client that the library has opening a file at this moment, by their numbers (gettid). 0: none. */
#define SFS_OPENINGS	   48u
#define SFS_OPENING_OFFSET 1856u
static inline uint32_t sfs_opening_place(uint32_t thread)
{
	return thread % SFS_OPENINGS;
}

/* Are stray stores of the client's program kept from what the library has mapped (base/protect.h)? */
enum sfs_protection {
	SFS_PROTECTION_OFF = 0, /* nobody asks for it */
	SFS_PROTECTION_ON = 1,
	SFS_PROTECTION_CANNOT = 2, /* it is asked for, and there is no protection key */
};

/*
 * Counters that came when those of page 1 had filled it. Who does not know them leaves them at zero and does not look at
 * them, so they need no version of the protocol.
 */
#define SFS_LATER_COUNTERS(X)                                                                                                  \
	X(patch_ops)                                                                                                           \
	X(patch_bytes)                                                                                                         \
	X(adopted_bytes)                                                                                                       \
	X(swap_ops)                                                                                                            \
	X(swap_bytes)                                                                                                          \
	X(atomic_ops)                                                                                                          \
	X(atomic_bytes)

#define SFS_COUNTER_FIELD(name) uint64_t name;
#define SFS_LATER_PLACES	14u
#define SFS_LATER_OFFSET	128u
struct sfs_later_place {
	SFS_LATER_COUNTERS(SFS_COUNTER_FIELD)
	uint64_t spare; /* for one more */
};
_Static_assert(sizeof(struct sfs_later_place) == 64, "a place is one line");

/*
 * Page 0 of a log. While a client holds the log it changes `epoch`, the claims, `protection`, `later` and `latency`, and
 * the agent makes the log longer: the file first, `slots` then.
 */
struct sfs_log_header {
	uint64_t magic;
	uint32_t format;
	uint32_t log_id;
	uint8_t uuid[16];    /* of the volume */
	uint8_t boot_id[16]; /* the boot the log is written in */
	uint32_t seed;	     /* initial value of every record's CRC: CRC32C of uuid and log_id */
	uint32_t slots;	     /* number of record slots */
	/*
	 * A record counts only when the upper half of its seq equals the epoch: storing epoch + 1 and fencing clears the log.
	 * 8-byte aligned, so the store is atomic (power-fail atomicity of an aligned 8-byte store).
	 */
	uint64_t epoch;
	uint8_t dax;	    /* 1: a fence makes data durable; 0: emulated, the log is void after a reboot */
	uint8_t protection; /* enum sfs_protection; for `splitfs status` */
	uint8_t pad0[2];
	uint32_t slots_max; /* the agent makes it so long at most; 0: it stays as it is */
	uint8_t pad1[SFS_LATER_OFFSET - 72];
	struct sfs_later_place later[SFS_LATER_PLACES];
	struct sfs_latency latency; /* statistics; zeros of who does not know it */
	uint8_t pad2[SFS_OPENING_OFFSET - SFS_LATENCY_OFFSET - sizeof(struct sfs_latency)];
	uint32_t opening[SFS_OPENINGS];
	struct sfs_claims claims;
};
_Static_assert(sizeof(struct sfs_log_header) == 4096, "log header is one page");

/* Operation counters of one client, plain stores. There is no room for more of them here. */
#define SFS_PAGE_COUNTERS(X)                                                                                                   \
	X(read_ops)                                                                                                            \
	X(read_bytes)                                                                                                          \
	X(append_ops)                                                                                                          \
	X(append_bytes)                                                                                                        \
	X(overwrite_ops)                                                                                                       \
	X(overwrite_bytes)                                                                                                     \
	X(staged_bytes)                                                                                                        \
	X(relink_ops)                                                                                                          \
	X(relink_bytes)                                                                                                        \
	X(fsync_ops)                                                                                                           \
	X(records)                                                                                                             \
	X(passthrough_ops)                                                                                                     \
	X(checkpoints)                                                                                                         \
	X(peek_ops)                                                                                                            \
	X(unpeek_ops)                                                                                                          \
	X(saved_bytes)

/* Page 1 of a log: added up, they are the client's. Each thread has a place, so that two seldom store to the same line. */
#define SFS_COUNTER_PLACES 32u
struct sfs_counter_place {
	SFS_PAGE_COUNTERS(SFS_COUNTER_FIELD)
};
_Static_assert(sizeof(struct sfs_counter_place) == 128, "a place is two lines");
struct sfs_log_stats {
	struct sfs_counter_place place[SFS_COUNTER_PLACES];
};
_Static_assert(sizeof(struct sfs_log_stats) == 4096, "counters take one page");

/* All of them, in the order of docs/architecture.md. Not as they lie on the medium. */
#define SFS_COUNTERS(X) SFS_PAGE_COUNTERS(X) SFS_LATER_COUNTERS(X)
struct sfs_counters {
	SFS_COUNTERS(SFS_COUNTER_FIELD)
};
#undef SFS_COUNTER_FIELD

#define SFS_LOG_RECORDS_OFFSET 8192u

enum sfs_record_type {
	SFS_REC_WRITE = 1, /* range [off, off+len) of inode (ino, gen) is at stage_off of staging file stage_file */
	/*
	 * Every earlier record of this log for (ino, gen) is retired: its bytes are in the file. With SFS_REC_DURABLE the file
	 * system's journal has committed that; without, it holds only while this boot lasts. ino 0 retires all inodes.
	 */
	SFS_REC_DONE = 2,
	/*
	 * posix: fsync. After a power loss every earlier WRITE of this log for (ino, gen) counts as if it were DURABLE: bytes and
	 * records were persistent before this record was stored. ino 0: of all inodes.
	 */
	SFS_REC_COMMIT = 3,
	/*
	 * sync, strict: the file (ino, gen) is being cut off at `size`; recovery finishes it. Its earlier records have been retired, and
	 * a DONE follows before the next one.
	 */
	SFS_REC_TRUNCATE = 4,
};

#define SFS_REC_DATA_CRC 0x01u /* data_crc holds CRC32C(0, data): record and data were persisted by one fence */
#define SFS_REC_DURABLE	 0x02u /* DONE: survives power loss. WRITE: fenced before the call returned (sync, strict) */
/*
 * WRITE of an append, not DURABLE and alone in its group: the appends that follow it in file and staging file make it longer and
 * not the log. `size` is a word of its own, not under the CRC, that says how long it is by now: see sfs_grow_word().
 */
#define SFS_REC_GROWS 0x04u
/* WRITE: the records of its group are of several files, those of one file next to each other (SFS_FEATURE_FILES). */
#define SFS_REC_FILES 0x08u

/*
 * One operation, or one extent of it. The records of an operation that needs several stand in consecutive slots; they count
 * only all together (group_pos of them before this one, group_left after).
 */
struct sfs_record {
	uint32_t crc; /* CRC32C, initial value log_header.seed, of bytes 4..63; 4..55 with SFS_REC_GROWS */
	uint8_t type;
	uint8_t flags;
	uint8_t group_pos;
	uint8_t group_left;
	uint64_t seq; /* epoch << 32 | slot */
	uint64_t ino;
	uint32_t gen; /* see identity.h */
	uint32_t data_crc;
	uint64_t off; /* bytes, in the target file */
	uint32_t len; /* bytes */
	uint32_t stage_file;
	uint64_t stage_off; /* bytes; congruent to off modulo SFS_BLOCK */
	uint64_t size;	    /* size of the target file after the operation, at least; with SFS_REC_GROWS the grow word */
};
_Static_assert(sizeof(struct sfs_record) == 64, "a record is one cache line");

/*
 * The length of a growing record in the lower half, and above it what ties it to this record: a word left over from another
 * record of the slot does not fit. It is stored after the bytes it stands for, in one aligned 8-byte store, so a process that dies
 * leaves the old length or the new one. It says nothing about what a power loss leaves, and counts only as its record does.
 */
static inline uint64_t sfs_grow_word(uint32_t crc, uint32_t len)
{
	return (uint64_t)((crc ^ len) * 0x9e3779b1u) << 32 | len;
}

#define SFS_GROUP_MAX	 255u
#define SFS_LEASE_CHUNKS 1000u

struct sfs_lease_inode {
	uint64_t ino;
	uint32_t gen;
	uint32_t valid; /* 1 */
};
_Static_assert(sizeof(struct sfs_lease_inode) == 16, "lease entries are dense");

/*
 * A spare log is one that a client has left: it is empty, and kept for the next client of the same user and pod. To an agent that knows of none
 * it is one whose holder is gone.
 */
enum sfs_held { SFS_HELD_NOT = 0, SFS_HELD_BY_CLIENT = 1, SFS_HELD_SPARE = 2 };

/* LOG.lease: one page of holder and staging files, then an array of struct sfs_lease_inode up to the end of the file. */
struct sfs_lease {
	uint64_t magic;
	uint32_t format;
	uint32_t log_id;
	uint32_t held;	/* enum sfs_held */
	int32_t pid;	/* of the client, in the agent's PID namespace */
	uint64_t start; /* start time of that process, field 22 of /proc/PID/stat */
	uint32_t uid;
	uint8_t mode;  /* enum sfs_mode */
	uint8_t quiet; /* 1: the client has not asked for any file yet, so it has no grant (SFS_FEATURE_QUIET) */
	uint8_t pad0[2];
	char comm[16];
	uint32_t nchunks;
	uint32_t ninodes;
	uint32_t chunks[SFS_LEASE_CHUNKS]; /* numbers of the staging files leased with this log */
	/*
	 * Not 0: the client may only read the volume. What it has as its log is memory of the agent's, the inode with this number, which takes no
	 * space of the volume however it is written to; the log file stays empty.
	 */
	uint64_t memory;
	uint8_t pad[4096 - 72 - 4 * SFS_LEASE_CHUNKS];
};
_Static_assert(sizeof(struct sfs_lease) == 4096, "lease header is one page");

#endif
