/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of the library itself, and the numbers they get. */
#ifndef SFS_FDS_OWN_H
#define SFS_FDS_OWN_H

#include <sys/resource.h>

#include "fds/table.h"

/* The process may have more descriptors than its soft limit says, until sfs_limit_set_back(). */
struct sfs_limit {
	struct rlimit was, now;
	bool lifted;
};

/* Around a system call that makes a descriptor for us: the program may have used up its numbers. Takes sfs_fdt.numbers. */
void sfs_limit_lift(struct sfs_limit *l);
void sfs_limit_set_back(const struct sfs_limit *l);
/* Between the two: the same file under a number of ours; closes fd. An error is passed on, without a better number fd is kept. */
int sfs_limit_move(const struct sfs_limit *l, int fd);

/* For a descriptor that is there: the same file under a number of ours; closes fd. */
int sfs_high_fd(int fd);
/* Close a descriptor with such a number. */
void sfs_private_close(int fd);

/* In the child of a fork. */
void sfs_limit_child(void);

#endif
