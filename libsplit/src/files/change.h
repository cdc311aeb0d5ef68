/* SPDX-License-Identifier: Apache-2.0 */
/* Around a call by which the kernel changes a file. */
#ifndef SFS_CHANGE_H
#define SFS_CHANGE_H

#include "lease/ask.h"

struct sfs_inode;
/* What sfs_change_over() has to know. */
struct sfs_change {
	struct sfs_claim_held claim; /* the file has no grant: nobody gets one meanwhile */
	struct sfs_inode *in;	     /* it has one: no snapshot is taken meanwhile; with a reference */
};

/*
 * The kernel's view of the file is made true, for a call that changes its bytes; sfs_change_over() is to follow that
 * call, whatever it returned, and is sfs_changed() too. After an error there is nothing to end. made: the call has changed bytes; then they are
 * durable where the mode promises that, or it is the error.
 */
int sfs_true_to_change(int fd, struct sfs_change *c);
int sfs_change_over(int fd, struct sfs_change *c, bool made);

#endif
