/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of U-Split in one process. Everything here is volatile: what survives is in the log and in the staging files.
 *
 * Locks, in the order in which they are taken:
 *   volume.checkpoint  one checkpoint at a time
 *   ofd.lock           file offset of one open file description
 *   inode.lock         size, block table, window, delegation of one file; shared by reads and by writes in flight, exclusive for
 *                      everything else
 *   inode.flights.lock what writes in flight change of it; short, under inode.lock
 *   sfs.adopt          making an unknown descriptor ours
 *   sfs.lock           descriptor table changes, inode hash, the slabs (open, close, dup; never on read or write)
 *   volume.request     one request to the agent and its reply
 *   volume.conn, volume.stage, sfs.numbers  short, nothing is waited for under them
 * Nobody waits for a staging file (volume.lease, then request) with an inode's lock: another process may need this one to give up
 * that inode before the agent answers what is in front. An ACQUIRE does wait with its inode's lock, and says so (`acquiring`).
 * The service thread answers revocations: it only ever tries inode.lock and volume.checkpoint, and never takes
 * volume.request while there is an agent.
 *
 * Objects live in slabs that are never unmapped: a stale pointer finds an object of the same type, and `fds[fd] == ofd` with
 * the inode's lock held proves that it is the right one.
 */
#ifndef SFS_STATE_H
#define SFS_STATE_H

#include "base/lock.h"
#include "core/core.h"
#include "layout.h"
#include "proto.h"
#include "relink/relink.h"

#define SFS_VOLUMES_MAX 16
#define SFS_CHUNKS_MAX	256u
#define SFS_REVOKES_MAX 8
#define SFS_PATH_MAX	1024

#define likely(x)	    __builtin_expect(!!(x), 1)
#define unlikely(x)	    __builtin_expect(!!(x), 0)
#define load_acquire(p)	    __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)

/* A staging file leased from the agent and mapped whole. */
struct sfs_chunk {
	uint32_t id;	 /* number in the pool */
	uint32_t blocks; /* size */
	uint32_t used;	 /* blocks handed to inodes since the chunk was empty */
	uint32_t pins;	 /* inodes with a region of it, or records that name it and count */
	bool holes;	 /* relink took blocks away: what was used can't be used again */
	int fd;		 /* -1: no chunk in this place of the array */
	uint8_t *base;
};

enum sfs_volume_state { VOL_UNKNOWN = 0, VOL_READY, VOL_LOST };

struct sfs_volume {
	enum sfs_mode mode;
	char dir[SFS_PATH_MAX];	   /* mount path */
	char agents[SFS_PATH_MAX]; /* directory of the agents' sockets */
	dev_t dev;		   /* of dir, 0 while dir has not been looked at */
	bool dax;
	bool tmpfs;
	bool dedicated;
	bool complained;
	bool away; /* the agent did not come back in time; under request */
	enum sfs_volume_state state;
	enum relink_provider provider;

	struct sfs_mutex request; /* one request and its reply at a time; held while an ACQUIRE waits for other processes */
	struct sfs_mutex conn;	  /* one message to the agent; held to change request_fd */
	int request_fd;
	int event_fd;
	uint32_t connection; /* number of the connection to the agent; changes with both sockets, request lock held */

	uint32_t log_id;
	int log_fd;
	uint8_t *log;
	size_t log_len;
	struct sfs_record *records;
	struct sfs_log_stats *counters; /* the log's, or some that nobody reads */
	uint32_t seed;
	uint32_t slots;
	uint64_t epoch;
	uint32_t tail;	    /* next free slot, atomic */
	uint32_t closed_at; /* what tail was when a checkpoint closed the log */
	struct sfs_mutex checkpoint;

	struct sfs_mutex lease; /* one lease of a staging file at a time */
	struct sfs_mutex stage;
	struct sfs_chunk chunks[SFS_CHUNKS_MAX];
	uint32_t nchunks;
	uint32_t current;	/* the chunk that regions come from */
	uint32_t live;		/* inodes with records that are not retired, atomic; a hint whether there is anything to do */
	uint64_t region_blocks; /* blocks handed to inodes since those were last retired, under stage */
	uint32_t idle;		/* ticks of visibility_ms with nothing staged; the service thread's */
	bool dirty;		/* something staged since the service thread last looked */
};

/*
 * An entry of an inode's block table: where the whole current content of one 4 KiB block is staged.
 * chunk index + 1 in the upper half, block of the chunk in the lower; 0: in the file.
 */
typedef uint64_t sfs_block;

/*
 * Writes to one file at the same time (flight.c). Who is in flight holds inode.lock shared, and this lock for the moments in which it
 * changes the inode: everybody who has inode.lock exclusively finds nobody in flight.
 */
#define SFS_FLIGHTS_MAX 16
struct sfs_flights {
	struct sfs_mutex lock;
	struct sfs_turns turns; /* of staged writes: their records count in the order in which they took their places */
	uint64_t end;		/* where the next append goes, while turns are not over */
	uint32_t aloft;		/* ranges, atomic */
	uint32_t held;		/* who waits for inode.lock, but not for long (sfs_lock_soon()); atomic */
	struct sfs_range {
		uint64_t from, to; /* bytes of the file that one writes; whole blocks when it stages them. Empty: free */
		bool append;	   /* then others may follow in its last block */
		bool store;	   /* in place: readers see it happen */
	} range[SFS_FLIGHTS_MAX];
	/*
	 * Bytes that readers see are being changed: by so many writers now (the low 8 bits), and how often that has begun, above. Atomic;
	 * see sfs_look_begin().
	 */
	uint64_t changes;
};

struct sfs_inode {
	struct sfs_rwlock lock;
	struct sfs_inode *next; /* hash chain or free list */
	struct sfs_volume *vol;
	dev_t dev;
	ino_t ino;
	uint32_t gen;
	uint32_t refs;	/* open file descriptions, and who works with the inode for a moment; under sfs.lock, like walks */
	uint32_t walks; /* those of sfs_inodes_each(): they do not make the file an open one */
	enum sfs_delegation deleg;
	bool ready;	  /* fd, gen and sizes are known */
	bool lost;	  /* staged bytes were given up: calls fail until the file is closed */
	bool kernel_only; /* mapped or otherwise shared with the kernel for good: no staging */
	bool writable;	  /* fd is O_RDWR */
	bool dense;	  /* no holes below ksize */
	bool dense_known;
	bool live;	/* records of this inode are not retired */
	bool unretired; /* relinked, but the records still count: no store in place, replaying would undo it */
	/* Of the live records, on persistent memory: */
	bool uncommitted; /* posix: there are some behind the last COMMIT */
	bool committed;	  /* posix: there are some before it */
	bool kept;	  /* relink has left bytes of some in the staging file, where replaying would find them */
	bool blocked;	  /* a store had to be staged because of `unretired` */
	bool busy;	  /* staged to since the service thread last looked */
	bool fsyncs;	  /* the application has called fsync: it will again */
	/*
	 * After the last close the inode stays for a while, with its delegation, descriptor and window: opening the file again costs
	 * nothing then. Under sfs.lock:
	 */
	bool keep;   /* it may */
	bool parked; /* it does: nobody but walks has it, and it is counted in sfs.parked */
	bool evict;  /* not any longer: the next to drop a reference takes it down */
	uint8_t age; /* ticks of the service thread since the last close */
	/*
	 * The agent could not be asked: it may give the file to another process. SHARED, and asked again before each call, so that whoever
	 * has staged something of it relinks first.
	 */
	bool untold;
	bool privileged; /* it may have set-ID bits or capabilities, which a write ends (core/privileges.h) */
	bool named;	 /* sync, strict: the file's name is known to be durable */
	bool kdirty; /* only fsync(2) makes durable what the kernel has done to the file: always so when it has just been opened */
	bool acquiring; /* the lock's holder waits for its turn to ask the agent, with nothing staged, and will take what it gets */
	uint8_t revoke;	  /* 1 + the delegation the agent wants us to go down to, when that could not be done yet */
	uint32_t revokes; /* how often it has asked; each wants its answer. The service thread's, like their numbers */
	uint64_t revoke_numbers[SFS_REVOKES_MAX];
	bool at_once;	 /* EXCLUSIVE for one write, which is in the file before it returns (SFS_ACQ_AT_ONCE) */
	bool touched;	 /* stored to since the kernel last knew: mtime is due */
	int fd;		 /* our own descriptor, kept until the last close: closing one drops the process's POSIX locks */
	int fd_readonly; /* the one it replaced when the file was first opened read-only, or -1 */

	uint64_t size;	/* what the application sees */
	uint64_t ksize; /* what the kernel sees */

	uint8_t *win; /* the file mapped from offset 0, beyond its end as far as win_len (ctFS: the MMU is the index) */
	uint64_t win_len;
	uint64_t
		win_tried; /* ksize when it was last mapped: without success, or not all of it, the rest is read by the kernel */
	uint64_t cold;	   /* bytes that the kernel has read for us since it was mapped */
	uint64_t populated; /* in-place stores: everything before this offset has been faulted in */
	uint64_t last_end;  /* end of the last in-place store */

	sfs_block *table;
	uint64_t table_blocks;
	uint64_t staged; /* entries that are set */
	uint64_t first;	 /* blocks below have no entry */
	uint64_t last;	 /* blocks from here on have no entry */

	/*
	 * posix: the record whose range ends at the end of the file in a staged block, and the rest of that block. Appends
	 * go there and make the record longer, and nothing else has to be looked at: whatever could be in the way (a flush, another
	 * write, a look at the times, RLIMIT_FSIZE close to the end of the file) ends it. NULL then.
	 */
	struct sfs_record *grow;
	uint32_t grow_crc;
	uint8_t *grow_base;  /* where the record's first byte is staged */
	uint8_t *grow_at;    /* where the next byte goes */
	uint8_t *grow_dirty; /* bytes before it have been written back */
	uint8_t *grow_limit; /* end of that block */
	uint64_t grow_ops;   /* appends that are not in the counters yet */

	/* Log slots that belong to this inode and are empty: an append must not pay a locked instruction for each. */
	uint32_t slot_next;
	uint32_t slot_end;
	uint32_t slot_batch;

	/*
	 * The block staged last, and the bytes of it that records name: the others were carried along and may still be
	 * written, so that a program overwriting a block piece by piece takes one staged block and not one per piece.
	 */
	uint64_t hot;
	sfs_block hot_block;
	uint32_t hot_from;
	uint32_t hot_to;

	struct sfs_flights flights;

	/* Region of a staging file that belongs to this inode and has not been written. */
	uint32_t region_chunk;
	uint32_t region_next;
	uint32_t region_end;
	uint32_t region_want;
	uint32_t region_taken;		      /* blocks of all regions since the inode was last retired */
	uint64_t pinned[SFS_CHUNKS_MAX / 64]; /* chunks that it pins, under volume.stage */
};

/* Inodes are never given back: a pointer to one stays a pointer to one. */
#define SFS_SLAB_INODES (((256ul << 10) - sizeof(void *)) / sizeof(struct sfs_inode))
struct sfs_slab {
	struct sfs_inode inodes[SFS_SLAB_INODES];
	struct sfs_slab *next;
};

/* Known not to be a file of ours; NULL: not looked at yet. */
#define SFS_FOREIGN ((struct sfs_ofd *)1)
/* A descriptor of the library itself: the application never got that number. */
#define SFS_PRIVATE ((struct sfs_ofd *)2)

struct sfs_ofd {
	struct sfs_mutex lock;
	struct sfs_inode *inode;
	struct sfs_ofd *next_free;
	uint32_t refs;	 /* descriptors, under sfs.lock */
	int flags;	 /* O_ACCMODE, O_APPEND, O_DIRECT, O_SYNC, O_DSYNC */
	bool kernel_off; /* another process may share the offset: it lives in the kernel */
	int64_t off;
};

#define SFS_HASH 4096

struct sfs_state {
	bool configured;
	int nvolumes;
	uint32_t visibility_ms;
	uint32_t agent_wait_ms; /* sync, strict: so long a process waits for its first agent, which may be about to come back */
	uint32_t forks;		/* that this process comes from, since the library began */
	bool fsync_records;	/* fsync leaves the relink to the service thread where a record is enough */
	struct sfs_mutex lock;
	struct sfs_mutex adopt;
	struct sfs_mutex numbers; /* RLIMIT_NOFILE is lifted, from soft_limit */
	uint64_t soft_limit;	  /* 0: it is not */
	struct sfs_inode *hash[SFS_HASH];
	struct sfs_inode *free_inodes;
	struct sfs_slab *slabs; /* read without the lock */
	uint32_t parked;	/* inodes that are not open */
	struct sfs_ofd *free_ofds;
	int fd_max;	   /* no descriptor above was ever ours */
	int known_max;	   /* nothing but SFS_PRIVATE was ever known of one above */
	int private_min;   /* the library's own have had numbers from here on */
	int private_max;   /* and up to here */
	int service_state; /* 0 none, 1 running */
	int wake_fd;	   /* eventfd of the service thread */
	int *alive; /* the process; zeroed by the kernel in the child of any fork (user-mode emulators only promise that) */
	bool no_staging; /* io_uring is in use: the kernel serves everything */
	uint64_t fsize_limit;
	struct sfs_volume volumes[SFS_VOLUMES_MAX];
};

extern struct sfs_state sfs __attribute__((visibility("hidden")));

/* Plain additions: two threads that share a place may lose one. */
static inline struct sfs_counters *sfs_counters_here(const struct sfs_volume *vol)
{
	return &vol->counters->place[sfs_thread_hash() % SFS_COUNTER_PLACES].counters;
}
#define count(vol, what, n) (sfs_counters_here(vol)->what += (uint64_t)(n))

/* One write of n bytes; append: it made the file longer. */
static inline void sfs_count_write(const struct sfs_volume *vol, bool append, uint64_t n)
{
	struct sfs_counters *here = sfs_counters_here(vol);

	*(append ? &here->append_ops : &here->overwrite_ops) += 1;
	*(append ? &here->append_bytes : &here->overwrite_bytes) += n;
}

/*
 * Which thread works on which inode. A signal that comes meanwhile is put off (deferred.c), where that can be; another handler that makes a call on
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

/* Does this process serve the file itself now? */
static inline bool sfs_inode_served(const struct sfs_inode *in)
{
	return in->ready && in->deleg == SFS_DELEG_EXCLUSIVE && !in->kernel_only && !sfs.no_staging;
}

/* volume.c: configuration and the agent */
void sfs_volumes_parse(const char *config);
struct sfs_volume *sfs_volume_of(dev_t dev);
int sfs_volume_connect(struct sfs_volume *vol, int proof_fd);
void sfs_volume_forget(struct sfs_volume *vol);
int sfs_agent_chunk(struct sfs_volume *vol, uint64_t wanted, uint32_t *id, uint64_t *len, int *fd);
int sfs_agent_return(struct sfs_volume *vol, uint32_t id);
int sfs_agent_acquire(struct sfs_volume *vol, struct sfs_inode *in, int fd, unsigned flags);
int sfs_agent_release(struct sfs_volume *vol, struct sfs_inode *in);
/* Service thread: the agent has gone; one try to come back. */
void sfs_agent_reconnect(struct sfs_volume *vol, uint32_t lost);
int sfs_agent_event(struct sfs_volume *vol, struct sfs_msg *msg);
int sfs_agent_answer(struct sfs_volume *vol, const struct sfs_msg *msg);
/* private.c; all of private.h for a descriptor that is there: the same file under a number of ours; closes fd */
int sfs_high_fd(int fd);
/* Close a descriptor with such a number. */
void sfs_private_close(int fd);

/* inode.c; sfs.lock held where the name says so */
struct sfs_inode *sfs_inode_find_locked(dev_t dev, ino_t ino);
struct sfs_inode *sfs_inode_get_locked(struct sfs_volume *vol, dev_t dev, ino_t ino);
void sfs_inode_put(struct sfs_inode *in);
/* The same with sfs.lock held, by who has flushed; true: sfs_inode_end() is to follow without it. */
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
/* All that are not open go: before a fork or exec, and when descriptors are short. */
void sfs_inodes_unpark(void);
/* The inode of (dev, ino) with a reference, or NULL. */
struct sfs_inode *sfs_inode_ref(dev_t dev, ino_t ino);
/* inode.lock held exclusively: delegation, descriptor and sizes are there. fd: an open descriptor of the file. */
int sfs_inode_ready(struct sfs_inode *in, int fd, int flags);
/* "/proc/self/fd/N"; buf has 32 bytes. */
void sfs_fd_path(char *buf, int fd);
void sfs_inode_reload(struct sfs_inode *in);
void sfs_inode_map(struct sfs_inode *in);
bool sfs_inode_dense(struct sfs_inode *in);
void sfs_inode_times(struct sfs_inode *in);
/* stage.c; inode.lock held exclusively, or shared with flights.lock */
static inline uint8_t *sfs_block_addr(const struct sfs_volume *vol, sfs_block b)
{
	return vol->chunks[(b >> 32) - 1].base + (uint64_t)(uint32_t)b * SFS_BLOCK;
}
static inline sfs_block sfs_block_get(const struct sfs_inode *in, uint64_t blk)
{
	/* A write in flight may enter others meanwhile. */
	return blk >= __atomic_load_n(&in->first, __ATOMIC_RELAXED) && blk < __atomic_load_n(&in->last, __ATOMIC_RELAXED)
		       ? __atomic_load_n(&in->table[blk], __ATOMIC_RELAXED)
		       : 0;
}
int sfs_stage_table(struct sfs_inode *in, uint64_t blocks);
void sfs_stage_set(struct sfs_inode *in, uint64_t blk, sfs_block b);
/* Up to *n contiguous blocks of one staging file; returns their first entry, 0 with *err set when there is no room. */
sfs_block sfs_stage_alloc(struct sfs_inode *in, uint32_t *n, int *err);
void sfs_stage_live(struct sfs_inode *in);
void sfs_stage_retired(struct sfs_inode *in);
bool sfs_stage_room(struct sfs_volume *vol, uint64_t blocks);
/* No inode lock held. */
int sfs_stage_lease(struct sfs_volume *vol, uint64_t blocks);
void sfs_stage_idle(struct sfs_volume *vol);

/* oplog.c */
#define SFS_LOG_HEADROOM 64u
/* n consecutive slots, or -EAGAIN: unlock the inode, checkpoint, start again. `last_resort` may use the headroom. */
int sfs_log_reserve(struct sfs_volume *vol, uint32_t n, bool last_resort, uint32_t *slot);
/* The same for records of one inode, from its own slots; inode.lock held exclusively, or shared with flights.lock. */
int sfs_log_slots(struct sfs_inode *in, uint32_t n, uint32_t *slot);
/* append.c: from here on the last record keeps its length */
void sfs_grow_end(struct sfs_inode *in);
/* The same where there is no record to look at, and nothing to count. */
void sfs_grow_forget(struct sfs_inode *in);
/* Its unused slots stay empty. Before a DONE record, which retires what has a lower slot, and when the log is cleared. */
static inline void sfs_log_drop_slots(struct sfs_inode *in)
{
	in->slot_next = in->slot_end = in->slot_batch = 0;
	sfs_grow_end(in);
}
/*
 * Complete the record, given as its eight words, with seq and crc and store it, not fenced. What grows is not even written back, nor
 * is anything in posix mode on an emulated volume: there it counts while the boot lasts, and what it promises ends with the next fsync.
 * Returns the CRC.
 */
uint32_t sfs_log_store(struct sfs_volume *vol, uint32_t slot, uint64_t word[8]);
/*
 * The same, of a record without them. The fields become words in registers: a word that is read while narrower stores to it are on
 * their way waits until those have gone, and they stand behind the data.
 */
static inline uint32_t sfs_log_write(struct sfs_volume *vol, uint32_t slot, const struct sfs_record rec)
{
	uint64_t word[8] = {
		(uint64_t)rec.type << 32 | (uint64_t)rec.flags << 40 | (uint64_t)rec.group_pos << 48 |
			(uint64_t)rec.group_left << 56,
		0,
		rec.ino,
		(uint64_t)rec.data_crc << 32 | rec.gen,
		rec.off,
		(uint64_t)rec.stage_file << 32 | rec.len,
		rec.stage_off,
		rec.size,
	};

	return sfs_log_store(vol, slot, word);
}
void sfs_log_commit(struct sfs_inode *in, uint32_t slot);
void sfs_log_done(struct sfs_inode *in, uint32_t slot, bool durable);
void sfs_log_cut(struct sfs_inode *in, uint32_t slot, uint64_t size);
/*
 * Relink everything and clear the log. No inode lock held. Without `wait` it gives up with -EBUSY where it would have to wait.
 */
int sfs_log_checkpoint(struct sfs_volume *vol, bool wait);

/* A record of n bytes at `off` of the file, staged from block b on: everything but data_crc, the group, and the size. */
static inline struct sfs_record sfs_record_write(const struct sfs_inode *in, uint64_t off, size_t n, sfs_block b, uint8_t flags)
{
	return (struct sfs_record){
		.type = SFS_REC_WRITE,
		.flags = flags,
		.ino = in->ino,
		.gen = in->gen,
		.off = off,
		.len = (uint32_t)n,
		.stage_file = in->vol->chunks[(b >> 32) - 1].id,
		.stage_off = (uint64_t)(uint32_t)b * SFS_BLOCK + off % SFS_BLOCK,
	};
}

/* Might a file that ends there, and one more block, reach RLIMIT_FSIZE? */
static inline bool sfs_near_limit(uint64_t end)
{
	return end + 2 * SFS_BLOCK > sfs.fsize_limit;
}

/* flush.c; inode.lock held exclusively */
enum sfs_flush {
	/* Relinked: the kernel and everybody else see it. On persistent memory the records go on counting until a journal commit. */
	SFS_PUBLISH,
	/* And no record of it counts any more, also after a power loss: before the kernel or another process changes the file. */
	SFS_RETIRE,
	/* And fsync(2). */
	SFS_DURABLE,
};
/* -EAGAIN: relinked, but a checkpoint is due. */
int sfs_flush(struct sfs_inode *in, enum sfs_flush how);
/* RETIRE, then no higher than that delegation. Lock held exclusively; -EAGAIN: again, after a checkpoint. */
int sfs_step_down(struct sfs_inode *in, unsigned to);
/* Takes and releases the lock, and checkpoints when that is due. */
int sfs_flush_unlocked(struct sfs_inode *in, enum sfs_flush how);
/* All files of the volume; the first error, after all have been tried. */
int sfs_flush_all(struct sfs_volume *vol, enum sfs_flush how);
/* posix on persistent memory, before a COMMIT record of the inode. */
int sfs_commit_base(struct sfs_inode *in);
/* What fsync(2) promises, visible to everybody. -EAGAIN: a checkpoint makes it so. */
int sfs_flush_fsync(struct sfs_ofd *ofd, int fd, bool data_only);

/* fd.c */
int sfs_fds_make(void);
/* The number is a descriptor of the library itself. */
void sfs_fds_private(int fd);
/* Descriptors that the application has opened and not used yet are about to be shared with another process. */
void sfs_fds_shared(void);

/* mapped.c: has this process mapped the file at any time? */
bool sfs_was_mapped(const struct sfs_inode *in);

/* read.c, write.c, append.c: bytes */
#define SFS_STORE_MAX 512u /* shorter copies are not worth non-temporal stores */
#define SFS_PREFETCH  6u   /* small appends ahead */
/* Nobody waits for a copy of so many. For a shorter one that takes no longer than passing turns on. */
#define SFS_LONG (16u << 10)

/* flight.c */
/*
 * A write beside others, total > 0 bytes at pos, or at the end with `append`. No lock of the inode held. Returns the bytes written, all of
 * them, and in *at where; a negative errno value; or 0 when it can't be done so, or need not because the lock is this thread's own anyway.
 */
ssize_t sfs_fly(struct sfs_ofd *ofd, int fd, const struct iovec *iov, size_t total, bool append, off_t pos, off_t *at);
/* Is somebody storing in place in [off, off + n)? inode.lock held. If not, nothing that was begun before changes these bytes any more. */
bool sfs_flights_over(struct sfs_inode *in, uint64_t off, uint64_t n);
/*
 * inode.lock exclusively, if it is to be had within half a millisecond. Reads and writes of a file can keep it taken for ever, one beginning
 * before the other ends: they step back for so long.
 */
bool sfs_lock_soon(struct sfs_inode *in);
void sfs_step_back_slow(struct sfs_inode *in);
static inline bool sfs_lock_wanted(const struct sfs_inode *in)
{
	return unlikely(__atomic_load_n(&in->flights.held, __ATOMIC_RELAXED));
}
static inline void sfs_step_back(struct sfs_inode *in)
{
	if (sfs_lock_wanted(in))
		sfs_step_back_slow(in);
}

/*
 * For readers, with inode.lock shared: what is copied between these two is from one moment, if both are true. False at the beginning:
 * someone may be changing the bytes; at the end: someone has begun to, meanwhile.
 */
static inline bool sfs_look_begin(const struct sfs_inode *in, uint64_t *seen)
{
	*seen = load_acquire(&in->flights.changes);
	return !(*seen & 0xff);
}

static inline bool sfs_look_end(const struct sfs_inode *in, uint64_t seen)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return (__atomic_load_n(&in->flights.changes, __ATOMIC_RELAXED) ^ seen) >> 8 == 0;
}

/* read.c, write.c */
struct sfs_ofd *sfs_ofd_of(int fd);
int sfs_io_prepare(struct sfs_ofd *ofd, struct sfs_inode *in, int fd);
/* Is everything there that sfs_io_prepare() provides, without asking anybody? */
bool sfs_io_prepared(const struct sfs_inode *in);
/* The window or the file, not what is staged: [off, off + n) as the kernel has it, zeros beyond its end. */
int sfs_read_base(struct sfs_inode *in, uint8_t *dst, uint64_t off, size_t n);
/* The same, always by pread. */
int sfs_read_kernel(struct sfs_inode *in, uint8_t *dst, uint64_t off, size_t n);

/* service.c */
int sfs_service_start(void);
/* The inode gives up what the agent asked for: say so. */
void sfs_service_answer(struct sfs_inode *in);
void sfs_service_wake(struct sfs_volume *vol);

/* Did a fork happen that did not come through sfs_fork_prepare (a bare clone)? Then this is the child. */
static inline void sfs_check_fork(void)
{
	if (unlikely(sfs.alive && *sfs.alive == 0))
		sfs_fork_child();
}

#endif
