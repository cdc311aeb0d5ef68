/* SPDX-License-Identifier: Apache-2.0 */
/* The agent of `splitfs run`: found when one serves the directory, started when none does. */
#ifndef SFS_LOCAL_AGENT_H
#define SFS_LOCAL_AGENT_H

#include <stdint.h>
#include <sys/types.h>

#include "control/root.h"
#include "control/unserved.h"

struct local_agent {
	char dir[PATH_MAX]; /* of its socket */
	pid_t pid;	    /* when we started it, else 0 */
	int users;	    /* lock that keeps a private agent running, or -1 */
};

/*
 * Find or start, with these options. 0, or a negative errno value with a sentence; it is an error when programs without the library are to be
 * refused, and the agent does not do that.
 */
struct local_agent_options {
	uint64_t pool_bytes, chunk_bytes;
	enum sfs_unserved unserved;
};
int local_agent_get(struct local_agent *la, const struct sfs_root *r, const struct local_agent_options *o, struct sfs_why *why);
/* We don't need it any more: waits until it has recovered what our command left, unless others still use it. */
void local_agent_put(struct local_agent *la, const struct sfs_root *r);

#endif
