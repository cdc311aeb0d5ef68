/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which volume an open file is in. A volume is a directory of a device: several directories of one device may be volumes, and what is below
 * none of them is the kernel's. Entries of the configuration with one agent are one volume, at several places (a pod with sub-paths).
 */
#ifndef SFS_PLACE_H
#define SFS_PLACE_H

#include "lease/volume.h"

/* "/proc/self/fd/N"; buf has 32 bytes. */
void sfs_fd_path(char *buf, int fd);

/*
 * The volume that the open file, on device dev, is in, or NULL. Where the device has one volume only it is that, also for a file that is not
 * below: sfs_below() tells.
 */
struct sfs_volume *sfs_volume_at(dev_t dev, int fd);
/* Is the file in the part of the file system that is the volume? Only asked where the volume is a directory of something larger. */
bool sfs_below(const struct sfs_volume *vol, int fd);
/* Has the device more than one volume? */
bool sfs_volumes_share(dev_t dev);

#endif
