/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operation log of this process: a table of 64-byte records, its tail only in memory (SplitFS paper section 3.3). Clearing the log is
 * one 8-byte store of the epoch.
 */
#ifndef SFS_LOG_H
#define SFS_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "base/protect.h"
#include "format/layout.h"
#include "record/record.h"

/* Slots that only a DONE, a COMMIT or a checkpoint may take. */
#define SFS_LOG_HEADROOM 64u

struct sfs_log {
	uint32_t id;
	int fd;
	uint8_t *map;
	size_t len;
	struct sfs_record *records;
	struct sfs_log_stats *counters; /* the log's, or some that nobody reads */
	uint32_t seed;
	uint32_t slots;	    /* atomic: it grows */
	uint32_t slots_max; /* the mapping is so long; behind `slots` it has nothing */
	uint64_t epoch;
	uint32_t tail;	    /* next free slot, atomic */
	uint32_t closed_at; /* what tail was when a checkpoint closed the log */
	/*
	 * Records need not be written back: in posix mode on an emulated volume they count while the boot lasts, and what they promise ends
	 * with the next fsync.
	 */
	bool cached;
	struct sfs_mutex checkpoint; /* one checkpoint at a time */
};

/* Empty slots that belong to one inode: an append must not pay a locked instruction for each. */
struct sfs_slots {
	uint32_t next;
	uint32_t end;
	uint32_t batch;
};

/* No log yet. */
void sfs_log_none(struct sfs_log *log);
/* Map the log that the agent has given; fd becomes the log's. dax, mode: of its volume. 0, or a negative errno value. */
int sfs_log_map(struct sfs_log *log, int fd, bool dax, enum sfs_mode mode);

/* n consecutive slots, or -EAGAIN: a checkpoint is due. `last_resort` may use the headroom. Any thread. */
int sfs_log_reserve(struct sfs_log *log, uint32_t n, bool last_resort, uint32_t *slot);
/* The same for records of one inode, from its own slots. The caller sees to it that it is alone. */
int sfs_log_slots(struct sfs_log *log, struct sfs_slots *own, uint32_t n, uint32_t *slot);
/* Will there be n slots for it, if nobody else takes them before? */
static inline bool sfs_log_has(const struct sfs_log *log, const struct sfs_slots *own, uint32_t n)
{
	return own->end - own->next >= n || __atomic_load_n(&log->tail, __ATOMIC_RELAXED) + n + SFS_LOG_HEADROOM <=
						    __atomic_load_n(&log->slots, __ATOMIC_RELAXED);
}
/* Its unused slots stay empty: before a DONE record, which retires what has a lower slot, and when the log is cleared. */
static inline void sfs_slots_drop(struct sfs_slots *own)
{
	*own = (struct sfs_slots){0};
}

/*
 * Complete the record, given as its eight words, and store it, not fenced. What grows is not even written back. Returns the CRC.
 */
uint32_t sfs_log_store(struct sfs_log *log, uint32_t slot, uint64_t word[8]);
/*
 * The same, of a record without seq and crc. The fields become words in registers: a word that is read while narrower stores to it are on
 * their way waits until those have gone, and they stand behind the data.
 */
static inline uint32_t sfs_log_write(struct sfs_log *log, uint32_t slot, const struct sfs_record rec)
{
	uint64_t word[8] = {
		(uint64_t)rec.type << 32 | (uint64_t)rec.flags << 40 | (uint64_t)rec.group_pos << 48 |
			(uint64_t)rec.group_left << 56,
		0,
		rec.ino,
		(uint64_t)rec.data_crc << 32 | rec.gen,
		rec.off,
		(uint64_t)rec.stage_file << 32 | rec.len,
		rec.stage_off,
		rec.size,
	};

	return sfs_log_store(log, slot, word);
}

/*
 * posix on persistent memory: everything written before survives a power loss when this returns. Bytes and records have been written
 * back; the first fence makes them persistent, and only then the record says so. ino 0: of all inodes, not fenced behind it.
 */
void sfs_log_commit(struct sfs_log *log, uint32_t slot, uint64_t ino, uint32_t gen);
/* Every earlier record of the inode is retired; durable: the file system's journal has committed what they stood for. Fenced. */
void sfs_log_done(struct sfs_log *log, uint32_t slot, uint64_t ino, uint32_t gen, bool durable);
/* The kernel is about to cut the file off there. Fenced. */
void sfs_log_cut(struct sfs_log *log, uint32_t slot, uint64_t ino, uint32_t gen, uint64_t size);

/* Has the agent made the log longer? Then there is more room from now on. Nobody else closes the log meanwhile. */
bool sfs_log_grown(struct sfs_log *log);
/* Close the log: every reservation fails from here on. */
void sfs_log_close(struct sfs_log *log);
/* The epoch changes: no record counts any more. Fenced. sfs_log_reopen() is to follow, when everybody knows. */
void sfs_log_clear(struct sfs_log *log);
void sfs_log_reopen(struct sfs_log *log);

/* Plain additions: two threads that share a place may lose one. */
static inline struct sfs_counter_place *sfs_counters_here(const struct sfs_log *log)
{
	return &log->counters->place[sfs_thread_hash() % SFS_COUNTER_PLACES];
}
#define count(vol, what, n) (sfs_counters_here(&(vol)->log)->what += (uint64_t)(n))

/* Those of the log's header, which is under the key: for calls beside which opening it is nothing. NULL: no log. */
static inline struct sfs_later_place *sfs_later_here(const struct sfs_log *log)
{
	struct sfs_log_header *h = (struct sfs_log_header *)log->map;

	return h ? &h->later[sfs_thread_hash() % SFS_LATER_PLACES] : NULL;
}
#define count_later(vol, what, n)                                                                                              \
	do {                                                                                                                   \
		struct sfs_later_place *later_here = sfs_later_here(&(vol)->log);                                              \
		const uint32_t later_rights = later_here ? sfs_protect_open() : 0;                                             \
                                                                                                                               \
		if (later_here) {                                                                                              \
			later_here->what += (uint64_t)(n);                                                                     \
			sfs_protect_close(later_rights);                                                                       \
		}                                                                                                              \
	} while (0)

/* One write of n bytes; append: it made the file longer. */
static inline void sfs_count_write(const struct sfs_log *log, bool append, uint64_t n)
{
	struct sfs_counter_place *here = sfs_counters_here(log);

	*(append ? &here->append_ops : &here->overwrite_ops) += 1;
	*(append ? &here->append_bytes : &here->overwrite_bytes) += n;
}

#endif
