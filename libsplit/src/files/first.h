/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SFS_FIRST_H
#define SFS_FIRST_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * The first few calls on a descriptor that nothing is known of but that this process has opened it (fds/table.h): where nobody has a grant of the file
 * the kernel serves them. off: -1 for the file offset. True: *r is the result. False: nothing was done.
 */
bool sfs_first_read(int fd, void *buf, size_t n, off_t off, ssize_t *r);
bool sfs_first_write(int fd, const void *buf, size_t n, off_t off, ssize_t *r);
bool sfs_first_lseek(int fd, off_t off, int whence, off_t *r);
bool sfs_first_fsync(int fd, bool data_only, int *r);
/* One of them that is the kernel's in any case. True: nobody has staged bytes of the file. */
bool sfs_first_true(int fd);

#endif
