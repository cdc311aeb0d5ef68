/* SPDX-License-Identifier: Apache-2.0 */
/* How a descriptor becomes an open file of a volume, and ceases to be one. */
#ifndef SFS_ATTACH_H
#define SFS_ATTACH_H

#include <stdint.h>
#include <sys/stat.h>

#include "files/inode.h"

/* --- ofd.c */

/* sfs_files.lock held: a description of the file, with one descriptor, at offset 0; NULL without memory. */
struct sfs_ofd *sfs_ofd_new_locked(struct sfs_inode *in, int flags);
/* Signals blocked. A descriptor of it is closed: what close(2) should report. */
int sfs_ofd_put(struct sfs_ofd *ofd);

/* --- adopt.c */

/* Of a description that is about to become known. */
enum sfs_offset {
	SFS_OFFSET_NEW,	   /* 0, and nobody shares it */
	SFS_OFFSET_MOVED,  /* the kernel has it, and nobody shares it */
	SFS_OFFSET_SHARED, /* other processes may */
};

/*
 * The description behind fd if it is a regular file of a volume: 1 when it is, 0 when not, or a negative errno value. It is the caller's to enter in
 * the table. Signals blocked.
 */
int sfs_attach(int fd, const struct stat *st, int flags, enum sfs_offset offset, struct sfs_ofd **ofd);
/* The file that fd, ours, was opened on: nothing of what is written to it may count before its name does. */
int sfs_attach_name(struct sfs_inode *in, int fd, int flags, const struct stat *st);
/* The file may be a volume's: its agent is waited for before anything is held. */
void sfs_attach_await(int fd, const struct stat *st);
/* fd has just been made, and leads to `what`. What a descriptor closed behind our back left there, or another thread since, is forgotten. */
void sfs_enter(int fd, struct sfs_ofd *what);
/* Nothing is known of fd. */
void sfs_detach(int fd);

#endif
