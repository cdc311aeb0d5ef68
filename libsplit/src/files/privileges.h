/* SPDX-License-Identifier: Apache-2.0 */
/* Set-user-ID and set-group-ID bits and capabilities of a file, which end with the first write by another user. */
#ifndef SFS_PRIVILEGES_H
#define SFS_PRIVILEGES_H

#include <sys/stat.h>

#include "files/inode.h"

/* The file has been opened as fd with `flags`; st is what stat says of it. Sets in->privileged. No lock held. */
void sfs_privileges_look(struct sfs_inode *in, int fd, const struct stat *st, int flags);
/* Before a write that the kernel does not make, where in->privileged is set. inode.lock held exclusively, in->fd is there. */
void sfs_privileges_end(struct sfs_inode *in);

#endif
