/* SPDX-License-Identifier: Apache-2.0 */
/*
 * On persistent memory our fsync is a record and a fence, and the kernel's a commit of its journal: a file that is forced twice while it is written has
 * paid for its grant. One that lives for a few calls (a mail, a journal) shows that when it is too late, so it is learnt from those before it, by each
 * process, in posix.
 */
#ifndef SFS_FORCES_H
#define SFS_FORCES_H

#include "lease/volume.h"

#define SFS_FORCES_FILES 4u  /* so many are looked at first */
#define SFS_FORCES_OLD	 64u /* when there are so many they count half */

/* A relaxed word: one that is lost to another thread at the same moment does not matter. */
static inline void sfs_forces_note(struct sfs_volume *vol, uint32_t written, uint32_t twice)
{
	const uint32_t w = __atomic_load_n(&vol->forces, __ATOMIC_RELAXED);

	written += w >> 16;
	twice += w & UINT16_MAX;
	if (written >= SFS_FORCES_OLD) {
		written /= 2;
		twice /= 2;
	}
	__atomic_store_n(&vol->forces, written << 16 | twice, __ATOMIC_RELAXED);
}

/* Will a file that is written now be forced twice? So were three of four. Where nothing is counted, no. */
static inline bool sfs_forces_expected(const struct sfs_volume *vol)
{
	const uint32_t w = __atomic_load_n(&vol->forces, __ATOMIC_RELAXED);

	return w >> 16 >= SFS_FORCES_FILES && (w & UINT16_MAX) * 4 >= (w >> 16) * 3;
}

/* Is it counted, as it may pay to know? */
static inline bool sfs_forces_count(const struct sfs_volume *vol)
{
	return vol->dax && vol->mode == SFS_POSIX && !sfs.fsync_shows;
}

#endif
