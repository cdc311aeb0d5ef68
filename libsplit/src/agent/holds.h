/* SPDX-License-Identifier: Apache-2.0 */
/* Inodes, what clients hold of them, and who waits for what; part of agent/internal.h. */
#ifndef SFS_AGENT_HOLDS_H
#define SFS_AGENT_HOLDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "control/why.h"
#include "format/proto.h"

struct agent;
struct client;
struct file_handle;

/* How a hold stands in the table (owners.h). */
enum counted {
	NOT_COUNTED,
	COUNTED_OTHER,	/* it may remember what the file is like */
	COUNTED_STAGER, /* it may stage */
};

/* How recovery finds a file again: by handle where we may open by handle, else by a descriptor that is kept. */
struct target {
	uint64_t ino;
	uint32_t gen;
	int fd;			    /* or -1 */
	struct file_handle *handle; /* or NULL */
};

/* A file whose descriptor came with a message; fd is -1 once that is closed. */
struct shown {
	uint64_t ino;
	uint32_t gen;
	int fd;
};

/*
 * A client's place in the queue of an inode.
 *
 *   state        goes on as
 *   TURN_NONE    ASKED: an ACQUIRE has come
 *   TURN_ASKED   NONE: answered; QUEUED: the reply says that it has to wait. It stays ASKED where the client waits for the reply itself
 *   TURN_QUEUED  CALLED: nothing is in its way, TURN is sent; ASKED: it asks again before; NONE: it can't wait any more
 *   TURN_CALLED  ASKED: it comes; NONE: it did not come within SFS_TURN_MS, or can't wait any more
 */
enum turn_state { TURN_NONE, TURN_ASKED, TURN_QUEUED, TURN_CALLED };
struct turn {
	enum turn_state state;
	TAILQ_ENTRY(hold) place; /* in the queue of the inode */
	TAILQ_ENTRY(hold) among; /* among all that wait */
	uint64_t walk;		 /* each_waiting() */
	uint64_t flags;		 /* SFS_ACQ_* */
	uint64_t since, report;	 /* ms: when it began, and after how long to say so */
	uint64_t called;	 /* ms */
	bool unsent;		 /* the client's socket has been full: TURN is to be sent */
};

/*
 * Is it known which programs without the library have had the file open since before the kernel asked about it (before.c)?
 *
 *   BEFORE_UNKNOWN  WAITS: a client is granted it
 *   BEFORE_WAITS    ASKED: the thread looks; UNKNOWN: the kernel asks about it no more
 *   BEFORE_ASKED    KNOWN: it has looked; WAITS: there was too much to see; UNKNOWN as before
 *   BEFORE_KNOWN    UNKNOWN as before
 */
enum before { BEFORE_UNKNOWN, BEFORE_WAITS, BEFORE_ASKED, BEFORE_KNOWN };

/* An inode that at least one client has open. */
struct dnode {
	struct dnode *next; /* hash chain */
	uint64_t ino;
	uint32_t gen;
	struct hold *holds;
	TAILQ_HEAD(, hold) queue; /* who waits for it: granting.c */
	/* Programs without the library (outsider.c): */
	bool marked;		    /* the kernel asks us before an open */
	struct target way;	    /* to the file, while it is marked */
	struct opening *opening;    /* waiting for our answer, oldest first */
	struct outsider *outsiders; /* have it open (openers.c) */
	uint32_t writers;	    /* those for writing */
	bool shown_outside;	    /* the table says so */
	enum before before;
	TAILQ_ENTRY(dnode) before_place; /* WAITS */
};

/* One client's part in a dnode. */
struct hold {
	struct hold *dnode_next, *client_prev, *client_next;
	struct client *client;
	struct dnode *dnode;
	enum sfs_delegation deleg; /* never lower than what the client believes */
	enum counted counted;	   /* while deleg is EXCLUSIVE, and until the client is recovered */
	bool pinned;		   /* the client goes on using the kernel's view whatever is asked: it has the file mapped */
	bool open;		   /* false: released; kept for the answers that are still to come */
	bool assumed;		   /* from a lease of the agent before us, the client has not said so itself */
	bool limited;		   /* never EXCLUSIVE: the file may not be replayed into (append-only, immutable) */
	bool by_kernel;		   /* SFS_ACQ_KERNEL: nor while that is asked */
	bool revoking;		   /* REVOKE to revoke_to is to be answered */
	bool unsent;		   /* and has not been sent yet */
	enum sfs_delegation revoke_to;
	uint64_t revoke_number;
	uint32_t stale;	     /* REVOKEs sent whose answers mean nothing any more */
	int64_t lease_index; /* in the client's lease, or -1: the client may not write */
	struct target target;
	struct turn turn;
};

/* watch.c */
void deleg_watch(struct agent *a, struct client *c, const struct sfs_msg *m, int *fd);

/* delegation.c */
/* 0 when fd is the regular file of this volume that the message names, opened for reading or writing; *flags: F_GETFL. */
int deleg_check(const struct agent *a, const struct sfs_msg *m, int fd, int *flags);
/* ACQUIRE and RELEASE of client c; *fd: see request_handle(). */
void deleg_acquire(struct agent *a, struct client *c, const struct sfs_msg *m, int *fd);
void deleg_release(struct agent *a, struct client *c, uint64_t ino, uint32_t gen);
void deleg_revoked(struct agent *a, struct client *c, const struct sfs_msg *m);
/* The event socket takes messages again. */
void deleg_send_revokes(struct agent *a, struct client *c);
/* The client is recovered (or never staged): nothing of it is left. */
void deleg_forget_client(struct agent *a, struct client *c);
/* The client came back: what its lease names it may hold EXCLUSIVE. */
int deleg_assume(struct agent *a, struct client *c);
void deleg_step_down(struct agent *a, struct hold *h, enum sfs_delegation to);

/* granting.c */
/* An ACQUIRE of it is answered when its turn has come. flags: SFS_ACQ_* */
void deleg_wait(struct agent *a, struct hold *h, uint64_t flags);
/* It waits no more, if it did. deleg_process() of the inode is to follow. */
void deleg_leave_queue(struct agent *a, struct hold *h);
/* The same of all that the client waits for. */
void deleg_cancel_waits(struct agent *a, struct client *c);
/* Something that waiting clients depend on has changed: of one inode, which may be gone then; of any. */
void deleg_process(struct agent *a, struct dnode *d);
void deleg_retry_all(struct agent *a);
/* Who was called and did not come. */
void deleg_turns_over(struct agent *a);
/* The event socket takes messages again. */
void deleg_send_turn(struct agent *a, struct hold *h);
/* EXCLUSIVE, counted before anybody may act upon it. False: another client is changing the file by the kernel at this moment. */
bool deleg_grant(struct agent *a, struct hold *h);
/* Is the file nobody else's, as far as we know? One that goes by the table does not count: it looks before each call. */
bool deleg_unused(const struct agent *a, const struct dnode *d, const struct hold *h);
/* No outsider has it open any more: the only client, if it is the only one, may have it EXCLUSIVE when it asks the next time. */
void deleg_alone_again(struct agent *a, struct dnode *d);
/* Does a client that has not come back, or is being recovered without holds, name the inode in its lease? */
bool deleg_away_has(const struct agent *a, uint64_t ino);

/* holds.c */
struct dnode *deleg_find(const struct agent *a, uint64_t ino, uint32_t gen);
/* The inodes with this number: of every generation. */
struct dnode *deleg_first(const struct agent *a, uint64_t ino);
struct dnode *deleg_next(const struct dnode *d);
/* With that of the file, made where there was none; NULL: out of memory. */
struct dnode *dnode_get(struct agent *a, uint64_t ino, uint32_t gen);
/* It goes, if nobody has to do with it. */
void dnode_put(struct agent *a, struct dnode *d);
/* What c holds of it, or NULL. */
struct hold *hold_find(const struct dnode *d, const struct client *c);
/* The same, made where there is none. NULL: too many, or no memory. */
struct hold *hold_get(struct agent *a, struct client *c, uint64_t ino, uint32_t gen);
/* dnode_put() is to follow. */
void hold_free(struct agent *a, struct hold *h);
/* Take the targets of c's holds for recovery. */
struct target *deleg_take_targets(struct client *c, size_t *n);
void deleg_free_targets(struct target *list, size_t n);
/* The agent stops, and all clients are gone. */
void deleg_free_all(struct agent *a);

/* look.c */
void look_ask(struct agent *a, struct client *c, const struct sfs_msg *m);
void look_settle(struct agent *a);
void look_forget(struct agent *a, const struct client *c);

/* owners.c */
int owners_start(struct agent *a, struct sfs_why *why);
/* After the clients of the agent before us are counted: what that agent had counted besides is forgotten. */
void owners_settle(struct agent *a);
void owners_stop(struct agent *a);
/* For clients, read-only; -1: there is none. */
int owners_fd(const struct agent *a);
/* Count the hold so; before a grant, and after its end. */
void owners_count(struct agent *a, struct hold *h, enum counted how);
/* The same for all inodes that the lease of a client names. */
void owners_count_away(struct agent *a, struct client *c, bool away);
/* Show whether programs without the library have it open. */
void owners_outside(struct agent *a, struct dnode *d);
/* Did the agent before us say so of an inode with such a number? */
bool owners_said(const struct agent *a, uint64_t ino);
uint32_t owners_number(const struct agent *a, uint64_t ino);
/* Does a client other than that one change the file by the kernel at this moment? What was counted before is in its view. */
bool owners_claimed(const struct agent *a, const struct client *asks, uint64_t ino);

/* target.c */
/* Keep a way back to the open file. Without one it is searched for, so nothing is wrong when this fails. */
void target_keep(struct agent *a, struct target *t, int fd);
int target_copy(struct target *t, const struct target *from);
/* A descriptor (O_PATH, or the kept one) of the file, or a negative errno value; to be closed where `*mine` says so. */
int target_open(const struct agent *a, const struct target *t, bool *mine);
void target_close(struct target *t);

#endif
