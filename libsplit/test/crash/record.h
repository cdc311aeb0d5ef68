/* SPDX-License-Identifier: Apache-2.0 */
/* What happened to persistent memory and to metadata, in order, while a workload or a recovery ran. */
#ifndef CRASH_RECORD_H
#define CRASH_RECORD_H

#include "crash/kern.h"

enum event_kind {
	EV_STORE,  /* cached stores, ascending */
	EV_NT,	   /* non-temporal stores */
	EV_KERNEL, /* content stored by the kernel (write(2)): durable with the metadata operation that follows it */
	EV_FLUSH,
	EV_FENCE,
	EV_META,   /* one journalled operation; `index` is its snapshot */
	EV_SYNC,   /* fsync of ino, 0: of everything */
	EV_COMMIT, /* the journal, up to the last operation on ino */
	EV_BEGIN,
	EV_END, /* of operation `index` of the workload */
};

/* The threads of two processes, and the agent. */
enum cpu { CPU_APP, CPU_APP_2, CPU_SERVICE, CPU_SERVICE_2, CPU_AGENT, CPUS };

struct event {
	uint8_t kind;
	uint8_t ino;	/* stores: through the mapping of which file */
	uint8_t cpu;	/* enum cpu: fences are one processor's */
	uint16_t op;	/* operation of the workload that it is part of */
	uint32_t at;	/* in persistent memory */
	uint32_t len;	/* bytes; at most a block */
	uint32_t data;	/* where its bytes are in trace.bytes */
	uint32_t index; /* EV_META, EV_BEGIN, EV_END; EV_KERNEL: 1 for zeros that go with the operation behind them */
	uint64_t touched;
	void *site;
};

struct trace {
	struct event *ev;
	uint32_t n, room;
	uint8_t *bytes;
	uint32_t nbytes, bytes_room;
	struct kern_meta *meta; /* meta[0] is where it began */
	uint64_t *meta_hash;
	uint32_t nmeta, meta_room;
	uint32_t end_block; /* kern.next_block when it ended */
};

/* The descriptor of the persistent memory that the library's mappings are made of. */
int record_memfd(void);
/* Its own mapping; zeroed up to where the last workload had used it. */
uint8_t *record_memory(void);
void record_reset_memory(void);
/* In the child of a process that has run a workload: memory of its own. */
void record_forked(void);

/* Record into t from here on: what the file system is now is its beginning. */
void record_start(struct trace *t);
void record_stop(void);
/* Who runs from here on. */
void record_cpu(enum cpu cpu);
/*
 * The service thread of a process runs from here on. What the application's thread has written back is durable: a lock that another
 * thread has had is taken with a locked instruction or a membarrier (base/lock.h). The other way round nothing is assumed.
 */
void record_service(int process);
enum cpu record_cpu_now(void);
/* The program itself stores to persistent memory that is mapped. */
void record_store(void *dst, const void *src, size_t n);
void record_op(enum event_kind kind, uint32_t op);
void record_free(struct trace *t);

uint64_t hash_bytes(uint64_t seed, const void *p, size_t n);

/*
 * A planted bug, made where the recorder sees the call: the memory of the running process is right, what would survive is
 * not. Sites are calls in the code, numbered in the order in which the workloads come upon them.
 */
enum mutant_kind {
	MUT_NONE,
	/* Of one call in the code: */
	MUT_DROP_FLUSH, /* no write-back from it */
	MUT_DROP_FENCE,
	MUT_DROP_SYNC,	 /* no fsync, fdatasync, syncfs */
	MUT_DEFER_STORE, /* stored after the next fence */
	/* Of the code as a whole (mutants.c): */
	MUT_RECORD_CRC,
	MUT_DATA_CRC,
	MUT_NO_DATA_CRC,
	MUT_OLDEST_WINS,
	MUT_INODE_ALONE,
	MUT_RENAME_TWICE,
	MUT_BOOT_IGNORED,
	MUT_DONE_IGNORED,
	MUT_DONE_FORGOTTEN,
	MUT_WRITE_TRUSTED,
	MUT_COMMIT_IGNORED,
	MUT_STAGING_REUSED,
	MUT_SLOT_REUSED,
	MUT_IN_PLACE_EARLY,
	MUT_PARTS_COUNT,
	MUT_NO_REPLAY,
	MUT_RECOVERY_UNSYNCED,
	MUT_HOLES_COPIED,
	MUT_KINDS,
};

struct mutant {
	enum mutant_kind kind;
	void *site;
};
extern struct mutant mutant;

/* Calls seen so far: flushing stores, fences, syncs and stores. */
struct site {
	void *at;
	uint8_t kind; /* enum event_kind */
	uint32_t calls;
};
#define SITES_MAX 256
extern struct site sites[SITES_MAX];
extern int nsites;

#endif
