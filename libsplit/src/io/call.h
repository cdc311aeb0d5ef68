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
 * had come after the other thread's.
 */
static inline __attribute__((always_inline)) ssize_t sfs_call_on(int fd, struct sfs_vector v, off_t off, int flags,
								 sfs_call *call)
{
	struct sfs_ofd *ofd;
	uint32_t number;
	ssize_t r;

	do {
		ofd = sfs_ofd_of(fd);
		if (!ofd)
			return SFS_PASS;
		number = load_acquire(&ofd->number);
		r = call(ofd, fd, v, off, flags);
	} while (unlikely(r == -EBADF) && (load_acquire(&sfs_fds[fd]) != ofd || load_acquire(&ofd->number) != number));
	return r;
}

#endif
