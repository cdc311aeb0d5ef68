/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a file once more without asking the agent, on our own ext4 (EXT4_IOC_REOPEN). */
#ifndef SFS_REOPEN_H
#define SFS_REOPEN_H

#include <stdint.h>

#include "files/inode.h"

#define SFS_NAMELESS 1u

/* A volume's files can be opened so. Until then all of this costs a load. */
void sfs_reopen_enable(void);
/* The hash of a name, odd; SFS_NAMELESS when it can't be read, is long, or nothing can be opened so. */
uint32_t sfs_reopen_name(int dirfd, const char *path);
/* The file that the name has led to. */
void sfs_reopen_note(const struct sfs_inode *in, uint32_t name);
/*
 * In the child of a fork, which the agent does not know yet: what it opens may be for a program without the library, and must be asked
 * about.
 */
void sfs_reopen_forget(void);
/* A new descriptor, or SFS_PASS: openat it is. flags: of open(2). Any thread, no lock held. */
int sfs_reopen(int dirfd, const char *path, int flags, uint32_t name);

#endif
