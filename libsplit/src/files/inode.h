/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that this process has open on our volumes: inodes, made of what each room below keeps of a file, and open file descriptions.
 *
 * Locks, in the order in which they are taken:
 *   log.checkpoint     one checkpoint at a time
 *   inode.lock         size, block table, window, grant of one file. Held for the plan and the end of a write, and for as long as the kernel
 *                      changes the file; never while memory of the program is read or written, and by no reader. Who writes to several
 *                      files in one step (io/together.h) takes those of all, in the order of their addresses
 *   ofd.lock           file offset of one open file description; short
 *   sfs_files.lock     descriptor table changes, inode hash, the slabs (open, close, dup; never on read or write)
 *   agent.request      one request to the agent and its reply
 *   sfs_buffer_table.lock  short; what is copied before a relink is copied under it
 *   agent.conn, pool.lock, sfs_fdt.numbers, sfs_pin_table.lock  short, nothing is waited for under them
 * Nobody waits for a staging file (pool.lease, then request) with an inode's lock: another process may need this one to give up
 * that inode before the agent answers what is in front. An ACQUIRE is answered at once, with the inode's lock held: where others have the
 * file the answer is that its turn is to come, which is waited for with nothing held and no signal blocked (turn.c).
 * The service thread answers revocations: it only ever tries inode.lock and log.checkpoint, and never takes
 * agent.request while there is an agent.
 *
 * Objects live in slabs that are never unmapped: a stale pointer finds an object of the same type, and `fds[fd] == ofd` with
 * the inode's lock held proves that it is the right one. A reader without it looks again behind its copy.
 */
#ifndef SFS_INODE_H
#define SFS_INODE_H

#include <fcntl.h>
#include <time.h>

#include "base/lock.h"
#include "fds/own.h"
#include "fds/table.h"
#include "files/flights.h"
#include "files/life.h"
#include "lease/place.h"
#include "lease/volume.h"
#include "record/counted.h"
#include "staging/staging.h"
#include "window/window.h"
#include "zerocopy/buffers.h"
#include "zerocopy/pins.h"

/*
 * posix: the record whose range ends at the end of the file in a staged block, and the rest of that block. Appends
 * go there and make the record longer, and nothing else has to be looked at: whatever could be in the way (a flush, another
 * write, a look at the times, RLIMIT_FSIZE close to the end of the file) ends it. record is NULL then.
 */
struct sfs_grow {
	struct sfs_record *record;
	uint32_t crc;
	uint8_t *base;	/* where the record's first byte is staged */
	uint8_t *at;	/* where the next byte goes */
	uint8_t *dirty; /* bytes before it have been written back */
	uint8_t *limit; /* end of that block */
	uint64_t ops;	/* appends that are not in the counters yet */
};

struct sfs_inode {
	struct sfs_mutex lock;
	uint32_t awaited;	/* threads wait for their turn to have it (turn.c): a futex */
	struct sfs_volume *vol; /* a call whose descriptor was closed under it looks at it: never NULL again */
	struct sfs_inode *next; /* hash chain or free list */
	dev_t dev;
	ino_t ino;
	uint32_t gen;
	uint32_t refs; /* open file descriptions, and who works with the inode for a moment; under sfs_files.lock, like walks */
	uint32_t walks; /* those of sfs_inodes_each(): they do not make the file an open one */
	uint32_t opens; /* open file descriptions; under sfs_files.lock */
	bool unsure;	/* there were none: its number may be another file's by now (sfs_inode_renew); atomic */
	enum sfs_life life;
	enum sfs_server server;
	uint32_t leasing; /* threads that are asking the kernel for one; under the lock */
	bool writable;	  /* fd is O_RDWR */
	bool busy;	  /* staged to since the service thread last looked */
	bool fsyncs;	  /* the application has called fsync: it will again */
	bool privileged;  /* it may have set-ID bits or capabilities, which a write ends (files/privileges.h) */
	bool locked;	  /* the process has had a POSIX lock on it: closing any descriptor of the file would drop that */
	uint32_t locking; /* calls under way that may take one, which may never return; under the lock */
	bool named;	  /* sync, strict: the file's name is known to be durable */
	bool kdirty; /* only fsync(2) makes durable what the kernel has done to the file: always so when it has just been opened */
	bool touched;	 /* stored to since the kernel last knew: mtime is due */
	int fd;		 /* our own descriptor, kept until the last close: closing one drops the process's POSIX locks */
	int fd_readonly; /* the one it replaced when the file was first opened read-only, or -1 */

	/*
	 * Calls that the kernel makes for us on this file now: nothing is staged, and no other process gets the file to itself, until they have
	 * ended. A call is marked meanwhile (sfs_op_begin()), so that no handler leaves it by a jump.
	 */
	uint32_t by_kernel;
	uint32_t wanted; /* who waits for the end of those that read; atomic */
	/*
	 * posix: bytes that every thread can see, below the size, and the lowest bits of `changes` in units that they go with. An append is not
	 * fenced; a thread that reads what another one has appended sees to it (io/look.h).
	 */
	uint64_t visible;
	uint64_t size;	/* what the application sees */
	uint64_t ksize; /* what the kernel sees */

	struct sfs_park park;
	struct sfs_grant grant;
	struct sfs_unheld unheld;
	struct sfs_window window;
	struct sfs_staging staging;
	struct sfs_counted counted;
	struct sfs_slots slots;
	struct sfs_grow grow;
	struct sfs_flights flights;

	/* Behind what every call looks at. */
	struct sfs_pins pins;
	uint32_t changing;    /* calls under way that may change its bytes without our seeing it: no snapshot is taken */
	uint32_t peeks;	      /* in vain, since the last snapshot: io/peek.c */
	struct timespec told; /* mtime, as stat has told it last while bytes were staged; under the lock */
};

/* Inodes are never given back: a pointer to one stays a pointer to one. */
#define SFS_SLAB_INODES (((256ul << 10) - 2 * sizeof(void *)) / sizeof(struct sfs_inode))
struct sfs_slab {
	struct sfs_inode inodes[SFS_SLAB_INODES];
	uint64_t used;
	struct sfs_slab *next;
};

/* Each inode of the slab that has been a file's; the others' memory has not been touched, and costs nothing. */
#define sfs_slab_each(inode, s)                                                                                                \
	for (struct sfs_inode *inode = (s)->inodes, *inode##_end = inode + load_acquire(&(s)->used); inode < inode##_end;      \
	     inode++)

#define SFS_OFF_LAZY  0x80000000u
#define SFS_OFF_MOVES 0x40000000u /* it is being made ours at this moment */
#define SFS_OFF_CALLS 0x3fffffffu
/*
 * Has a call that is in no count of `lazy` been let through to the kernel's offset? Then it may be on its way still, and only a process with one thread
 * makes the offset its own. NO -> YES with such a call, YES -> KEPT when there were several threads: nobody looks again.
 */
enum sfs_uncounted { UNCOUNTED_NO, UNCOUNTED_YES, UNCOUNTED_KEPT };
struct sfs_ofd {
	struct sfs_mutex lock;
	struct sfs_inode *inode;
	struct sfs_ofd *next_free;
	uint32_t refs; /* descriptors, under sfs_files.lock */
	uint32_t
		number; /* of the descriptions that this place has been; a call that one was closed under leaves the next one's offset alone */
	int flags;	 /* O_ACCMODE, O_APPEND, O_DIRECT, O_SYNC, O_DSYNC */
	bool kernel_off; /* the offset lives in the kernel: another process may share it, or `lazy` */
	/*
	 * SFS_OFF_LAZY: the kernel has the offset only because it serves the file; with the first call that we serve it becomes
	 * ours. Below, how many calls use the kernel's at this moment. Atomic.
	 */
	uint32_t lazy;
	uint8_t uncounted; /* enum sfs_uncounted; atomic */
	int64_t off;
	/*
	 * While it is ours, the kernel's is set to it before calls that the kernel makes, and looked at after them: what it was set to last, and how many of
	 * these calls there are at least (one that a handler has left by a jump is counted on).
	 */
	int64_t pushed;
	uint32_t pushes;
};

/* What flags of open(2) allow. Access mode 3 is for neither, but asks for the right to both. */
static inline bool sfs_may_read(int flags)
{
	return !(flags & O_WRONLY);
}
static inline bool sfs_may_write(int flags)
{
	return (flags & O_ACCMODE) == O_WRONLY || (flags & O_ACCMODE) == O_RDWR;
}

/* Has no other thread closed the descriptor, or made it another description's, since the table was looked at? */
static inline bool sfs_fd_still(int fd, const struct sfs_ofd *ofd, const struct sfs_inode *in)
{
	return load_acquire(&sfs_fds[fd]) == ofd && ofd->inode == in;
}

/* May another process have the description, too? Then it may move the offset, write, and set O_APPEND, and nobody tells. */
static inline bool sfs_ofd_shared(const struct sfs_ofd *ofd)
{
	return ofd->kernel_off && !(__atomic_load_n(&ofd->lazy, __ATOMIC_RELAXED) & SFS_OFF_LAZY);
}

#define SFS_HASH 4096
struct sfs_files {
	struct sfs_mutex lock;
	uint32_t asking; /* threads that ask for a grant: no claim is made meanwhile; atomic */
	struct sfs_inode *hash[SFS_HASH];
	struct sfs_inode *free_inodes;
	struct sfs_slab *slabs; /* read without the lock */
	bool granted;		/* there has been a grant: something may be staged, or be the kernel's to commit; atomic */
	uint32_t parked;	/* inodes that are not open */
	uint64_t left;		/* files that this process has ceased to serve so far; atomic */
	struct sfs_ofd *free_ofds;
	struct sfs_ofd *new_ofds, *new_ofds_end; /* of the last slab of them those that have never been used; NULL: none */
};
extern struct sfs_files sfs_files __attribute__((visibility("hidden")));

/* Has this process had a grant of some file? */
static inline bool sfs_any_granted(void)
{
	return __atomic_load_n(&sfs_files.granted, __ATOMIC_RELAXED);
}

/*
 * Which thread works on which inode. A signal that comes meanwhile is put off (process/deferred.c), where that can be; another handler that makes a call on
 * the same inode would wait for itself for ever, and gets -EDEADLK instead. There is no thread-local storage for us, so it is a table of marks, each a
 * thread pointer and an inode in one word, in one of a few slots that the thread pointer leads to. A mark that is found is certain; one that found no
 * slot, or lost it to another thread that took it at the same moment, is hidden: then such a handler hangs, which it would otherwise
 * do always.
 */
#define SFS_OPS	      1024
#define SFS_OP_PROBES 4
extern uint64_t sfs_ops[SFS_OPS + SFS_OP_PROBES] __attribute__((visibility("hidden")));

/* The slots of this thread. */
static inline uint64_t *sfs_op_marks(void)
{
	return &sfs_ops[sfs_thread_hash() % SFS_OPS];
}

/* This thread's mark for an inode, and back: where it is another's, anything. The lowest bit, 0 in a pointer, tells a mark from a free slot. */
static inline uint64_t sfs_op_mark(const struct sfs_inode *in)
{
	return ((uintptr_t)sfs_self() * SFS_HASH_FACTOR ^ (uintptr_t)in) | 1;
}
static inline uintptr_t sfs_op_inode(uint64_t mark)
{
	return (mark ^ (uintptr_t)sfs_self() * SFS_HASH_FACTOR) & ~(uintptr_t)1;
}

/* False: this thread is inside a call on the inode already. *op is for sfs_op_end(). */
static inline bool sfs_op_begin(struct sfs_inode *in, uint64_t **op)
{
	const uint64_t mark = sfs_op_mark(in);
	uint64_t *slot = sfs_op_marks();

	*op = NULL;
	if (unlikely(sfs_bias_mine(&in->lock.bias)))
		return false;
	for (int i = 0; i < SFS_OP_PROBES; i++) {
		const uint64_t seen = __atomic_load_n(&slot[i], __ATOMIC_RELAXED);

		if (unlikely(seen == mark))
			return false;
		if (seen == 0 && !*op)
			*op = &slot[i];
	}
	if (likely(*op))
		__atomic_store_n(*op, mark, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	return true;
}

static inline void sfs_op_end(uint64_t *op)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (likely(op))
		__atomic_store_n(op, 0, __ATOMIC_RELAXED);
	if (sfs_any_deferred())
		sfs_deliver(true, op);
}

/* inode.lock held exclusively: from now on no thread of this process begins to change the file by the kernel without a grant. */
static inline void sfs_asking_begin(struct sfs_inode *in)
{
	__atomic_store_n(&in->grant.asking, true, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&sfs_files.asking, 1, __ATOMIC_SEQ_CST);
}
static inline void sfs_asking_end(struct sfs_inode *in)
{
	__atomic_sub_fetch(&sfs_files.asking, 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&in->grant.asking, false, __ATOMIC_SEQ_CST);
}

/* Is the kernel changing the file, or reading it, for this process? Nothing is staged meanwhile. */
static inline bool sfs_kernel_busy(const struct sfs_inode *in)
{
	return unlikely(in->by_kernel > 0 || in->changing > 0);
}

/* Does the kernel serve the file, whatever the agent would grant? */
static inline bool sfs_by_kernel(const struct sfs_inode *in)
{
	return __atomic_load_n(&in->server, __ATOMIC_RELAXED) != SERVER_LIBRARY;
}

/* Is there something to relink or to retire? Also without the lock, for a guess. */
static inline bool sfs_inode_pending(const struct sfs_inode *in)
{
	return sfs_records_any(&in->counted) || in->staging.count > 0;
}
/* Does this process serve the file itself now? */
static inline bool sfs_inode_served(const struct sfs_inode *in)
{
	return in->life == LIFE_READY && sfs_grant_deleg(&in->grant) == SFS_DELEG_EXCLUSIVE && !sfs_by_kernel(in) &&
	       !sfs.no_staging;
}

/* sfs_files.lock held where the name says so */
/* Of a file that is being opened. parks: it may stay after the last close. NULL: no memory. */
struct sfs_inode *sfs_inode_get_locked(struct sfs_volume *vol, dev_t dev, ino_t ino, bool parks);
void sfs_inode_put(struct sfs_inode *in);
/* The same with sfs_files.lock held, by who has flushed; true: sfs_inode_end() is to follow without it. */
bool sfs_inode_put_locked(struct sfs_inode *in);
void sfs_inode_end(struct sfs_inode *in);
void sfs_inodes_each(struct sfs_volume *vol, int (*fn)(struct sfs_inode *in, void *arg), void *arg);
#define SFS_AGE_OLD 128u /* goes with the next tick */
/* Would it stay after the last close? */
bool sfs_inode_parks(const struct sfs_inode *in);
/* In a walk: is the file not open? Then it is taken down with the last reference. */
bool sfs_inode_evict(struct sfs_inode *in);
/* A tick of the service thread: those that have been closed long enough go. */
void sfs_inodes_age(struct sfs_volume *vol);
/* All that are not open go: before a fork or exec. */
void sfs_inodes_unpark(void);
/* The inode of (dev, ino) with a reference, or NULL. */
struct sfs_inode *sfs_inode_ref(dev_t dev, ino_t ino);
/* True: there is none, nor was before this call. One load, so that who looks at names only needs no lock, and no signal to be blocked. */
bool sfs_inode_none(dev_t dev, ino_t ino);
/* inode.lock held exclusively: delegation, descriptor and sizes are there. fd: an open descriptor of the file. 0; SFS_TURN; a negative errno value. */
int sfs_inode_ready(struct sfs_inode *in, int fd, int flags);
/* inode.lock held: sfs_agent_acquire(); fd: of the file. SFS_TURN: sfs_turn_wait() when the lock is free. */
int sfs_inode_acquire(struct sfs_inode *in, int fd, unsigned flags);
/* turn.c. inode.lock held: the agent is about to be asked for the file. */
void sfs_turn_begin(struct sfs_inode *in);
/*
 * After SFS_TURN, with no lock held, between no sfs_op_begin() and sfs_op_end(): until others have given the file up, or the inode is another
 * file's. 0: ask again; -EINTR: a handler has run that wants no call to be restarted.
 */
int sfs_turn_wait(struct sfs_inode *in);
/* Who waits asks again. */
void sfs_turn_come(struct sfs_inode *in);
/* Service thread: the same of the inode with that name, if there is one. */
void sfs_turn_told(dev_t dev, ino_t ino);
/* Our own descriptor and the generation, as far as they can be had. 1: they are new; 0; -EMFILE: no number is left; a negative errno value. */
int sfs_inode_own(struct sfs_inode *in, int fd, int flags);
/*
 * in.gen is known then. It is asked of our own descriptor of the file; without one of fd, and SFS_GONE when another thread has made that another file's.
 */
int sfs_inode_generation(struct sfs_inode *in, int fd);
/* inode.lock held, nothing staged: no descriptor nor window of ours, until the file is made ready again. */
void sfs_inode_close_own(struct sfs_inode *in);
/*
 * The first description since the last close. Somebody had the inode for a moment meanwhile, or it would have gone. Where nothing of ours had the
 * file open either it may have been deleted, and this be another one: what was known of the old one is forgotten. No lock held.
 */
void sfs_inode_renew(struct sfs_inode *in);
/* Everything is in the file, and this process is about to know no more of it than others do. */
void sfs_inode_left(void);
/* The program's first descriptor of the file from that number on, which it may close at any time; -1. */
int sfs_inode_open_at(const struct sfs_inode *in, int fd);
/* A descriptor of the file: our own, or the application's, which it may close at any time; -1. */
int sfs_inode_fd(const struct sfs_inode *in);
void sfs_inode_reload(struct sfs_inode *in);
/* The same of the size only: others may have appended, or we by the kernel. Whether there are holes is asked of what is new. */
void sfs_inode_resize(struct sfs_inode *in);
void sfs_inode_times(struct sfs_inode *in);
/* The description behind fd; NULL for everything that is not ours. Notices a fork that nobody announced. calls/ofd.c */
struct sfs_ofd *sfs_ofd_of(int fd);
/* mapped.c: has this process mapped the file at any time? */
bool sfs_was_mapped(const struct sfs_inode *in);

/*
 * inode.lock, for who changes no byte that readers may see. Between sfs_op_begin() and sfs_op_end(), or with signals blocked.
 */
static inline void sfs_inode_take(struct sfs_inode *in)
{
	sfs_mutex_take(&in->lock);
}
static inline void sfs_inode_drop(struct sfs_inode *in)
{
	sfs_mutex_drop(&in->lock);
}

/* inode.lock held: what readers see of [from, to) is about to change. */
static inline void sfs_change_begin(struct sfs_inode *in, uint64_t from, uint64_t to, uint64_t who)
{
	struct sfs_flights *f = &in->flights;
	const uint64_t next = f->changes + SFS_CHANGES_ONE + who, e = next / SFS_CHANGES_ONE % SFS_EVENTS;

	__atomic_store_n(&f->event[e].from, from, __ATOMIC_RELAXED);
	__atomic_store_n(&f->event[e].to, to, __ATOMIC_RELAXED);
	__atomic_store_n(&f->changes, next, __ATOMIC_RELEASE);
	sfs_store_fence(); /* what follows may be stored past the caches, which the processor does in any order */
}
/* It has changed, and what was stored past the caches is behind a fence. */
static inline void sfs_change_end(struct sfs_inode *in, uint64_t who)
{
	__atomic_store_n(&in->flights.changes, in->flights.changes - who, __ATOMIC_RELEASE);
}

/* inode.lock, for who may change anything: readers wait. */
static inline void sfs_inode_lock(struct sfs_inode *in)
{
	sfs_inode_take(in);
	sfs_change_begin(in, 0, UINT64_MAX, SFS_CHANGES_ALONE);
}
static inline void sfs_inode_unlock(struct sfs_inode *in)
{
	sfs_change_end(in, SFS_CHANGES_ALONE);
	sfs_inode_drop(in);
}
bool sfs_inode_trylock(struct sfs_inode *in);
/* If it is to be had within half a millisecond. */
bool sfs_inode_lock_soon(struct sfs_inode *in);
/* Lock held, and dropped meanwhile: no call by the kernel is under way? Another process could stage what it would miss, or see a part of. Waits as long. */
bool sfs_kernel_calls_end(struct sfs_inode *in);
/*
 * inode.lock held: is another thread storing in place in [from, to)? One of this thread is the call that a handler has interrupted.
 */
bool sfs_stores_meet(const struct sfs_inode *in, uint64_t from, uint64_t to);
/*
 * inode.lock held: stores in place that are under way are to be made again, because their window goes, or because somebody else's bytes have
 * come to their place. [from, to): only those that meet it.
 */
void sfs_stores_void(struct sfs_inode *in, uint64_t from, uint64_t to);
/* inode.lock held: every write that is being copied is to plan again. */
void sfs_flights_void(struct sfs_inode *in);
/* In the child of a fork: those who made them are not here. */
void sfs_flights_forget(struct sfs_inode *in);
/* inode.lock held: the window goes; a store that is still under way must not hit what is mapped there next. */
void sfs_inode_unmap(struct sfs_inode *in);

/* io/append.c: from here on the last record keeps its length. */
void sfs_grow_end(struct sfs_inode *in);
/* io/flush.c: an inode that is about to go, what is staged of it is relinked; what is busy or fails stays. */
void sfs_inode_settle(struct sfs_inode *in);
/* The same with inode.lock held. True: nothing is staged of it, nor do records of it count. */
bool sfs_inode_settled(struct sfs_inode *in);
/* process/service.c: has the process one thread, our own not counted? In doubt it has more. */
bool sfs_one_thread(void);
/* process/service.c: the inode gives up what the agent asked for: say so. */
void sfs_service_answer(struct sfs_inode *in);

#endif
