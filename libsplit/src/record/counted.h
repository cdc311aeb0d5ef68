/* SPDX-License-Identifier: Apache-2.0 */
/* Which records of a file count, and where the bytes are that they name; part of an inode, under its lock. */
#ifndef SFS_COUNTED_H
#define SFS_COUNTED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/state.h"

/*
 * What a power loss leaves of the records that count; a process that dies leaves all of them.
 *
 *   RECORDS_NONE      none counts: the file is what the kernel has
 *   RECORDS_VOLATILE  nothing: posix before a COMMIT, and emulated volumes
 *   RECORDS_DURABLE   all: sync, strict, and posix behind a COMMIT
 *   RECORDS_BOTH      posix: those before the last COMMIT
 *
 * Which says two things: is there one that a power loss leaves, and one that it does not.
 */
enum sfs_records { RECORDS_NONE = 0, RECORDS_VOLATILE = 1, RECORDS_DURABLE = 2, RECORDS_BOTH = 3 };

static const uint8_t sfs_records_next[] = {
	[RECORDS_NONE] = SFS_TO(RECORDS_VOLATILE) | SFS_TO(RECORDS_DURABLE),
	[RECORDS_VOLATILE] = SFS_TO(RECORDS_NONE) | SFS_TO(RECORDS_DURABLE),
	[RECORDS_DURABLE] = SFS_TO(RECORDS_NONE) | SFS_TO(RECORDS_BOTH),
	[RECORDS_BOTH] = SFS_TO(RECORDS_NONE) | SFS_TO(RECORDS_DURABLE),
};

/*
 *   RELINKED_NOTHING  what the records name is in staging files
 *   RELINKED_MOVED    some of it is in the file, and where it was there are holes: "moved already" for whoever replays
 *   RELINKED_KEPT     some of it is in the file and in the staging file, where replaying would find it
 *
 * Where anything is relinked no store goes in place, because replaying might undo it.
 */
enum sfs_relinked { RELINKED_NOTHING, RELINKED_MOVED, RELINKED_KEPT };

static const uint8_t sfs_relinked_next[] = {
	[RELINKED_NOTHING] = SFS_TO(RELINKED_MOVED) | SFS_TO(RELINKED_KEPT),
	[RELINKED_MOVED] = SFS_TO(RELINKED_NOTHING) | SFS_TO(RELINKED_KEPT),
	[RELINKED_KEPT] = SFS_TO(RELINKED_NOTHING),
};

struct sfs_counted {
	enum sfs_records records;
	enum sfs_relinked relinked;
	bool blocked; /* a store had to be staged because of `relinked` */
};

static inline void sfs_records_set(struct sfs_counted *c, enum sfs_records to)
{
	if (c->records != to)
		sfs_check_next(sfs_records_next, c->records, to);
	/* Whether a file has any is looked at without its lock, for a guess. */
	__atomic_store_n(&c->records, to, __ATOMIC_RELAXED);
}

static inline void sfs_relinked_set(struct sfs_counted *c, enum sfs_relinked to)
{
	if (c->relinked != to)
		sfs_check_next(sfs_relinked_next, c->relinked, to);
	c->relinked = to;
}

static inline bool sfs_records_any(const struct sfs_counted *c)
{
	return __atomic_load_n(&c->records, __ATOMIC_RELAXED) != RECORDS_NONE;
}

/* Is there one that a power loss ends? */
static inline bool sfs_records_volatile(const struct sfs_counted *c)
{
	return __atomic_load_n(&c->records, __ATOMIC_RELAXED) & RECORDS_VOLATILE;
}

/* Is there one that a power loss leaves? */
static inline bool sfs_records_durable(const struct sfs_counted *c)
{
	return __atomic_load_n(&c->records, __ATOMIC_RELAXED) & RECORDS_DURABLE;
}

#endif
