/* SPDX-License-Identifier: Apache-2.0 */
/* Names that would go from one volume to another of the same device. */
#ifndef SFS_ACROSS_H
#define SFS_ACROSS_H

#include <stdbool.h>

/*
 * Would a rename or a link from one path to the other bring a file from one volume into another? Each volume has its own agent, so two
 * processes could stage one file. The kernel would not mind on one mount: the library says EXDEV, as between file systems, and programs copy
 * then. at_flags: AT_SYMLINK_FOLLOW, AT_EMPTY_PATH, of the first path.
 */
bool sfs_across(int fromfd, const char *from, int at_flags, int tofd, const char *to);

#endif
