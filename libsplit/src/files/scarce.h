/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of our own of files, where the program's numbers are all there are (fds/own.c). */
#ifndef SFS_SCARCE_H
#define SFS_SCARCE_H

#include "files/inode.h"

/*
 * inode.lock held: does anybody have a POSIX lock on the file, which has a descriptor of ours, or is a thread of this
 * process about to take one? It may be this process's: then closing our descriptor would drop it. The kernel is asked,
 * as the process may have had the lock since before an exec.
 */
bool sfs_may_be_locked(const struct sfs_inode *in);
/* Does this process have a lock on the file through fd? posix: one of fcntl(F_SETLK). In doubt it has. */
bool sfs_fd_locked(int fd, bool posix);
/* Who has a lock on the file of fd? The kernel names one: somebody's, and this process may have another all the same. */
enum sfs_lockers { LOCKED_BY_NOBODY, LOCKED_BY_SOMEBODY, LOCKED_HERE };
enum sfs_lockers sfs_lockers(int fd);
/* Has it a POSIX lock on the file of fd, which it may have had since before an exec? For less where nobody has one. */
bool sfs_locked_before(int fd);

/*
 * inode.lock held: a descriptor of our own, opened as `flags` says, of the file that the program's fd leads to.
 * Another file gives its own up for it where that is needed; in posix and sync only one that is not being written to.
 * -EMFILE: there is none.
 */
int sfs_scarce_open(const struct sfs_inode *in, int fd, int flags);
/* strict, and there is none: the call fails, and the user is told why. */
int sfs_scarce_refuse(const struct sfs_volume *vol);

#endif
