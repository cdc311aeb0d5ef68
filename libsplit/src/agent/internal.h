/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent inside. One thread runs a loop over epoll and never waits for anything else; whatever takes time (filling staging
 * files, making logs, recovering the dead) is done by one worker thread. They share struct worker and nothing else. (A third
 * thread, listener.c, reads what the kernel asks and hands it to the loop.)
 *
 *   agent.c       start, loop, stop
 *   accept.c      new connections
 *   client.c      connections and their life
 *   versions.c    which version of the protocol it is spoken in
 *   request.c     what clients ask for
 *   logs.c        logs that begin small and grow
 *   chunks.c      staging files: who gets which
 *   rights.c      what a descriptor proves that a client shows
 *   tenants.c     what all clients of a pod may take together
 *   delegation.c  who may cache and stage what: what clients say and are told
 *   granting.c    who gets what, and who waits for it (turns)
 *   holds.c       inodes, and what clients hold of them
 *   look.c        who wants the kernel's view of a file to be true
 *   owners.c      the table that clients look at before they ask
 *   target.c      the way back to a file that is open no more
 *   worker.c      the worker thread
 *   orders.c      what the loop has it do
 *   making.c      logs and staging files that it makes
 *   replay_log.c  logs of the dead
 *   fill.c        how much of a processor it takes to fill the pool
 *   outsider.c    programs without the library that open a file which clients have
 *   listener.c    the thread that the kernel asks about them
 *   enforce.c     they are refused where they want to write
 *   refused.c     what was done with them
 *   policy.c      whose programs are
 *   code.c        which code of a process the library stands before
 *   overdue.c     who waits too long for whom
 *   wire.c        messages with descriptors
 */
#ifndef SFS_AGENT_INTERNAL_H
#define SFS_AGENT_INTERNAL_H

#include <pthread.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/enforce.h"
#include "agent/tenants.h"
#include "agent/worker.h"
#include "format/layout.h"
#include "format/proto.h"
#include "recover/recover.h"
#include "relink/relink.h"
#include "control/memory.h"
#include "control/root.h"
#include "control/store.h"
#include "control/versions.h"

#define HELLO_SECONDS	  5 /* for the first message of a connection */
#define RESUME_SECONDS	  3 /* for clients of the agent before us */
#define STOP_SECONDS	  3 /* for recoveries that are under way when the agent is to stop */
#define RETRY_SECONDS	  5 /* after a recovery that failed (a full file system) */
#define CLIENTS_MAX	  4096u
#define CLIENT_FDS	  6u /* socket, event socket, process, log, lease, and one to spare */
#define OTHER_FDS	  128u
#define COMPLAINT_SECONDS 60
#define ACCEPTS_MAX	  16	/* a round */
#define STRANGERS_MAX	  1024u /* connections that have not said HELLO */
#define HOLDS_MAX	  (1u << 20)
#define LOOKS_MAX	  4096u /* questions that wait */
#define LOG_TIMES	  3u	/* the same for logs as below */
#define CHUNK_TIMES	  3u	/* a tenant may have so many times the staging space that it leaves free */
#define OUTSIDER_BUCKETS  256
#define OUTSIDER_WAIT_MS  3000 /* so long a program without the library waits in open for who has the file */
#define SPARE_LOGS	  2u
#define FIRST_SLOTS	  192u /* of a log that nobody has written to: 20 KiB; the longest group (io/staged.h) fits */
#define GROWTH		  8u   /* times as long, each time */
#define SPARE_CHUNKS	  2u   /* at least so many staging files are kept ready, also when the pool is leased out */

/* What an epoll event is about. */
enum source_kind { SRC_LISTEN, SRC_SIGNAL, SRC_WORKER, SRC_OPENS, SRC_CLOSES, SRC_POLICIES, SRC_REQUEST, SRC_EVENT, SRC_PIDFD };
struct source {
	enum source_kind kind;
	struct client *client;
};

enum client_state {
	C_STRANGER,	/* no HELLO yet */
	C_WAIT_LOG,	/* HELLO, reply when the worker has made a log */
	C_WAIT_GROW,	/* HELLO of who knows of no log that grows, reply when it is long enough */
	C_READY,	/* no request under way */
	C_WAIT_CHUNK,	/* reply when the worker has made a staging file */
	C_WAIT_ACQUIRE, /* of who does not know SFS_FEATURE_TURN: reply when other clients have stepped down */
	C_AWAY,		/* a living client of the agent before us that has not come back yet */
	C_DYING,	/* being recovered */
	C_GONE,		/* off the list; freed when the loop comes round */
};

/* What a client has shown that it may do with the volume (rights.c). */
enum right {
	RIGHT_NONE,  /* no file of the volume */
	RIGHT_READ,  /* a mount that is read-only, and its process sees no other: nothing of the volume's space */
	RIGHT_MOUNT, /* a writable mount: a log */
	RIGHT_WRITE, /* a file that it may write: staging files */
};

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

struct client {
	/* In order of arrival. `next` stays valid while C_GONE, so that whoever walks the list may drop clients. */
	struct client *prev, *next, *next_gone;
	struct client *next_of_pid; /* chain of the listener's table */
	enum client_state state;
	struct tenant *tenant;
	bool held; /* its tenant's time is up: its requests wait */
	struct source request_src, event_src, pidfd_src;
	int sock, event, pidfd;
	int pid;
	struct code code; /* of its process, once that was looked at; under the listener's lock */
	uint32_t uid;
	uint64_t start;
	char comm[16];
	uint64_t deadline; /* ms; of a stranger, or of the next try to recover */
	bool event_blocked;
	bool queued; /* the worker has it */

	enum sfs_mode mode;
	enum right right;
	uint32_t version; /* of the protocol, that both speak; of one that has said nothing yet the oldest */
	uint64_t features;
	bool counted_away; /* the inodes in its lease are counted */
	uint32_t log_id;   /* 0: none */
	int log_fd;
	uint32_t log_slots; /* of the log; the worker's while it grows */
	bool growing;	    /* the worker makes it longer */
	struct sfs_leasefile lease;
	uint32_t lesser[SFS_LESSER_SIZES]; /* of its staging files the one of that size; 0: none */
	bool given[SFS_FULL + 1];	   /* it has had one of that size */
	uint32_t extra;			   /* full-size ones beyond its part of the pool */
	bool wants_extra;		   /* C_WAIT_CHUNK */
	enum sfs_chunk_size wants;	   /* C_WAIT_CHUNK */

	struct hold *holds;
	uint32_t nholds;

	uint64_t wait_since; /* ms; C_WAIT_LOG, C_WAIT_CHUNK */
};

/* What the kernel tells of programs without the library. */
struct outsiders {
	pthread_t thread;
	bool started;
	int opens_fd;	       /* fanotify: who is about to open; -1: the kernel does not ask us */
	struct gate *gate;     /* gate.c; NULL: the group is ours alone */
	struct question *left; /* what the agent before us has read and not answered */
	uint32_t nleft;
	bool early;	  /* who is refused is not known yet: questions wait for the look; atomic */
	int closes_fd;	  /* fanotify: who has closed */
	int questions[2]; /* from the thread to the loop */
	int stop_fd;	  /* eventfd */
	uint32_t taken;	  /* counts the loop's looks at the questions; atomic */
	bool handed;	  /* the thread's: some have gone to the loop since none was waiting */
	struct source questions_src, closes_src;
	uint32_t nopening; /* opens that wait for an answer */
	pthread_mutex_t lock;
	/* By process; under the lock, as are their pid and sock while they are in here. */
	struct client *clients[OUTSIDER_BUCKETS];
};

struct agent {
	const struct sfs_agent_config *config;
	struct sfs_root root;
	enum sfs_memory memory; /* what the volume is on */
	unsigned long fs_type;	/* as statfs says */
	enum relink_provider provider;
	bool by_handle; /* open_by_handle_at works */
	int pid;	/* our own */
	int epoll, listen_fd, signal_fd, dir_fd;
	char socket_path[SFS_SOCKET_PATH];
	struct source listen_src, signal_src, worker_src, policies_src;
	/* SIGTERM arrived: we wait for recoveries, or for the last user (private_dir). */
	bool stopping;
	uint64_t stop_until;   /* ms */
	uint64_t accept_again; /* ms: no descriptors were left */

	struct client *clients, *clients_last, *gone;
	uint32_t nclients, nstrangers, places;
	uint32_t in_state[C_GONE + 1]; /* clients by state */
	struct tenant *tenants;
	char tenant_own[TENANT_NAME];	/* what the agent itself would be; "": nothing that is known */
	uint64_t tenants_refilled;	/* us */
	uint32_t nheld, nholds, nlooks; /* of all tenants */
	uint64_t round;			/* of the loop */
	uint64_t grace_until;		/* ms: ACQUIRE waits for the clients of the agent before us */

	struct dnode **table;
	uint32_t table_size, ndnodes;
	uint64_t revoke_number;	    /* of the last REVOKE */
	struct owners *owners;	    /* NULL: there is no table */
	uint64_t owners_ino;	    /* its file's */
	struct shown shown;	    /* of the request that is handled */
	struct look *looks;	    /* oldest first */
	uint64_t look_ms;	    /* so long one waits for a process that does not answer */
	bool claimed;		    /* an ACQUIRE waits for the end of a claim, which nobody tells us of */
	TAILQ_HEAD(, hold) waiting; /* holds in queues */
	uint64_t walk;		    /* of the last each_waiting() */

	struct made *spare_logs;
	uint32_t nspare_logs;
	uint32_t spare_target; /* how many there should be: more once somebody had to wait for one */
	uint32_t *free_chunks;
	uint32_t nfree_chunks, free_chunks_room;
	uint32_t leased_chunks; /* full-size ones */
	uint32_t extra_chunks;	/* of those, beyond the parts of the pool */
	uint32_t log_blocks;	/* of the logs of all clients */
	uint32_t client_chunks_max;
	struct sfs_pool_plan plan;
	struct spares lesser[SFS_LESSER_SIZES];
	uint32_t leased_lesser[SFS_LESSER_SIZES];

	struct worker worker;
	struct outsiders outsiders;
	struct enforcer enforcer;

	uint64_t overdue_ms, overdue_total;
	uint32_t overdue_listed;
	struct sfs_refused refused; /* because of the protocol's version */

	uint32_t log_tokens;
	uint64_t log_refill;
};

/* agent.c */
uint64_t agent_now(void); /* ms, monotonic */
/* A line on standard error; a flood of them is cut off. */
void agent_log(struct agent *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Listen for clients: on config->listen_fd, or on a socket of the agent's own (socket.c). */
int agent_listen(struct agent *a, struct sfs_why *why);
int agent_watch(struct agent *a, int fd, uint32_t events, struct source *src);
void agent_rewatch(struct agent *a, int fd, uint32_t events, struct source *src);
void agent_unwatch(struct agent *a, int fd);

static inline void drop_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* accept.c */
void client_accept(struct agent *a);

/* client.c */
/* NULL: no memory. */
struct client *client_new(struct agent *a, enum client_state state, int pid, uint32_t uid);
void client_event(struct agent *a, struct client *c, enum source_kind kind, uint32_t events);
/* End it: its log is recovered when it has one. `why` (or NULL: it left) goes to the log. */
void client_drop(struct agent *a, struct client *c, const char *why);
/* Is it gone now? Else it is tried again. */
bool client_recovered(struct agent *a, struct recovery_job *job);
void client_timeouts(struct agent *a, uint64_t now);
/* Clients of the agent before us. */
int client_load_away(struct agent *a, struct sfs_why *why);
uint32_t client_count(const struct agent *a, enum client_state state);
void client_set_state(struct agent *a, struct client *c, enum client_state state);
/* 0, or the client is dropped: then nothing more is to be done for it. A failed HELLO always ends the connection. */
int client_reply(struct agent *a, struct client *c, const struct sfs_msg *m, const int *fds, int nfds);
int client_reply_error(struct agent *a, struct client *c, uint16_t type, int err, const char *text);
/* On its event socket. False: it is full, or closed; when it takes messages again deleg_send_revokes() is called. */
bool client_tell(struct agent *a, struct client *c, const struct sfs_msg *m);
void client_free_gone(struct agent *a);
void client_free_all(struct agent *a);

void client_watch_event(struct agent *a, struct client *c);
/* A request of a client that may make one has come. */
void client_request(struct agent *a, struct client *c);
/* The client's requests wait, or wait no more. */
void client_hold(struct agent *a, struct client *c, bool hold);
/* Has nothing come from it that is not read yet? */
bool client_silent(const struct client *c);

/* chunks.c */
void chunk_ask(struct agent *a, struct client *c, uint64_t bytes, uint64_t whole);
void chunk_return(struct agent *a, struct client *c, uint64_t id);
/* It waits for a staging file: is there one for it? Then it gets that. */
bool chunk_ready(const struct agent *a, const struct client *c);
void chunk_give(struct agent *a, struct client *c);
/* Those in its lease count, or count no more. */
void chunks_count(struct agent *a, struct client *c, int by);
/* Of a client of the agent before us: which are of what size. */
void chunks_known(struct agent *a, struct client *c);
/* How many clients wait for one of that size. */
uint32_t chunks_awaited(const struct agent *a, enum sfs_chunk_size size);
uint64_t chunks_leased_bytes(const struct agent *a);
/* The spare ones go. How many those were. */
uint32_t chunks_give_up(struct agent *a);

/* logs.c */
/* Make it longer, if that may be. */
void logs_grow(struct agent *a, struct client *c);
/* It is longer, or could not be made so. */
void logs_grown(struct agent *a, struct growth *g);
/* How many the log of a client of the agent before us has. */
uint32_t logs_slots(const struct agent *a, const struct client *c);
/* So many slots of the client's count for its tenant: by 1; or no more: by -1. */
void logs_count(struct agent *a, struct client *c, uint32_t slots, int by);

/* rights.c */
enum right right_shown(const struct agent *a, int fd);
/* The same, with what was found out: how it was opened (unless the answer is RIGHT_NONE), and of what. */
enum right right_of_fd(const struct agent *a, int fd, int *flags, struct stat *st);
/* The same, and of the mounts that the client's process sees. */
enum right right_of_client(const struct agent *a, const struct client *c, int fd);
/* What a client has shown to the agent before us, as its lease says. */
enum right right_resumed(const struct client *c);

/* versions.c */
void versions_start(struct agent *a);
/* HELLO or PEEK: the client is spoken to in a version that both know from now on; false: there is none, and it is gone. */
bool versions_meet(struct agent *a, struct client *c, const struct sfs_msg *m);

/* request.c */
/*
 * A descriptor that came with the message is closed before the reply: whoever has that may close the file and execute it, which
 * fails while anybody has it open for writing.
 */
void request_handle(struct agent *a, struct client *c, const struct sfs_msg *m, int *fd);
/* Programs start faster than what each of them needs is made. */
void request_more_spare(struct agent *a);
/* The client's log is as long as it shall be at first. */
void request_welcome(struct agent *a, struct client *c);
/* The worker has made something: serve who waits for it. */
void request_serve_waiting(struct agent *a);
void request_fail_waiting(struct agent *a, enum client_state state, int err);
/* Ask the worker for what is missing. */
void request_refill(struct agent *a);

/* delegation.c */
/* ACQUIRE and RELEASE of client c; *fd: see request_handle(). */
/* 0 when fd is the regular file of this volume that the message names, opened for reading or writing; *flags: F_GETFL. */
int deleg_check(const struct agent *a, const struct sfs_msg *m, int fd, int *flags);
/* watch.c */
void deleg_watch(struct agent *a, struct client *c, const struct sfs_msg *m, int *fd);
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

/* listener.c */
/* Before the volume is opened: where the group is the one of the agent before us, the kernel asks about our own opens. */
int listener_start(struct agent *a);
/* It is known who is refused. */
void listener_decide(struct agent *a);
/* The kernel lets everybody go on whose question was not answered. */
void listener_stop(struct agent *a);
/* From when its process and connection are known until one of them is not; a client that was not added may be removed. */
void listener_add_client(struct agent *a, struct client *c);
void listener_del_client(struct agent *a, struct client *c);
/* Is it a client's? One that has executed another program is none any more, also when the loop has not got round to it. */
bool listener_is_client(struct outsiders *o, int pid);
/* The code of the client's process. */
void listener_code(struct outsiders *o, int pid, const struct code *code);
/* The open that the kernel asks about goes on, or fails with EPERM; fd: the kernel's, closed. */
void listener_answer(const struct outsiders *o, int fd, bool allow);
/* The thread of enforce.h is to look at who asks that. */
void listener_ask_look(struct agent *a, const struct question *q);

/* gate.c */
int gate_open(struct agent *a);
void gate_close(struct outsiders *o);
/* A question was read, and has been answered. */
void gate_note(const struct outsiders *o, int fd, int tid);
void gate_answered(const struct outsiders *o, int fd);
/* What the agent before us left without an answer is looked at. */
void gate_ask_again(struct agent *a);

/* outsider.c */
/* Does the thread open for writing? It stands in that call until we answer. */
bool outsider_writes(int tid, const struct sfs_call *call);
/* From now on the kernel asks before somebody opens the file to which `way` leads. Does nothing where it can't be asked. */
void outsider_mark(struct agent *a, struct dnode *d, const struct target *way);
void outsider_unmark(struct agent *a, struct dnode *d);
/* A client is about to have the kernel change the file, or to ask it for a lease: if nobody may stage, the kernel asks no more. */
void outsider_rest(struct agent *a, struct dnode *d);
/* Answer opens that wait. False: somebody still has to bring in what is staged; call again when that has changed. */
bool outsider_settle(struct agent *a, struct dnode *d);
/* Of the file that the kernel's descriptor is open on; or NULL. */
struct dnode *outsider_dnode(const struct agent *a, int fd);
void outsider_opens(struct agent *a);
void outsider_timeouts(struct agent *a, uint64_t now);
/* fanotify_mark() of a group of ours, and its end, of which errors are only told. 0, or a negative errno value. */
int outsider_ask(const struct agent *a, int group, unsigned how, uint64_t mask, const struct target *t);
void outsider_ask_no_more(struct agent *a, const struct dnode *d, int group, uint64_t mask);

/* openers.c */
/* The process, without the library, is about to have it open. d is marked. */
void openers_add(struct agent *a, struct dnode *d, int pid, bool writes);
/* A process that was taken for one without the library has turned out to have it. */
void openers_is_client(struct agent *a, struct dnode *d, int pid);
void openers_forget(struct agent *a, struct dnode *d);
/* Does such a program have it open, and shall we see when no more? */
bool openers_watched(const struct dnode *d);
void openers_closes(struct agent *a);

/* overdue.c */
void overdue_check(struct agent *a, uint64_t now);

/* wire.c */
int wire_send(int sock, uint32_t version, const struct sfs_msg *m, const int *fds, int nfds);
/* 1 message, 0 end, negative errno value. *fd: the first descriptor or -1; further ones are closed and counted as an error. */
int wire_recv(int sock, struct sfs_msg *m, int *fd);

#endif
