/* SPDX-License-Identifier: Apache-2.0 */
/* The worker thread, and what it shares with the loop; part of agent/internal.h. */
#ifndef SFS_AGENT_WORKER_H
#define SFS_AGENT_WORKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "control/store.h"
#include "recover/recover.h"

#define LESSER_MAX SFS_SPARE_LOGS_MAX /* staging files of a lesser size that are ready: one with each log */

struct agent;
struct client;
struct target;

struct made {
	uint32_t id;
	int fd;		       /* of a log */
	struct leftover *left; /* reuse.c; NULL: nobody has had it */
};

/* A recovery: the worker owns client->lease and client->targets while it is under way. */
struct recovery_job {
	struct recovery_job *next;
	struct client *client;
	uint64_t turn;	  /* those of the least come first */
	uint64_t cpu_us;  /* what it took */
	bool reuse;	  /* the log may be kept for the next client of the tenant */
	struct made kept; /* then: the log, when left is not NULL */
	int err;
	int totals_err;
	struct sfs_recovery result;
	struct sfs_why why;
};

/* A log that is to be longer. Done before the client's recovery may begin. */
struct growth {
	struct growth *next;
	struct client *client;
	int fd;
	uint32_t from, slots;
	int err;
};

/* Staging files of a lesser size that are ready. */
struct spares {
	uint32_t n, id[LESSER_MAX];
};

/* What the thread does next. Those that somebody waits for come in turns. */
enum work {
	WORK_RECOVERY,
	WORK_LOG,
	WORK_LESSER,
	WORK_CHUNK,
	WORK_IN_TURNS,
	WORK_GROWTH = WORK_IN_TURNS,
	WORK_REMOVAL,
	WORK_NONE
};

/* What is to be made, and what is waited for. */
struct wanted {
	uint32_t logs;
	uint32_t chunks, chunks_now; /* the latter at once, the others within the budget */
	uint32_t lesser[SFS_LESSER_SIZES], lesser_now;
	uint32_t lesser_over[SFS_LESSER_SIZES]; /* for writes that take no space in the end */
	bool log_urgent;
};

static inline uint32_t missing(uint32_t want, uint32_t have)
{
	return want > have ? want - have : 0;
}

/* The budget of filling the pool; the worker's. Times are nanoseconds of CLOCK_MONOTONIC. */
struct fill {
	unsigned percent; /* of one processor */
	int lock_fd;	  /* held by the agent whose turn it is; or -1 */
	bool turn;
	uint64_t turn_until; /* then others may have it */
	uint64_t rest_until; /* of what was spent last */
};

struct worker {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work;
	int done_fd; /* eventfd: something is done */
	bool stop;
	bool started;
	const struct sfs_root *root;
	uint64_t chunk_bytes;
	uint32_t log_slots; /* the most that a log has */
	uint32_t next_log, next_chunk;
	struct sfs_totals totals; /* the thread's, once it runs */

	/* to do */
	struct recovery_job *recover; /* by turn */
	uint64_t turn;		      /* of the last that was begun */
	enum work last;		      /* of those in turns */
	unsigned lesser_last;	      /* the size that was made last */
	bool short_of_space;	      /* that could not be made: what recoveries give back comes first */
	struct growth *grow;
	struct wanted want;
	struct fill fill;	   /* the thread's */
	uint64_t reserve;	   /* bytes that what is leased may need in the files: no staging file is made of them */
	struct sfs_numbers remove; /* staging files that were renamed away */
	uint32_t remove_room;

	/* done */
	struct recovery_job *recovered;
	struct growth *grown;
	struct made *logs, *chunks;
	uint32_t nlogs, nchunks, logs_room, chunks_room;
	struct spares lesser[SFS_LESSER_SIZES];
	int log_err, chunk_err; /* of the last try; cleared by the loop */
	struct sfs_why log_why, chunk_why;
};

/* worker.c */
int worker_start(struct agent *a);
/* Waits for what the worker is doing now, and only for that. */
void worker_stop(struct agent *a);
uint64_t worker_nanoseconds(clockid_t clock);

/* making.c: the worker's thread, worker.lock held; released while it is at work. */
void making_log(struct worker *w);
void making_grow(struct worker *w);
void making_chunk(struct worker *w);
void making_lesser(struct worker *w);
/* A lesser size of which one is wanted, each in its turn; or SFS_LESSER_SIZES. */
unsigned making_lesser_wanted(const struct worker *w);
void making_remove(struct worker *w);

/* reuse.c: the worker's thread. True: what the client leaves is job->kept; else nothing has changed that counts. */
bool worker_keep_log(struct worker *w, struct recovery_job *job);

/* replay_log.c: the worker's thread. The holder is gone: its data goes into the files, then its log and staging files go. */
void worker_recover_log(struct worker *w, struct recovery_job *job);

/* orders.c: the loop's. */
void worker_recover(struct agent *a, struct recovery_job *job);
void worker_want(struct agent *a, const struct wanted *want);
/* False: no memory. */
bool worker_grow(struct agent *a, struct client *c, uint32_t slots);
/* Remove a staging file that has been renamed to NNNNNN.tmp. */
void worker_remove(struct agent *a, uint32_t chunk);
/* Collect what is done. */
void worker_collect(struct agent *a);

/* fill.c */
/* lock: a file that the agents of a node share, or NULL: the budget is this agent's own. percent: 1 to 100, or 0 for the default. */
int fill_start(struct fill *f, const char *lock, unsigned percent, struct sfs_why *why);
void fill_stop(struct fill *f);
/* When a staging file that nobody waits for may be made: 0 for now, and then it is our turn until fill_rest(); else look again then. */
uint64_t fill_wait(struct fill *f, uint64_t now);
/* A staging file took `cpu` nanoseconds of processor time. */
void fill_spent(struct fill *f, uint64_t now, uint64_t cpu);
/* Nothing to fill for now: others may fill theirs. */
void fill_rest(struct fill *f);

#endif
