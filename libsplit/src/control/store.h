/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of the control directory that come and go: logs with their leases, and staging files. Numbers are never used twice
 * while the agent or a recovery runs. A file that a client had open is given to another one only when nobody has it open or mapped any more, and only
 * to one of the same user and pod (agent/reuse.c); else it is removed and a fresh one takes its place. So nothing a client does with
 * old descriptors or mappings can reach another client's data.
 */
#ifndef SFS_STORE_H
#define SFS_STORE_H

#include <stdint.h>
#include <stdlib.h>

#include "format/layout.h"
#include "control/root.h"

#define SFS_DEFAULT_POOL_BYTES	(256ull << 20)
#define SFS_DEFAULT_CHUNK_BYTES (16ull << 20)
#define SFS_DEFAULT_LOG_BYTES	(4ull << 20)
#define SFS_DEFAULT_LOG_SPACE	(64ull << 20)

/* Sorted list of numbers. */
struct sfs_numbers {
	uint32_t *v;
	uint32_t n;
	uint32_t max; /* of any name of that form, also of what is no regular file and not listed: such a number is taken */
};
static inline void sfs_numbers_free(struct sfs_numbers *l)
{
	free(l->v);
	l->v = NULL;
	l->n = l->max = 0;
}
int sfs_numbers_has(const struct sfs_numbers *l, uint32_t number);

/*
 * RLIMIT_FSIZE of whoever started this program is lifted, as far as that may be: it is none for staging files, nor for the files of others that
 * are recovered.
 */
void sfs_file_size_lift(void);

/* --- operation logs (logfile.c) */

/*
 * Make log `id` with `slots` records: space allocated, pages touched, header of this boot, epoch 1. It appears under its name only
 * when it is complete. Returns an open descriptor or a negative errno value.
 */
int sfs_log_create(const struct sfs_root *r, uint32_t id, uint32_t slots, uint32_t slots_max, struct sfs_why *why);
/* Make it longer, also while a client holds it; durable on persistent memory. A failure changes nothing that counts. */
int sfs_log_grow(const struct sfs_root *r, int fd, uint32_t from, uint32_t slots);
/*
 * Log `id` is given to another client: its header as of a new one, but for the epoch, by which none of its records counts; counters, latencies and
 * claims are zero. fd: the log, which nobody else has open. Durable on persistent memory.
 */
int sfs_log_renew(const struct sfs_root *r, uint32_t id, int fd, uint32_t slots, uint32_t slots_max);
int sfs_log_open(const struct sfs_root *r, uint32_t id, int flags);
/* A log in memory, of the same header as log `id` but no persistent memory, which nobody can make larger. A descriptor, or an error. */
int sfs_log_memory(const struct sfs_root *r, uint32_t id, uint32_t slots, uint64_t *ino);
/* Initial value of the checksums of the log's records. */
uint32_t sfs_log_seed(const uint8_t uuid[16], uint32_t id);
int sfs_log_remove(const struct sfs_root *r, uint32_t id);
/* Numbers of all logs, and of all leases. */
int sfs_log_list(const struct sfs_root *r, struct sfs_numbers *logs, struct sfs_numbers *leases, struct sfs_why *why);
/* Its number, and behind that the epoch, which changes when the log goes to another client. */
uint64_t sfs_log_mark(uint32_t id, int fd);
/* The counters of its first two pages, added up. */
void sfs_log_counters(const struct sfs_log_header *header, const struct sfs_log_stats *stats, struct sfs_counters *c);

/* How long calls took, of any number of processes in one mode. */
struct sfs_latencies {
	uint64_t sum_ns[SFS_LATENCY_NKINDS];
	uint64_t bucket[SFS_LATENCY_NKINDS][SFS_LATENCY_BUCKETS];
};
/* What processes have counted. */
struct sfs_usage {
	struct sfs_counters counters;
	struct sfs_latencies latency[SFS_MODES];
	uint8_t protection; /* enum sfs_protection; of one process, and in no sum */
};
/*
 * A process may write anything to its log, and so may what damages it. Who reads the sums (JSON, metrics) takes signed numbers, so no sum is
 * larger; and one process that says it has counted more than SFS_COUNTED_MAX in one place has counted nothing there.
 */
#define SFS_COUNTED_MAX (1ull << 56)
#define SFS_SUM_MAX	(1ull << 62)
static inline uint64_t sfs_counted(uint64_t said)
{
	return said <= SFS_COUNTED_MAX ? said : 0;
}
static inline uint64_t sfs_sum(uint64_t a, uint64_t b)
{
	return a < SFS_SUM_MAX && b < SFS_SUM_MAX - a ? a + b : SFS_SUM_MAX;
}
/* Of the one that the log belongs to; zeros when it cannot be read, or when its header is damaged. */
int sfs_log_usage(int logfd, uint8_t mode, struct sfs_usage *u);
void sfs_latencies_add(struct sfs_latencies *to, const struct sfs_latencies *from);
void sfs_usage_add(struct sfs_usage *to, const struct sfs_usage *from);

/* --- leases (lease.c) */

struct sfs_leasefile {
	int fd;
	bool sync;     /* on persistent memory a record outlives a power loss: what it may name must too */
	bool by_write; /* then, where it can't be mapped: written, and forced to the medium each time */
	uint8_t *map;  /* then: the file, so that an entry is durable by a fence and not by a commit of the journal; or NULL */
	uint64_t mapped; /* bytes */
	struct sfs_lease head;
	struct sfs_lease_inode *inodes;
	uint32_t *free; /* indexes of unused entries below head.ninodes */
	uint32_t nfree, room;
};

/* Make the lease of log `id`, held by what head says. */
int sfs_lease_create(const struct sfs_root *r, uint32_t id, const struct sfs_lease *head, struct sfs_leasefile *l);
/* Read a lease; -EINVAL with a sentence for one that is damaged, -EPROTONOSUPPORT for a future format. */
int sfs_lease_load(const struct sfs_root *r, uint32_t id, struct sfs_leasefile *l, struct sfs_why *why);
/* Allow the log to name an inode. Returns the entry's index. Durable on return where l->sync. */
int64_t sfs_lease_add_inode(struct sfs_leasefile *l, uint64_t ino, uint32_t gen);
int sfs_lease_del_inode(struct sfs_leasefile *l, uint32_t index);
int sfs_lease_add_chunk(struct sfs_leasefile *l, uint32_t chunk);
int sfs_lease_del_chunk(struct sfs_leasefile *l, uint32_t chunk);
int sfs_lease_set_held(struct sfs_leasefile *l, enum sfs_held held);
/* The client asks for a file: not quiet any more. Before it is answered. */
int sfs_lease_not_quiet(struct sfs_leasefile *l);
/*
 * Nobody's now: of what the log may name only staging file `keep` (0: none) stays. Durable on return where l->sync. l: a copy; its arrays, which
 * it is without afterwards, are the caller's to free.
 */
int sfs_lease_spare(struct sfs_leasefile *l, uint32_t keep);
/* A spare one has a new holder: who head says. */
int sfs_lease_give(struct sfs_leasefile *l, const struct sfs_lease *head);
void sfs_lease_close(struct sfs_leasefile *l);
int sfs_lease_remove(const struct sfs_root *r, uint32_t id);
/* Does the process that holds this lease still run, in the boot in which the log was made, and with the log mapped? */
bool sfs_lease_alive(const struct sfs_lease *head, int logfd);

/* --- staging files (pool.c) */

/*
 * Sizes of staging files. Where a full-size one is much larger than a small one, the space of one of them is for tiny and small ones: a
 * program that stages a few bytes and ends costs a tiny one, one that stages more a small one next, and only then a full one.
 */
enum sfs_chunk_size { SFS_TINY, SFS_SMALL, SFS_FULL };
#define SFS_LESSER_SIZES 2u
#define SFS_TINY_CHUNK	 (64ull << 10)
#define SFS_SMALL_CHUNK	 (2ull << 20)
static inline uint64_t sfs_lesser_bytes(unsigned size)
{
	return size == SFS_TINY ? SFS_TINY_CHUNK : SFS_SMALL_CHUNK;
}
struct sfs_pool_plan {
	uint32_t full;	/* full-size staging files */
	uint32_t small; /* at most so many of each lesser size are kept ready; 0: there are none */
};
struct sfs_pool_plan sfs_pool_plan(uint64_t pool_bytes, uint64_t chunk_bytes);

/*
 * Make staging file `id`: allocated, filled with zeros (so that its blocks are data and not holes, see relink.h), its pages in
 * memory; on persistent memory durable, and aligned for 2 MiB mappings where the free space allows. It appears under its name only
 * when it is complete.
 */
int sfs_chunk_create(const struct sfs_root *r, uint32_t id, uint64_t bytes, struct sfs_why *why);
int sfs_chunk_open(const struct sfs_root *r, uint32_t id);
int sfs_chunk_remove(const struct sfs_root *r, uint32_t id);
/*
 * Take it out of sight, before its lease names it no more: from there on it would be given to the next client, with what it holds. So on
 * persistent memory, where an entry of a lease does not wait for the journal, the journal has the name when this returns.
 */
int sfs_chunk_hide(const struct sfs_root *r, uint32_t id);
/* Those that were removed stay removed, whatever is stored to a lease next. */
int sfs_chunk_settle(const struct sfs_root *r);
/* Numbers of all staging files; leftovers of interrupted creations are removed when `clean`. */
int sfs_chunk_list(const struct sfs_root *r, struct sfs_numbers *l, bool clean, struct sfs_why *why);
/* Is it whole (right size, no hole), so that it may be leased? */
bool sfs_chunk_whole(const struct sfs_root *r, uint32_t id, uint64_t bytes);

/* --- totals.c: what outlives the logs */

/* Not as the file has them (totals.c). */
struct sfs_totals {
	struct sfs_counters counters; /* of processes that are gone */
	/* runs: that had something to do */
	uint64_t recovery_runs, recovery_records, recovery_replayed, recovery_quarantined;
	uint64_t
		settled_log; /* sfs_log_mark() of the log whose counters are in here already, should it still be there; 0: none */
	struct sfs_latencies latency[SFS_MODES];
};

void sfs_counters_add(struct sfs_counters *to, const struct sfs_counters *from);
/* Zeros when there is no file yet or it is damaged. */
int sfs_totals_read(const struct sfs_root *r, struct sfs_totals *t);
int sfs_totals_write(const struct sfs_root *r, const struct sfs_totals *t);

/* --- proc.c */

/* /proc/PID/cgroup: a line for each hierarchy. "" when it can't be read. */
#define SFS_CGROUPS_MAX 16384
void sfs_process_cgroups(int pid, char text[SFS_CGROUPS_MAX]);
/* Start time of a process, field 22 of /proc/PID/stat; 0 when there is no such process. */
uint64_t sfs_process_start(int pid);
/*
 * And the process's name, without its path; "" when there is none. image: another number after execve, the same after fork; 0: unknown, or it has no
 * memory any more.
 */
uint64_t sfs_process_start_comm(int pid, char comm[16], uint64_t *image);
/* As ps shows it: T stopped, D in the kernel, ...; '?' without such a process. */
char sfs_process_state(int pid);
/* The number in a field of /proc/PID/status; 0 without one. */
long sfs_process_number(int pid, const char *field);
/* The system call that a thread stands in, and the instruction behind it. */
struct sfs_call {
	long nr; /* or one of the following */
	unsigned long arg[4];
	unsigned long pc; /* 0: unknown */
};
#define SFS_CALL_NONE	 (-1) /* it stands in none, or we may not look */
#define SFS_CALL_RUNNING (-2) /* it does not stand still yet */
/* Waits at most wait_ms for the thread to stand still: somebody who waits for an answer of ours is about to. False: it can't be read. */
bool sfs_process_call(int tid, struct sfs_call *call, unsigned wait_ms);
/* The children that the thread has made, of those that are still there the last `max`, in the order in which they were made. How many. */
uint32_t sfs_thread_children(int pid, int tid, int *children, uint32_t max);
/* Those of all threads of the process, up to max, as long as there are looks, one for each thread. */
uint32_t sfs_process_children(int pid, int *children, uint32_t max, uint32_t *looks);
/* How long the thread has run in its program, ticks of 10 ms; 0: or unknown. */
uint64_t sfs_thread_ran(int pid, int tid);
/* The program's file, as its own mount namespace names it; else its name; without control characters. */
void sfs_process_program(int pid, char *name, size_t size);
/* Printable ASCII of a text that somebody else has chosen, cut off where `to` ends. */
void sfs_printable(char *to, size_t size, const char *from);
/* Does the process see a mount of the device that is not read-only? No, when we may not look. */
bool sfs_process_mounts_writable(int pid, dev_t dev);

/* --- opened.c */

/* Has the process mapped the file with this inode number? Yes, when we may not look: a program that was replaced by exec has not. */
bool sfs_process_maps(int pid, uint64_t ino);
/* How a process has the file with this inode number on this device open, or mapped. UNKNOWN: we may not look, or there is too much to look at. */
enum sfs_opened { SFS_OPENED_NOT, SFS_OPENED_READ, SFS_OPENED_WRITE, SFS_OPENED_UNKNOWN };
/* Threads whose tables of descriptors are looked at beside the first one's, as they may have their own. */
#define SFS_TABLES_MAX 4u
struct sfs_tables {
	int tid[SFS_TABLES_MAX];
	uint32_t n;
	bool all;  /* every thread's */
	bool ring; /* a ring of the process may have files that have no descriptor */
};
enum sfs_opened sfs_process_opened(int pid, dev_t dev, uint64_t ino, const struct sfs_tables *tables);
/* The same of many files at once, by the first 4,096 descriptors of each table alone. Is any open? */
struct sfs_sought {
	uint64_t ino;
	enum sfs_opened has;
};
/* looks, if not NULL: how many threads and descriptors may be looked at, and are left; where that is not enough the process has all of the files. */
bool sfs_process_opened_any(int pid, dev_t dev, struct sfs_sought *files, uint32_t n, uint32_t *looks);

/* --- used by all of these */
int sfs_list_dir(int dirfd, const char *suffix, struct sfs_numbers *l);
/* The name of file `number` of a numbered directory: NNNNNN and the suffix. */
void sfs_number_name(char name[32], uint32_t number, const char *suffix);
/* Open it: a regular file, or -EINVAL. A descriptor or a negative errno value. */
int sfs_number_open(int dirfd, uint32_t number, int flags);
/* Remove it; 0 also when it is not there. */
int sfs_number_remove(int dirfd, uint32_t number, const char *suffix);
int sfs_fill_zero(int fd, uint64_t bytes);

/* --- align.c */

/* Allocate an empty file, a multiple of 2 MiB, so that as many of its units as the free space allows can be mapped by one huge page each. */
int sfs_allocate_huge(int fd, uint64_t bytes);
/*
 * On persistent memory: the file's blocks, which are allocated, become written ones, of zeros, by faults: for a write the file system would zero them as
 * well, before it copies our zeros to them. False: not all are, and what is missing has to be written.
 */
bool sfs_write_huge(int fd, uint64_t bytes);

#endif
