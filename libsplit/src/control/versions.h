/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ROOT/.splitfs/versions: which versions of the protocol the agent speaks, and whom it had to refuse because of that. Written by the agent
 * for `splitfs status`, which asks nobody.
 */
#ifndef SFS_CONTROL_VERSIONS_H
#define SFS_CONTROL_VERSIONS_H

#include "control/root.h"
#include "format/proto.h"

struct sfs_refused {
	struct sfs_versions agent; /* 0 to 0: it has not said */
	uint64_t total;		   /* HELLOs, since the agent started */
	/* The last one's: */
	struct sfs_versions client;
	int pid;
	uint64_t when; /* seconds since 1970 */
};

int sfs_refused_write(const struct sfs_root *r, const struct sfs_refused *v);
/* Zeros where there is no file, or one that says nothing. */
void sfs_refused_read(const struct sfs_root *r, struct sfs_refused *v);

#endif
