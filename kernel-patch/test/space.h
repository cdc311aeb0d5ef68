/* SPDX-License-Identifier: GPL-2.0 */
/* Quota and full file systems, for the cases that need them. */
#ifndef SPACE_H
#define SPACE_H

#include "testlib.h"

bool has_quota(void);
/* Ends the case where the file system has no quota, or the caller may not set it. */
void need_quota(void);
/* Bytes that are charged to a user, group or project; a hard limit for them, 0 for none. */
uint64_t quota_used(int type, unsigned int id);
void quota_limit(int type, unsigned int id, uint64_t bytes);
/* A file that is owned by and charged to a user, with so many blocks and a model of 256. */
struct file owned(const char *name, unsigned int user, uint64_t blocks);
/* relink_checked() as a user without the right to exceed limits. */
int relink_as(unsigned int user, struct file *target, struct file *donor, struct ext4_relink *r);
/* Gives a file all blocks that are free, behind its end; what the last call for some failed of. */
int take_all(int fd);
/* Fills the file system to the last block, or what has become free since it was full; and takes all of that away. */
void fill_up(void);
void fill_away(void);

/* Remounts with errors=continue or errors=remount-ro. */
void take_errors(const char *how);

#endif
