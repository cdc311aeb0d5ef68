/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of the library itself, and the numbers they get. */
#ifndef SFS_FDS_OWN_H
#define SFS_FDS_OWN_H

#include <sys/resource.h>

#include "fds/table.h"

/* The process may have more descriptors than its soft limit says, until sfs_limit_set_back(). */
struct sfs_limit {
	struct rlimit was, now;
	bool lifted;
};

/*
 * Around a system call that makes so many descriptors for us: the program may have used up its numbers. Takes
 * sfs_fdt.numbers.
 */
void sfs_limit_lift(struct sfs_limit *l, int descriptors);
void sfs_limit_set_back(const struct sfs_limit *l);
/*
 * Between the two: the same file under a number of ours; closes fd. An error is passed on, without a better number fd
 * is kept.
 */
int sfs_limit_move(const struct sfs_limit *l, int fd);

/* The eventfd of the service thread. */
int sfs_event_fd(void);
/* In the child of a fork: the parent has that eventfd, too. Its number stays ours where numbers are scarce. */
void sfs_event_forget(int fd);
/* Close a descriptor with such a number. */
void sfs_private_close(int fd);

/*
 * The numbers that are kept for us where soft and hard limit are the same: so many, those in use among them. Nothing
 * is taken before the first descriptor of ours is.
 */
void sfs_numbers_keep(int n);
/*
 * Is there one for a descriptor that is about to come from the agent? If need be, a file does without its own
 * (sfs_numbers_less()).
 */
bool sfs_number_kept(void);
/*
 * What a call of the program's for a new descriptor has returned: -EMFILE, and we have given a number back? From then
 * on we keep those that we need and no others. file: it may be one of a file of a volume. No lock is held.
 */
bool sfs_numbers_back(long fd, bool file);
/* The program has closed descriptors: a number that we need and have not got is taken. */
void sfs_numbers_closed(void);
/* The program names newfd in dup2: true, where it is one that was only kept, and is the program's now. */
bool sfs_number_give_up(int newfd);

/* close_range(2) of the program's numbers in [first, last]: none becomes ours meanwhile. */
int sfs_close_all_but_ours(unsigned first, unsigned last);

/*
 * A descriptor of a file for us; -EMFILE: files have their share of the numbers, or the kernel gives none. beyond:
 * more than their share.
 */
int sfs_file_open(const char *path, int flags, bool beyond);
void sfs_file_close(int fd);

/*
 * files/scarce.c: some file gives up its descriptor. False: none can. No inode's lock is waited for; the caller may
 * hold one.
 */
bool sfs_numbers_less(bool busy_too);

/* files/scarce.c: numbers that must be left for calls to be served as their mode promises. */
struct sfs_need {
	bool strict; /* a volume has no other way to write than by a descriptor of ours */
	int files;   /* of strict volumes, that have no descriptor of ours yet */
	int staging; /* staging files that strict may want besides those that there are */
};
struct sfs_need sfs_numbers_needed(int limit);
/* files/scarce.c: staging files in which nothing is staged go back. False: there is none. */
bool sfs_numbers_unstaged(void);

/* In the child of a fork. */
void sfs_limit_child(void);

#endif
