/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SFS_TEST_POSIX_LOCK_H
#define SFS_TEST_POSIX_LOCK_H

#include "check.h"

#include <stdbool.h>

/* Is a lock on the first len bytes of "f", 0: on all of it, refused to another process? */
static inline bool lock_refused(off_t len)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct flock f = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = len};
		int fd = open("f", O_RDWR);

		CHECK(fd >= 0);
		_exit(fcntl(fd, F_SETLK, &f) == 0 ? 0 : errno == EAGAIN || errno == EACCES ? 7 : 1);
	}
	status = status_of(pid);
	CHECK(status == 0 || status == 7);
	return status == 7;
}

#endif
