/* SPDX-License-Identifier: Apache-2.0 */
/*
 * splitfs_write_atomic(3): several ranges of one file or of several files of a volume, in one operation of the log. In strict alone.
 *
 *   state      what is true                                                            goes on as
 *   GATHERED   the bytes are in memory of ours                                         PREPARED
 *   PREPARED   each file has been ours, one after the other                            LOCKED
 *   LOCKED     the lock of each is held, in the order of their addresses, and all       RECORDED; PREPARED again where a file
 *              are still ours: nobody is waited for from here on                       went away, or space or slots are missing
 *   RECORDED   blocks, fence, records in slots of their own, fence; then the block
 *              tables and sizes
 */
#ifndef SFS_TOGETHER_H
#define SFS_TOGETHER_H

#include "io/attempt.h"

#define SFS_TOGETHER_RANGES 64
#define SFS_TOGETHER_FILES  8

struct sfs_part {
	struct sfs_ofd *ofd;
	struct sfs_inode *in;
	int fd;
	uint64_t off;
	size_t len;
	const uint8_t *bytes;
	bool keeps; /* PREPARED: privileges have been ended, and the file has them all the same */
};

struct sfs_party {
	struct sfs_inode *in;
	uint64_t *op;
	uint64_t size;	      /* afterwards */
	struct sfs_staged st; /* its extents are whole blocks, but for the end of the file */
};

struct sfs_together {
	struct sfs_volume *vol;
	int (*act)(struct sfs_together *t); /* LOCKED: 0, SFS_BUSY, or as sfs_together_write() */
	bool alone;			    /* in every mode the files are to be this process's alone */
	int parts, files;
	uint32_t records;
	uint32_t slot;
	uint64_t blocks; /* at most so many */
	struct sfs_part part[SFS_TOGETHER_RANGES];
	struct sfs_party file[SFS_TOGETHER_FILES];
};

/* From PREPARED on. 0, or a negative errno value: nothing has happened. */
int sfs_together_attempts(struct sfs_together *t);
/* together_write.c; all locks held. 0; -EAGAIN: the log is full; -ENOBUFS; another negative errno value: nothing has happened. */
int sfs_together_write(struct sfs_together *t);

#endif
