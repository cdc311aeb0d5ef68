/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When does a grant pay? A file begins without one, and the kernel serves it. What it has done for us meanwhile is counted in struct
 * sfs_unheld; a grant is asked for when the calls that are likely to follow cost more than it does.
 */
#ifndef SFS_PAYS_H
#define SFS_PAYS_H

#include "files/inode.h"

/* Before one more read or write by the kernel. True: it pays, and has been got just now. */
bool sfs_grant_pays(struct sfs_ofd *ofd, int fd, bool writes);
/*
 * EXCLUSIVE at once, or nothing. inode.lock held exclusively by sfs_inode_lock(), and our descriptor is there. 1: it is granted; 0; SFS_BUSY: a thread of
 * this process is changing the file by the kernel, without a grant.
 */
int sfs_inode_try(struct sfs_inode *in);

#endif
