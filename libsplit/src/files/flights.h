/* SPDX-License-Identifier: Apache-2.0 */
/* Writes of one file that are being copied, and what readers see of them (flights.c; io/look.h). */
#ifndef SFS_FLIGHTS_H
#define SFS_FLIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "staging/pool.h"

/*
 * Writes that are being copied. Nobody holds a lock while memory of the program is read: a write plans under inode.lock, copies to a place
 * that nobody else uses, and becomes part of the file under inode.lock, if what it relied on still holds; otherwise it plans again. So a
 * flight may be voided at any time, by who changes what it relies on.
 */
#define SFS_FLIGHTS_MAX 16
struct sfs_flight {
	void *thread;	   /* whose it is */
	const void *frame; /* where that thread's stack was */
	uint64_t
		number; /* which of the file's flights, so that one which has been taken for dead is told from the next in its place */
	uint64_t from, to;		      /* bytes of the file that are stored in place; empty: none */
	uint64_t chunks[SFS_CHUNKS_MAX / 64]; /* staging files that are copied to: they are not given to others meanwhile */
	uint32_t blocks;		      /* of them */
	bool voided;
};

#define SFS_EVENTS 16u
struct sfs_flights {
	uint64_t last;	  /* number */
	uint32_t used;	  /* bits of those that are in use */
	uint32_t quiet;	  /* readers that have looked in vain: stores in place are made under inode.lock; atomic */
	uint32_t awaited; /* times that who is to give the file up has waited for a store in place */
	/*
	 * What readers see is being changed: by so many stores in place (SFS_CHANGES_STORES), by who has inode.lock (SFS_CHANGES_ALONE); and how
	 * often that has begun, in units of SFS_CHANGES_ONE. Stored under inode.lock only; see io/look.h.
	 */
	uint64_t changes;
	struct {
		uint64_t from, to;
	} event[SFS_EVENTS]; /* bytes that the last ones change */
	struct sfs_flight flight[SFS_FLIGHTS_MAX];
};
#define SFS_CHANGES_STORES 0xffu
#define SFS_CHANGES_ALONE  0x100u
#define SFS_CHANGES_ONE	   0x10000u

#endif
