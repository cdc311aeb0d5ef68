/* SPDX-License-Identifier: Apache-2.0 */
/* A write while it is copied (struct sfs_flight). inode.lock held for all of it. */
#ifndef SFS_FLIGHT_H
#define SFS_FLIGHT_H

#include "io/staged.h"

/* What its call keeps of it. */
struct sfs_flying {
	struct sfs_flight *flight;
	uint64_t number;
};

/* Has the file none, when those of this thread have ended that a handler has left by a jump? Lock held. */
bool sfs_flights_none(struct sfs_inode *in);
/* A flight of this thread. False: there are too many. */
bool sfs_flight_begin(struct sfs_inode *in, struct sfs_flying *fly);
/* Does what it relied on hold? If not it is to plan again. */
bool sfs_flight_holds(const struct sfs_flying *fly);
/* It is over, whatever has come of it: the staging files it copied to are the records' from here on, or nobody's. */
void sfs_flight_end(struct sfs_inode *in, const struct sfs_flying *fly);
/* It copies to the staging files of these extents. */
void sfs_flight_stages(const struct sfs_flying *fly, const struct sfs_staged *st);
/* It stores in place in [from, to): readers of these bytes look again until it ends. */
void sfs_flight_stores(struct sfs_inode *in, const struct sfs_flying *fly, uint64_t from, uint64_t to);

#endif
