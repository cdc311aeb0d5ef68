/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done with programs without the library that open a file for writing: one policy for each pod, by a file that the node
 * service writes, and one for all others. The file has a line for each pod: its UID and the policy's name.
 */
#ifndef SFS_AGENT_POLICY_H
#define SFS_AGENT_POLICY_H

#include "control/unserved.h"
#include "control/why.h"

struct pod_policy {
	char pod[SFS_UNSERVED_POD];
	enum sfs_unserved policy;
};

struct policies {
	enum sfs_unserved others;
	struct pod_policy *pods;
	uint32_t n;
};

/* Read the file. One that is missing names no pod. On an error what was known stays. */
int policies_load(struct policies *p, const char *path, struct sfs_why *why);
void policies_free(struct policies *p);
/* Of a pod's process; pod "": of one in no pod. */
enum sfs_unserved policies_of(const struct policies *p, const char *pod);
/* Is anybody not simply allowed? */
bool policies_any(const struct policies *p);

#endif
