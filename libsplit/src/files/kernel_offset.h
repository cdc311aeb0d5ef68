/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file offset that is the kernel's only because the kernel serves the file (SFS_OFF_LAZY in struct sfs_ofd), and how it becomes ours.
 */
#ifndef SFS_KERNEL_OFFSET_H
#define SFS_KERNEL_OFFSET_H

#include "files/inode.h"

/*
 * From here to sfs_kernel_offset_end() the kernel has the offset: whoever would make it ours waits. False: in a signal handler that has
 * interrupted a call.
 */
bool sfs_kernel_offset(struct sfs_ofd *ofd, int fd);
/* The same where it has it already; else false, and nothing has changed. */
bool sfs_kernel_offset_is(struct sfs_ofd *ofd);
/* Before a call of the kernel's that moves its offset and has no end that we see: where the kernel has it now, it keeps it. False: it is ours. */
bool sfs_kernel_offset_uncounted(struct sfs_ofd *ofd);
void sfs_kernel_offset_end(struct sfs_ofd *ofd);
/*
 * Whether the kernel has it only because it serves the file. How many calls use it is kept: one whose description was closed under it is counted still,
 * and takes itself off.
 */
void sfs_offset_lazy(struct sfs_ofd *ofd, bool yes);
/*
 * A descriptor of the description is being changed (fds/table.h). Calls that the kernel makes by it, at its offset, under a claim or counted in
 * in->by_kernel, are over when this returns, before it leads to another file; those that come now see that it is changing. One that a handler of this
 * thread has interrupted would never end: not for long.
 */
void sfs_kernel_offset_drain(struct sfs_ofd *ofd);
/* The offset becomes ours where only we use it and there is a grant now. */
void sfs_offset_take(struct sfs_ofd *ofd, int fd);
/* The same for a call that is to be served by us: the grant is asked for first, and waited for. 0, or -EINTR. No lock held. */
int sfs_offset_own(struct sfs_ofd *ofd, int fd);

#endif
