/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One attempt to make a write: plan under inode.lock, copy with nothing held, end under inode.lock. What it has planned may not hold any more
 * when it ends; then nothing has happened, and it is attempted again.
 *
 *   state      what is true                                           goes on as
 *   PLANNED    place, flight and staging space are its own            COPIED; FAULTED where the program's memory is none
 *   COPIED     the bytes are in that place, durable where the mode    ENDED if the flight was not voided and the place holds;
 *              wants it before the record                             else AGAIN
 *   ENDED      records stored, block table and size say so
 *   AGAIN, FAULTED  flight over, staging space free with the next retire
 */
#ifndef SFS_ATTEMPT_H
#define SFS_ATTEMPT_H

#include "io/flight.h"

#define SFS_BOUNCE SFS_BLOCK

enum sfs_way { SFS_WAY_KERNEL, SFS_WAY_STORE, SFS_WAY_STAGE };

struct sfs_attempt {
	struct sfs_ofd *ofd;
	uint32_t number; /* of the description: another one later in its place is not this one */
	struct sfs_inode *in;
	int fd;
	const struct iovec *iov;
	int cnt;
	int flags; /* RWF_* */
	bool append;
	bool alone;	/* it needs the file to itself in every mode */
	bool part;	/* there will not be more staging space: write as much as fits, atomically */
	bool cut;	/* it ends here: the program's memory does, or the kernel wrote less */
	off_t pos;	/* where, if not at the end */
	bool at_offset; /* at the file offset, which becomes pos */
	off_t reserved; /* bytes by which the offset has been advanced already */
	uint64_t start; /* bytes of the iovec that are done */
	size_t n;	/* bytes of this operation */

	const void *buffer; /* they are a buffer of the program's, whose whole blocks become the file's: io/patch.c; NULL */
	uint8_t *mem;	    /* the n bytes in memory of ours: then it is made in one section of the lock */
	size_t mem_size;    /* of memory that is to be given back */
	off_t at;	    /* where it went */
	off_t last;	    /* bytes that went there */
	size_t by_kernel;   /* bytes of all operations that the kernel has written, and forced where that is asked for */
	unsigned waits;	    /* times that it has waited for another thread's store */

	enum sfs_way way;
	uint8_t *base;		       /* of the window that is stored to */
	bool cold;		       /* the kernel makes the store */
	uint64_t ahead_from, ahead_to; /* pages to be faulted in before a store in place */
	uint32_t forks;
	size_t head; /* of the bytes, those that are stored with the lock held: in `bounce` */
	struct sfs_flying fly;
	struct sfs_staged st;
	uint8_t bounce[SFS_BOUNCE];
};

void sfs_attempt_begin(struct sfs_attempt *a, struct sfs_ofd *ofd, int fd, const struct iovec *iov, int cnt, int flags);
/*
 * The bytes written, at least one; SFS_AGAIN, SFS_BUSY, SFS_GATHER; SFS_TURN: sfs_turn_wait(); -EAGAIN: a checkpoint is due; -ENOBUFS: no staging space; another negative errno
 * value. No lock held.
 */
ssize_t sfs_attempt(struct sfs_attempt *a);
/* by_kernel.c: the same by the kernel. It may be less where the bytes lie in several pieces; it ends there only if a->cut says so. */
ssize_t sfs_attempt_kernel(struct sfs_attempt *a);
/* In the child of a handler's fork: the parent makes it, and it counts as made. */
static inline bool sfs_attempt_is_parents(struct sfs_attempt *a)
{
	if (!sfs_is_child(a->forks))
		return false;
	a->last = (off_t)a->n;
	return true;
}
/* Where in the program's memory they begin. */
struct sfs_cursor sfs_attempt_bytes(const struct sfs_attempt *a);
/* Copy its bytes to memory of ours, where there is some. False: the first one can't be read. Fewer can: it is cut there. */
bool sfs_attempt_gather(struct sfs_attempt *a);
/* An operation is over: give such memory back. */
void sfs_attempt_forget(struct sfs_attempt *a);

/* prepare.c; inode.lock held. Where it begins, as far as that is known before it is planned. */
uint64_t sfs_attempt_about(const struct sfs_attempt *a);
/* Nothing that readers see has to change before the write itself. */
bool sfs_attempt_ready(const struct sfs_attempt *a);
/* Make it so. The lock was taken by sfs_inode_lock(). */
int sfs_attempt_make_ready(struct sfs_attempt *a);
/*
 * What a write at `off` needs before it is planned: the grant, a window, in strict and where it is `alone` the file to itself. 0; -EAGAIN: a checkpoint is due;
 * -ENOTSUP: it is the kernel's. No lock held.
 */
int sfs_attempt_prepare(struct sfs_ofd *ofd, struct sfs_inode *in, int fd, uint64_t off, bool alone);

/* May a write go in place, as far as it is known? inode.lock held. It says in in->counted.blocked when only records are in the way. */
bool sfs_in_place(struct sfs_inode *in, uint64_t pos, size_t n);

#endif
