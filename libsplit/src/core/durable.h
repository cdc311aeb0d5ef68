/* SPDX-License-Identifier: Apache-2.0 */
/* Between fd.c, which opens files, and durable.c, which makes sure that they stay. */
#ifndef SFS_DURABLE_H
#define SFS_DURABLE_H

#include "core/state.h"

/* fd.c: is the open file or directory below the volume's mount path? For volumes that are a directory of something larger. */
bool sfs_below(const struct sfs_volume *vol, int fd);

/* durable.c: the application has just opened fd with these flags. st: the file before anything else happened to it */
int sfs_open_durable(struct sfs_volume *vol, int fd, int flags, const struct stat *st);

#endif
