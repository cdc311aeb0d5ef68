/* SPDX-License-Identifier: Apache-2.0 */
/* flock and lockf; fcntl's locks are in dup.c. */
#include "preload.h"

#include <sys/file.h>
#include <unistd.h>

WRAPPER int w_flock(int fd, int op)
{
	TRUE_THEN(fd, REAL(flock)(fd, op));
}
EXPORT(flock, w_flock);

/* Relative to the file offset, which is the kernel's once the file is true. */
WRAPPER int w_lockf(int fd, int cmd, off_t len)
{
	TRUE_THEN(fd, REAL(lockf)(fd, cmd, len));
}
EXPORT(lockf, w_lockf);
EXPORT(lockf64, w_lockf);
