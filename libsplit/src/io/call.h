/* SPDX-License-Identifier: Apache-2.0 */
/* A call of the program's, from its descriptor to the description behind it. */
#ifndef SFS_CALL_H
#define SFS_CALL_H

#include "files/unheld.h"

/* The kernel is asked what fd leads to, whatever was known. calls/adopt.c */
void sfs_adopt(int fd);
/*
 * Is a call that returned r to be made again, as if it had come after what another thread has done to fd? dup2(2) leaves no moment in which a number
 * leads to nothing. The table tells the truth then, so that a call is made again once for each change.
 */
static inline bool sfs_gone(long r, int fd)
{
	if (likely(r != SFS_GONE))
		return false;
	sfs_adopt(fd);
	return true;
}

typedef ssize_t sfs_call(struct sfs_ofd *ofd, int fd, struct sfs_vector v, off_t off, int flags);

/* What the call returns for the description of fd; SFS_PASS where that is none of ours. */
static inline __attribute__((always_inline)) ssize_t sfs_call_on(int fd, struct sfs_vector v, off_t off, int flags,
								 sfs_call *call)
{
	struct sfs_ofd *ofd;
	ssize_t r;

	do {
		ofd = sfs_ofd_of(fd);
		if (!ofd)
			return SFS_PASS;
		r = call(ofd, fd, v, off, flags);
	} while (sfs_gone(r, fd));
	return r;
}

#endif
