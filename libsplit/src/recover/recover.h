/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery: bring what a dead client recorded in its log into the files. Used by `splitfs recover` and by the agent. The log and
 * the staging files were writable for the client and are trusted in nothing: they are read by pread (they may shrink at any
 * time), each record is checked against the lease, which only the agent writes, and what does not fit is counted and left out.
 * docs/recovery.md has the rules and why repeating is safe.
 */
#ifndef SFS_RECOVER_H
#define SFS_RECOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "control/root.h"
#include "control/store.h"

struct sfs_recovery {
	uint64_t logs;	   /* looked at */
	uint64_t records;  /* with the right checksum, slot and epoch */
	uint64_t replayed; /* whose bytes are now in their file because of us */
	uint64_t bytes;	   /* copied */
	uint64_t
		ignored; /* without effect by rule: retired, operation not complete, file gone, not durable before a power loss */
	uint64_t files;	      /* changed */
	uint64_t quarantined; /* valid by checksum, but naming what they may not, or torn; never applied */
};

void sfs_recovery_add(struct sfs_recovery *to, const struct sfs_recovery *from);

/* How to find the files. */
struct sfs_targets {
	/*
	 * Open a regular file by identity, O_RDWR without O_APPEND: a descriptor (closed by the caller) or a negative errno
	 * value. NULL, or an answer of -ENOENT, makes recovery look for it below ROOT.
	 */
	int (*open)(void *ctx, uint64_t ino, uint32_t gen);
	void *ctx;
};

struct sfs_recover_how {
	const struct sfs_targets *targets; /* or NULL */
	bool durable;			   /* sync the volume before the log is cleared */
	bool later; /* a log that can't be recovered now is left, with a notice, and counts as a living process's: who calls comes back */
	bool copy; /* the volume is a copy: a process that holds a log of the original is not its own, and is not asked for */
	/* Called now and then, when not NULL, with the bytes and records done so far. */
	void (*progress)(void *ctx, const struct sfs_recovery *so_far);
	void *progress_ctx;
	/* Called, when not NULL, with a sentence about something that was found damaged and could not be used. */
	void (*notice)(void *ctx, const char *text);
	void *notice_ctx;
};

/*
 * Replay one log and clear it (its epoch advances; nothing in it counts any more). The files stay where they are. lease: of this
 * log. On failure the log is as it was and recovery may be repeated. Adds to *sum.
 */
int sfs_recover_log(const struct sfs_root *r, uint32_t id, const struct sfs_leasefile *lease, const struct sfs_recover_how *how,
		    struct sfs_recovery *sum, struct sfs_why *why);

/* Remove a cleared log with its lease and its staging files. */
int sfs_recover_discard(const struct sfs_root *r, uint32_t id, const struct sfs_leasefile *lease, struct sfs_why *why);

/* What a log counted and what its recovery did become part of the totals; the caller writes them. */
void sfs_totals_add(struct sfs_totals *t, const struct sfs_usage *usage, const struct sfs_recovery *s);

/*
 * Every log of the volume whose holder is gone; those of living processes are left to them, and their number is *living.
 * Counters go into the totals. The caller has the volume's lock.
 */
int sfs_recover_all(const struct sfs_root *r, const struct sfs_recover_how *how, struct sfs_recovery *sum, uint32_t *living,
		    struct sfs_why *why);

#endif
