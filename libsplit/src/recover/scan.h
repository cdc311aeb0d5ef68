/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a log from its newest record to its oldest, in windows of bounded size. */
#ifndef SFS_SCAN_H
#define SFS_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "format/layout.h"
#include "record/record.h"

struct sfs_scan {
	int fd;
	uint32_t seed;
	uint32_t slots;
	uint64_t epoch;

	/* A DONE, COMMIT or TRUNCATE record. */
	int (*done)(void *ctx, const struct sfs_record *rec);
	/* A whole operation: n WRITE records of one inode, oldest first. */
	int (*group)(void *ctx, const struct sfs_record *rec, unsigned n);
	void *ctx;

	uint64_t records;    /* valid ones */
	uint64_t incomplete; /* valid ones of operations of which a part is missing */
};

/* Call done and group for everything valid, newest first. A non-zero answer ends it and is returned. */
int sfs_scan(struct sfs_scan *s);

#endif
