/* SPDX-License-Identifier: Apache-2.0 */
/* A read or write of the program's, from its descriptor to the description behind it. */
#ifndef SFS_CALL_H
#define SFS_CALL_H

#include "files/unheld.h"

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
