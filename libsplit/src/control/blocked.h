/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ROOT/.splitfs/blocked: who has waited too long for a file that another process does not give up. Written by the agent for
 * `splitfs status`, which asks nobody.
 */
#ifndef SFS_BLOCKED_H
#define SFS_BLOCKED_H

#include <stdint.h>

#include "control/root.h"

#define SFS_BLOCKED_MAX 64u /* more are counted and not listed */

struct sfs_blocked {
	int pid;     /* who waits */
	int held_by; /* for whom */
	uint64_t ino;
	uint64_t since; /* seconds since 1970 */
};

struct sfs_blocked_list {
	uint64_t total; /* since the agent started, also those that went on */
	uint32_t n;
	struct sfs_blocked v[SFS_BLOCKED_MAX];
};

int sfs_blocked_write(const struct sfs_root *r, const struct sfs_blocked_list *l);
/* An empty list where there is no file, or one that says nothing. */
void sfs_blocked_read(const struct sfs_root *r, struct sfs_blocked_list *l);

#endif
