/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptor table: what is known of each number. Only the pages in use are resident; the table covers every number that a descriptor
 * can have.
 */
#ifndef SFS_FDS_TABLE_H
#define SFS_FDS_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/lock.h"
#include "base/result.h"

#define SFS_POOL_NUMBERS (1 << 30) /* pools of buffers have smaller ones, and none is 0 */

struct sfs_ofd;
/*
 * By descriptor number; no table and length 0 before any volume is configured. An entry is NULL while the descriptor has not been
 * looked at, SFS_FOREIGN when it is no file of ours, a change (sfs_fds_changing()) while a thread closes it, makes it another description's or looks
 * at it for the first time, SFS_PRIVATE when it is a descriptor of the library itself.
 */
extern struct sfs_ofd **sfs_fds __attribute__((visibility("hidden")));
extern int sfs_fds_len __attribute__((visibility("hidden")));
/*
 * Has the application opened the descriptor by a name, and not used it yet? The table has no entry; at its first use the descriptor becomes
 * ours as any unknown one does, but its offset is still 0 and nobody shares it. So open and close cost what they cost the kernel.
 */
extern bool *sfs_fds_fresh __attribute__((visibility("hidden")));
/* What F_GETFL says of such a descriptor, and above how many calls the kernel has served (files/first.c). */
#define SFS_FIRST_CALL (1 << 27)
#define SFS_FIRST_MOST (6 * SFS_FIRST_CALL)
/* What those calls were, between the two. */
#define SFS_FIRST_WRITTEN (1 << 24)
#define SFS_FIRST_FORCED  (1 << 25)
#define SFS_FIRST_TWICE	  (1 << 26)
#define SFS_FIRST_FLAGS	  (SFS_FIRST_WRITTEN - 1) /* those of F_GETFL */
extern int *sfs_fds_flags __attribute__((visibility("hidden")));
/* Which opening of the number it is, and the inode's number once that is known: 2^24 openings later it is told apart by what else is looked at. */
#define SFS_FIRST_INO	  ((1ull << 40) - 1)
#define SFS_FIRST_OPENING (~SFS_FIRST_INO)
extern uint64_t *sfs_fds_first __attribute__((visibility("hidden")));
/* Such calls that are under way, and may move the offset, and in units of SFS_FIRST_WRITE those of them that are claimed writes; atomic. */
#define SFS_FIRST_WRITE (1 << 16)
extern int *sfs_fds_calls __attribute__((visibility("hidden")));

/* Known not to be a file of ours. */
#define SFS_FOREIGN ((struct sfs_ofd *)1)
/* A descriptor of the library itself: the application never got that number. Below every pointer. */
#define SFS_PRIVATE ((struct sfs_ofd *)0xffff)

/*
 * What the number leads to is about to be another thing, or known: calls by it wait, and look again. The thread has its signals blocked. Each change
 * has a value of its own, so that a thread which is late, and whose number has been closed and taken again meanwhile, does not end another's.
 */
static inline bool sfs_fds_changing(const struct sfs_ofd *entry)
{
	return entry > SFS_FOREIGN && entry < SFS_PRIVATE;
}

struct sfs_fdt {
	struct sfs_mutex numbers; /* RLIMIT_NOFILE is lifted, from soft_limit */
	uint64_t soft_limit;	  /* 0: it is not */
	int fd_max;		  /* no descriptor above was ever ours */
	int known_max;		  /* nothing but SFS_PRIVATE was ever known of one above */
	int private_min;	  /* the library's own have had numbers from here on */
	int private_max;	  /* and up to here */
};
extern struct sfs_fdt sfs_fdt __attribute__((visibility("hidden")));

/* 0, or a negative errno value. */
int sfs_fds_make(void);
/* What was known before. */
struct sfs_ofd *sfs_fds_know(int fd, struct sfs_ofd *what);
/*
 * Signals blocked. From here to sfs_fds_changed() no other thread changes what the number leads to, nor looks. *was: what was known before. NULL: it
 * is SFS_PRIVATE, and nothing has begun. Between them no other number is waited for, and no lock is taken that is held where descriptors are looked at.
 */
struct sfs_ofd *sfs_fds_change(int fd, struct sfs_ofd **was);
/* The same if nothing but `was` is known; NULL otherwise. Never waits. */
struct sfs_ofd *sfs_fds_change_from(int fd, struct sfs_ofd *was);
/* What is known of the number, after the end of a change that is under way. */
struct sfs_ofd *sfs_fds_settled(int fd);
/* The end of that change. False: the number was closed unseen and is taken again, and what is known of it now stays. */
bool sfs_fds_changed(int fd, struct sfs_ofd *change, struct sfs_ofd *what);
/*
 * The number is about to be another file's, and no thread begins a first write by it any more: those that are under way end, or it is given up. Else one
 * would go to a file that it is not claimed for.
 */
void sfs_fds_written(int fd);
/* Every change that is under way has ended. */
void sfs_fds_await(void);
/* In the child of a fork: those who were changing numbers are not here. */
void sfs_fds_forget(void);
/* The application has opened fd with these flags, by a name, and has not used it yet. */
void sfs_fds_opened(int fd, int flags);
/* The number is a descriptor of the library itself. */
void sfs_fds_private(int fd);
/* Descriptors that the application has opened and not used yet are about to be shared with another process. */
void sfs_fds_shared(void);

/* Closing a number that the application never got is EBADF. */
static inline bool sfs_fd_is_private(int fd)
{
	return (unsigned)fd < (unsigned)sfs_fds_len && load_acquire(&sfs_fds[fd]) == SFS_PRIVATE;
}

/* Has this process opened fd, and is nothing more known of it? What others have done to the file the agent's table tells then. */
static inline bool sfs_only_opened(int fd)
{
	return (unsigned)fd < (unsigned)sfs_fds_len && __atomic_load_n(&sfs_fds_fresh[fd], __ATOMIC_ACQUIRE) &&
	       !__atomic_load_n(&sfs_fds[fd], __ATOMIC_ACQUIRE);
}

/* Its open file description when that is known already, or NULL. */
static inline struct sfs_ofd *sfs_known(int fd)
{
	struct sfs_ofd *o;

	if ((unsigned)fd >= (unsigned)sfs_fds_len)
		return NULL;
	o = __atomic_load_n(&sfs_fds[fd], __ATOMIC_ACQUIRE);
	return o > SFS_PRIVATE ? o : NULL;
}

#endif
