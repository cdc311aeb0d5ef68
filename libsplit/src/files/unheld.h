/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that this process has open without a grant: the kernel serves them, after a look at the table (lease/ask.h), and nobody is
 * asked. Nothing here holds a lock or blocks a signal while it waits, or while the kernel is at work.
 *
 * Each function returns SFS_PASS when the call is not for it: there is a grant, or one has just been got because it pays now.
 */
#ifndef SFS_UNHELD_H
#define SFS_UNHELD_H

#include <sys/uio.h>

#include "files/inode.h"
#include "lease/ask.h"

/* The kernel serves it, if the table agrees. */
static inline bool sfs_unheld(const struct sfs_inode *in)
{
	return load_acquire(&in->vol->owners) && !sfs.grant_first && sfs_grant_deleg(&in->grant) == SFS_DELEG_NONE &&
	       in->life != LIFE_LOST;
}

/* What the mode promises the kernel keeps by itself: in posix; in sync on an emulated volume, which promises what was fsynced. */
bool sfs_kernel_may_write(const struct sfs_volume *vol);
/*
 * In posix an overwrite on persistent memory survives when it returns. Where the kernel makes it, the blocks may be of a relink, this process's or
 * another's, or in a hole, that no journal has yet, so it has O_DSYNC; for blocks that the journal has that costs nothing. Does the kernel find
 * these bytes in the file (in doubt it does)? What appends has nothing to lose.
 */
bool sfs_overwrites(int fd, off_t at, size_t n);

/*
 * What the kernel is to read or write. It alone looks at a vector of the program's, which may be anywhere; one buffer is described by memory of
 * ours, and the kernel gets it without a vector, which costs it less.
 */
struct sfs_vector {
	const struct iovec *iov;
	int cnt;
	bool one;
};

/* The offset has moved over these bytes, and other threads may have moved it on: they are this read's. */
struct sfs_taken {
	off_t at;
	ssize_t n;
};
/* SFS_AGAIN: the bytes in *taken are to be read again, as this process has got a grant meanwhile. */
/*
 * The kernel's write; off: -1 for the file offset. On persistent memory an overwrite survives a power loss when it returns, as in posix the library's does
 * (sfs_overwrites()).
 */
ssize_t sfs_kernel_write(const struct sfs_volume *vol, int fd, struct sfs_vector v, off_t off, int flags);
ssize_t sfs_unheld_read(struct sfs_ofd *ofd, int fd, struct sfs_vector v, off_t off, int flags, struct sfs_taken *taken);
ssize_t sfs_unheld_write(struct sfs_ofd *ofd, int fd, struct sfs_vector v, off_t off, int flags);
off_t sfs_unheld_lseek(struct sfs_ofd *ofd, int fd, off_t off, int whence);
int sfs_unheld_fsync(struct sfs_ofd *ofd, int fd, bool data_only);
/*
 * A call by which the kernel changes the file. ofd: of the program's descriptor fd, NULL: fd is one of ours. May be SFS_GONE.
 */
int sfs_unheld_change(struct sfs_inode *in, const struct sfs_ofd *ofd, int fd, int (*call)(int fd, const long *arg),
		      const long *arg);
/* The same around a call that somebody else makes, and sfs_unclaim(). */
int sfs_unheld_claim(struct sfs_inode *in, const struct sfs_ofd *ofd, int fd, struct sfs_claim_held *c);
/*
 * The agent could not be asked, and its table says that somebody may stage the file: what the kernel changed would be lost under that. Before
 * a change without a grant; inode lock held. 0, or -EIO.
 */
int sfs_untold_change(const struct sfs_inode *in);
/* The kernel's view is true for a call that only looks. */
int sfs_unheld_look(struct sfs_inode *in);

#endif
