/* SPDX-License-Identifier: Apache-2.0 */
/* What functions answer beside a number and a negative errno value: here, so that no two are the same. None of them reaches the program. */
#ifndef SFS_RESULT_H
#define SFS_RESULT_H

#include <errno.h>
#include <stdbool.h>

/* Is err that of a full file system, or of a quota? */
static inline bool sfs_no_space(long err)
{
	return err == -ENOSPC || err == -EDQUOT;
}

enum {
	SFS_PEEK_COPY = -65541, /* of a snapshot: the caller is to copy it; libsplitfs.so knows it by this number */
	SFS_PASS = -65536,	/* not ours, or the kernel's view has been made true: make the real call */
	SFS_UNKNOWN,		/* this process does not have the file open */
	SFS_AGAIN,		/* something has changed meanwhile */
	SFS_BUSY,		/* another thread stores there in place: a little later */
	SFS_GATHER,		/* sfs_attempt_gather() first: all of it is stored with the lock held */
	SFS_TURN, /* another process is to give up the file first: wait with no lock held (sfs_turn_wait()), and ask again */
	SFS_GONE, /* another thread has closed the descriptor or made it another file's, and nothing has happened: look at it again (sfs_gone()) */
	PL_FAILED,	   /* errno says why */
	SFS_NOT_OF_VOLUME, /* the agent says that the file is none of the volume's (sfs_volume_connect()) */
};

#endif
