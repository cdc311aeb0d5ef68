/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Relink (SplitFS paper section 3.3): move blocks from a staging file (the donor) into a target file so that they become
 * visible there, without copying where the file system can do that. Providers differ in what they need from the kernel.
 *
 * Used by the preloaded object as well as by the tools: no libc, no allocation; errors are negative errno values.
 */
#ifndef SFS_RELINK_H
#define SFS_RELINK_H

#include <stdint.h>

enum relink_provider {
	RELINK_NONE = 0,
	RELINK_XFS_EXCHANGE, /* XFS_IOC_EXCHANGE_RANGE, kernel 6.10 and XFS made with exchange=1 */
	RELINK_REFLINK,      /* FICLONERANGE, then punch the donor */
	RELINK_COPY,         /* any file system */
};

/* "xfs-exchange", "reflink", "copy", "none" */
const char *relink_provider_name(enum relink_provider p);

/*
 * Find the best provider that works on the file system of `dirfd` by trying it on two temporary files there (unlinked before
 * they are written). Returns a provider or a negative errno value. Leaves nothing behind.
 */
int relink_probe(int dirfd);

struct relink_range {
	int donor;           /* O_RDWR */
	int target;          /* O_RDWR */
	const void *staged;  /* where donor_off is mapped in this process, or NULL: used by `copy` */
	uint64_t donor_off;  /* bytes, multiple of 4096 except for the tail handled by copy */
	uint64_t target_off; /* bytes, congruent to donor_off modulo 4096 */
	uint64_t len;        /* bytes */
	uint64_t size;       /* the target's size must be at least this afterwards; never shrinks the target */
};

#define RELINK_DONOR_KEEPS 0x1 /* result flag: the donor's blocks are still allocated and may be written again */

/*
 * Make [donor_off, +len) of the donor the content of [target_off, +len) of the target. Whole blocks are moved; where
 * donor_off is not a multiple of 4096 or the length is not (and the range does not end at `size`), the edge is copied. Bytes of the target outside
 * the range keep their content, and the target is grown to `size` when it is smaller (bytes never written read as zeros).
 *
 * Returns a non-negative set of RELINK_* result flags, or a negative errno value. After an error the target may hold a prefix of
 * the new content, and the donor still holds everything that was not moved: calling again with the same arguments finishes
 * the work, except that a part already moved by exchange would be swapped back; therefore providers advance
 * *moved (bytes of the range finished, may be NULL) and the caller continues from there. Makes nothing durable: fsync the target for that.
 */
int relink(enum relink_provider provider, const struct relink_range *r, uint64_t *moved);

#endif
