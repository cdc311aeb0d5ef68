/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule by which a grant of a file pays, from what the kernel has done for it so far: what files/pays.c asks by, and what `splitfs advise`
 * foretells by.
 *
 * A grant costs a message, a descriptor, a mapping and for the first file of a process a staging file, together about as much as this many
 * calls of the kernel.
 */
#ifndef SFS_PAYS_RULE_H
#define SFS_PAYS_RULE_H

#include "lease/grant.h"

#define SFS_WRITES_MIN	 8u
#define SFS_WRITTEN_MIN	 (64u << 10)
#define SFS_WRITES_MANY	 64u
#define SFS_READS_MIN	 16u
#define SFS_READ_MIN	 (256u << 10)
#define SFS_READS_MANY	 128u
#define SFS_FORCED_MIN	 2u    /* on persistent memory, where our fsync is cheaper than the kernel's */
#define SFS_FORCED_PART	 16u   /* elsewhere: with an fsync after fewer writes than that the file stays the kernel's */
#define SFS_LARGE_MOVED	 4096u /* bytes of the average write */
#define SFS_LARGE_COPIED 6144u /* the same where relinking copies */

/* What of a volume the rule depends on. */
struct sfs_pays {
	bool dax, copies;
	bool forces; /* a file that is written is likely to be forced twice */
};

/* Where our fsync is the kernel's with a relink before it. */
static inline bool sfs_forced_often(const struct sfs_unheld *u, struct sfs_pays vol)
{
	return !vol.dax && (uint64_t)u->forced * SFS_FORCED_PART > u->writes;
}

/*
 * Without DAX the kernel's copy into its page cache is as fast as ours to a staging file; and blocks that were moved by reflink are not in the
 * cache, so that whoever reads them waits for the device.
 */
static inline bool sfs_large_writes(const struct sfs_unheld *u, struct sfs_pays vol)
{
	return !vol.dax && u->written >= u->writes * (uint64_t)(vol.copies ? SFS_LARGE_COPIED : SFS_LARGE_MOVED);
}

static inline bool sfs_writes_pay(const struct sfs_unheld *u, struct sfs_pays vol)
{
	if (vol.dax && (u->forced >= SFS_FORCED_MIN || vol.forces))
		return true;
	if (sfs_forced_often(u, vol) || sfs_large_writes(u, vol))
		return false;
	return u->writes >= SFS_WRITES_MANY || (u->writes >= SFS_WRITES_MIN && u->written >= SFS_WRITTEN_MIN);
}

/* A checkpoint of a database reads its whole log at once, and goes on writing and forcing it. */
static inline bool sfs_reads_pay(const struct sfs_unheld *u, struct sfs_pays vol)
{
	return !sfs_forced_often(u, vol) &&
	       (u->reads >= SFS_READS_MANY || (u->reads >= SFS_READS_MIN && u->read >= SFS_READ_MIN));
}

#endif
