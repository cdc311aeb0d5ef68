/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core of libadvise.so: it stands where the core of libsplit.so does, below the same wrappers and the same table of calls
 * (src/preload/calls.def), passes every call to the kernel, and counts what the other core would have done.
 */
#ifndef SFS_ADVISE_CORE_H
#define SFS_ADVISE_CORE_H

#include "advise.h"
#include "base/lock.h"
#include "base/sys.h"
#include "calls/calls.h"
#include "lease/pays_rule.h"

#include <time.h>

#pragma GCC visibility push(hidden)

struct adv_file_view {
	struct sfs_unheld tally; /* as files/unheld.c keeps it */
	bool granted;
	uint64_t staged; /* bytes since the last fsync */
};

struct adv_file {
	dev_t dev;
	ino_t ino;
	uint32_t refs; /* descriptors of this process */
	bool used;     /* the entry is somebody's */
	bool mapped;   /* stays when the file is closed */
	bool locked;
	enum adv_reason reason; /* ADV_FEW: none for good */
	uint32_t unsynced;	/* writes since the last fsync */
	uint32_t looks;		/* at the size; 0: it is to be looked at */
	off_t size;		/* about: others may change it */
	struct adv_file_view views[ADV_VIEWS];
	struct adv_file *next; /* of its hash */
};

/* What a descriptor leads to. */
struct sfs_ofd {
	struct adv_file *file;
	int flags; /* as F_GETFL says */
};

extern struct adv_report *adv;
extern struct sfs_mutex adv_lock; /* files and descriptors */

#define ADV_ADD(field, n) __atomic_fetch_add(&(field), (uint64_t)(n), __ATOMIC_RELAXED)
static inline void adv_add(struct adv_cell *c, uint64_t bytes, uint64_t cpu)
{
	ADV_ADD(c->calls, 1);
	ADV_ADD(c->bytes, bytes);
	ADV_ADD(c->cpu, cpu);
}

static inline uint64_t adv_clock(int clock)
{
	struct timespec t = {0, 0};

	sys_call2(SYS_clock_gettime, clock, (long)&t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static inline uint64_t adv_since(uint64_t ticks)
{
	return (adv_ticks() - ticks) * adv->tick / ADV_TICK;
}
static inline uint64_t adv_cpu(void)
{
	return adv_clock(CLOCK_THREAD_CPUTIME_ID);
}
/* files.c */
struct adv_file *adv_file_get_locked(const struct stat *st);
void adv_file_put_locked(struct adv_file *f);
/* An open file by what stat says of it, or NULL. */
struct adv_file *adv_file_find(const struct stat *st);
/* The kernel serves the file from now on. fd: to name an example by. */
void adv_hand_over(int fd, enum adv_reason reason);

/* Is the directory of this name the one that counts, or below it? */
bool adv_name_below(int dirfd, const char *path);

/* In the child of a fork, which is a process of its own. */
void adv_files_child(void);

/* count.c */
/* A call of n bytes is about to be made (placed: at off), and has returned r after so many nanoseconds. */
struct adv_io {
	struct sfs_ofd *ofd;
	enum adv_op op;
	off_t end;    /* where a write of no byte would end */
	bool durable; /* O_SYNC and its like */
	bool odd;     /* with flags that the library does not know */
};
void adv_io_begin(struct adv_io *io, int fd, bool writes, off_t off, int rwf);
void adv_io_end(const struct adv_io *io, int fd, ssize_t r, uint64_t took);
void adv_forced(struct adv_file *f, uint64_t cpu, uint64_t wall);
/* In the modes that ask with the first change, this is one. */
void adv_changed(struct adv_file *f);
void adv_closed(struct adv_file *f);

/* streams.c */
void adv_streams_begin(void);
/*
 * flush: the process ends by exit(3). stdio would write what it has buffered behind everybody's destructors, and nobody would see it.
 */
void adv_streams_end(bool flush);

/* policies.c: the process ends by _exit(2), abort(3) or the like, which drop what stdio has buffered. */
extern bool adv_abrupt;

#pragma GCC visibility pop

#endif
