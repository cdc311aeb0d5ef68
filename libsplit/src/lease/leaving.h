/* SPDX-License-Identifier: Apache-2.0 */
/* LEFT: to whom a file is left that can't be opened once more (calls/inherited.c). */
#ifndef SFS_LEAVING_H
#define SFS_LEAVING_H

#include "lease/volume.h"

/*
 * The agent is told of the file at fd; what: SFS_OPEN_LEFT or SFS_OPEN_SPAWNED. Returns when who stages for it has
 * given it up, when no agent is there, or at that time (sys_now_ns()); handlers run meanwhile. Touches nothing of the
 * process but the lowest free number of a descriptor, for as long as it takes: after vfork the memory is the
 * parent's, which has other descriptors.
 */
void sfs_leave(const struct sfs_volume *vol, int fd, unsigned what, int64_t until);

#endif
