/* SPDX-License-Identifier: Apache-2.0 */
/* A read or write of the program's, from its descriptor to the description behind it. */
#ifndef SFS_CALL_H
#define SFS_CALL_H

#include <errno.h>

#include "files/unheld.h"

typedef ssize_t sfs_call(struct sfs_ofd *ofd, int fd, struct sfs_vector v, off_t off, int flags);

/*
 * What the call returns for the description of fd; SFS_PASS where that is none of ours. -EBADF may mean that another thread has made the
 * descriptor another description's, or closed it, in the middle: dup2(2) leaves no moment in which it is none, so the call is made again, as if it
 * had come after the other thread's. It may have become the same one's again, too; then, as nothing shows, a few times at most.
 */
#define SFS_CALL_TRIES 3
static inline __attribute__((always_inline)) ssize_t sfs_call_on(int fd, struct sfs_vector v, off_t off, int flags,
								 sfs_call *call)
{
	struct sfs_ofd *ofd;
	uint32_t number;
	bool changed;
	int tries = SFS_CALL_TRIES;
	ssize_t r;

	do {
		ofd = sfs_ofd_of(fd);
		if (!ofd)
			return SFS_PASS;
		number = load_acquire(&ofd->number);
		r = call(ofd, fd, v, off, flags);
		if (likely(r != -EBADF))
			break;
		changed = load_acquire(&sfs_fds[fd]) != ofd || load_acquire(&ofd->number) != number;
	} while (changed || --tries > 0);
	return r;
}

#endif
