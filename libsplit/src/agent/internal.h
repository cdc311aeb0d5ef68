/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent inside. One thread runs a loop over epoll and never waits for anything else; whatever takes time (filling staging
 * files, making logs, recovering the dead) is done by one worker thread. They share struct worker and nothing else. (A third
 * thread, listener.c, reads what the kernel asks and hands it to the loop.)
 *
 *   start.c       the start
 *   agent.c       the loop, and its end
 *   accept.c      new connections
 *   client.c      connections and their life
 *   away.c        clients of the agent before us
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
 *   reuse.c       what they leave to the next client of their tenant
 *   full.c        what a full file system stops
 *   fill.c        how much of a processor it takes to fill the pool
 *   outsider.c    programs without the library that open a file which clients have
 *   how.c         by which calls they open it
 *   openers.c     which of them have it open
 *   closes.c      and until when
 *   before.c      which of them had it open before
 *   looker.c      the thread that looks what they have open
 *   listener.c    the thread that the kernel asks about them
 *   processes.c   which processes are clients'
 *   enforce.c     they are refused where they want to write
 *   refused.c     what was done with them
 *   policy.c      whose programs are
 *   code.c        which code of a process the library stands before
 *   overdue.c     who waits too long for whom
 *   wire.c        messages with descriptors
 *   closing.c     which are closed without a wait
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
#include "agent/holds.h"
#include "agent/looker.h"
#include "agent/outsiders.h"
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
#define AWAY_SECONDS	  5 /* from look to look whether one of them that has not come is still there */
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
#define LOOKS_UNREAD	  64u	/* of a client whose event socket is full; the library has 32 at most */
#define LOG_TIMES	  3u	/* the same for logs as below */
#define CHUNK_TIMES	  3u	/* a tenant may have so many times the staging space that it leaves free */
#define STRANGE_MS	  60000
#define SEARCHED_MAX	  256u
#define OUTSIDER_BUCKETS  256
#define OUTSIDER_LATE	  64
#define OUTSIDER_LATE_MS  100  /* so long a thread that opens a file may take until it stands still in that call */
#define OUTSIDER_WAIT_MS  3000 /* so long a program without the library waits in open for who has the file */
#define SPARE_LOGS	  2u
#define FIRST_SLOTS	  192u /* of a log that nobody has written to: 20 KiB; the longest group (io/staged.h) fits */
#define GROWTH		  8u   /* times as long, each time */
#define SPARE_CHUNKS	  2u   /* at least so many staging files are kept ready, also when the pool is leased out */

/* What an epoll event is about. */
enum source_kind {
	SRC_LISTEN,
	SRC_SIGNAL,
	SRC_WORKER,
	SRC_OPENS,
	SRC_CLOSES,
	SRC_LOOKED,
	SRC_POLICIES,
	SRC_REQUEST,
	SRC_EVENT,
	SRC_PIDFD
};
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
	C_WAIT_LEFT,	/* LEFT, reply when who stages for the file has given it up */
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
	/* Under the listener's lock: */
	struct code code; /* of its process, once that was looked at */
	bool known;	  /* it has said HELLO */
	bool says;	  /* it says where its library is, and which opens that sees */
	uint32_t uid;
	uint64_t start;
	uint64_t image; /* of sfs_process_start_comm(), when it connected */
	char comm[16];
	uint64_t deadline; /* ms; of a stranger, or of the next try to recover */
	bool event_blocked;
	bool queued;	     /* the worker has it */
	bool full;	     /* C_DYING: its recovery has found no space, */
	uint64_t found_free; /* but these bytes */

	enum sfs_mode mode;
	enum right right;
	uint32_t version; /* of the protocol, that both speak; of one that has said nothing yet the oldest */
	uint64_t features;
	unsigned long library[2]; /* the addresses where its code begins and ends */
	bool counted_away;	  /* the inodes in its lease are counted */
	uint32_t log_id;	  /* 0: none */
	int log_fd;
	uint32_t log_slots; /* of the log; the worker's while it grows */
	bool growing;	    /* the worker makes it longer */
	struct sfs_leasefile lease;
	uint32_t lesser[SFS_LESSER_SIZES]; /* of its staging files the one of that size; 0: none */
	bool tiny_kept;			   /* the tiny one came with its log, and it has not asked for one yet */
	bool given[SFS_FULL + 1];	   /* it has had one of that size */
	uint32_t extra;			   /* full-size ones beyond its part of the pool */
	bool wants_extra;		   /* C_WAIT_CHUNK */
	bool wants_over;		   /* the same, for a write over bytes that a file has */
	enum sfs_chunk_size wants;	   /* C_WAIT_CHUNK */

	struct hold *holds;
	uint32_t nholds, nlooks;
	struct target *targets; /* C_DYING: of its holds, for recovery, which may have to be made again */
	size_t ntargets;

	uint64_t wait_since; /* ms; C_WAIT_LOG, C_WAIT_CHUNK */

	struct dnode *leaves; /* C_WAIT_LEFT */
};

/* What the kernel tells of programs without the library. */
struct outsiders {
	pthread_t thread;
	bool started;
	int opens_fd;		/* fanotify: who is about to open; -1: the kernel does not ask us */
	struct gate *gate;	/* gate.c; NULL: the group is ours alone */
	struct question *left;	/* what the agent before us has read and not answered */
	uint64_t strange_until; /* ms: so long files may be marked, by the agent before us, that none of our clients has */
	uint32_t nleft;
	bool early;	  /* who is refused is not known yet: questions wait for the look; atomic */
	int closes_fd;	  /* fanotify: who has closed */
	int questions[2]; /* from the thread to the loop */
	int stop_fd;	  /* eventfd */
	uint32_t taken;	  /* counts the loop's looks at the questions; atomic */
	bool looked;	  /* some have gone to the thread of enforce.h; atomic */
	/* The thread's: */
	bool handed; /* some have gone to the loop since none was waiting */
	/* Of threads that do not stand still yet. */
	struct late {
		struct question q;
		uint64_t since; /* ms */
	} late[OUTSIDER_LATE];
	uint32_t nlate;
	struct source questions_src, closes_src;
	uint32_t nopening; /* opens that wait for an answer */
	struct looker looker;
	struct source looked_src;
	uint32_t opens;	 /* counts those that have numbers */
	uint32_t nasked; /* questions that it has not answered */
	bool looker_late;
	/* Inodes of which the agent before us said that programs without the library have them: it has been looked who. */
	struct searched {
		uint64_t ino;
		uint32_t gen;
	} searched[SEARCHED_MAX];
	uint32_t nsearched;
	TAILQ_HEAD(, outsider) looked_at; /* openers that will be looked at */
	/* Looks for who had a file open before (before.c). */
	struct before_looks {
		struct looker looker;
		TAILQ_HEAD(, dnode) waiting;
		bool asked;
		uint32_t fewer; /* files that the next one is for at most; 0: as many as there is room for */
		uint64_t next;	/* ms: the next one not before that */
	} before;
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
	uint64_t waited_since;	    /* ms: since then somebody waits for a file all the time; 0: nobody does */
	bool claimed;		    /* an ACQUIRE waits for the end of a claim, which nobody tells us of */
	TAILQ_HEAD(, hold) waiting; /* holds in queues */
	uint64_t walk;		    /* of the last each_waiting() */

	struct made *spare_logs;
	uint32_t nspare_logs;
	uint32_t nkeeping;     /* recoveries that may keep one */
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

/* start.c */
int agent_begin(struct agent *a, struct sfs_why *why);

/* agent.c */
uint64_t agent_now(void); /* ms, monotonic */
/* How long to wait until then, ms. */
static inline int agent_until(uint64_t then)
{
	const uint64_t now = agent_now();

	return then > now ? (int)(then - now) : 0;
}
/* The shorter of two waits, ms; -1 is for ever. */
static inline int agent_sooner(int a, int b)
{
	return a < 0 || (b >= 0 && b < a) ? b : a;
}
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
/* Nothing of it is left, on disk or elsewhere. */
void client_gone(struct agent *a, struct client *c);
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

/* away.c */
int client_load_away(struct agent *a, struct sfs_why *why);
/* Of one that has not come back: may it still? */
bool client_still_there(const struct client *c);

/* chunks.c */
void chunk_ask(struct agent *a, struct client *c, uint64_t bytes, uint64_t whole, bool over);
void chunk_return(struct agent *a, struct client *c, uint64_t id);
/* It waits for a staging file: is there one for it? Then it gets that. */
bool chunk_ready(const struct agent *a, const struct client *c);
void chunk_give(struct agent *a, struct client *c);
/* Those in its lease count, or count no more. */
void chunks_count(struct agent *a, struct client *c, int by);
/* Of a client of the agent before us: which are of what size. */
void chunks_known(struct agent *a, struct client *c);
/* How many clients wait for one of that size. over: only those that want it for a write over bytes that a file has. */
uint32_t chunks_awaited(const struct agent *a, enum sfs_chunk_size size, bool over);
uint64_t chunks_leased_bytes(const struct agent *a);
/* The spare ones go. How many those were. */
uint32_t chunks_give_up(struct agent *a);

/* full.c */
/* The recovery has failed: it is tried again. The job goes. */
void full_unrecovered(struct agent *a, struct recovery_job *job);
/* Did the client's recovery find no space, and is there more now? */
bool full_no_more(const struct agent *a, const struct client *c);
/* Is the inode one of a dead client's for whose recovery there is no space? */
bool full_in_way(const struct agent *a, uint64_t ino);
/* Where files are waited for on a full file system the spare staging files go. */
void full_give_way(struct agent *a, uint64_t now);
/* A client has no room for what it has staged. */
void full_asked(struct agent *a);
/* What a client needs could not be made (what: in the log): is there space for it now, as spare staging files have gone? */
bool full_makes_room(struct agent *a, int err, const char *what);

/* reuse.c */
/* The spare log that the client may have: one that its like has left before one that nobody has had. False: there is none. */
bool reuse_find(const struct agent *a, const struct client *c, uint32_t *index);
/* It is spare no more. */
struct made reuse_take(struct agent *a, uint32_t index);
/* The client gets the lease that came with the log. 0, or a negative errno value. */
int reuse_lease(struct agent *a, struct client *c, struct made *log, const struct sfs_lease *head);
/* That failed: what came with the log goes from the client. */
void reuse_failed(struct agent *a, struct client *c);
/* A client has left a log. */
void reuse_keep(struct agent *a, struct client *c, struct made *log);
/* A log that is spare no more goes, with all that was left with it. */
void reuse_drop(struct agent *a, struct made *log);
/* How many of the spare logs somebody has left; those go. */
uint32_t reuse_kept(const struct agent *a);
void reuse_give_up(struct agent *a);
/* May one more be kept, of a client whose recovery begins now? */
bool reuse_may(const struct agent *a);
/* Those that nobody has taken for a while go. */
void reuse_timeouts(struct agent *a, uint64_t now);

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
/*
 * HELLO, PEEK or LEFT: the client is spoken to in a version that both know from now on; false: there is none, and it
 * is gone.
 */
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

/* overdue.c */
void overdue_check(struct agent *a, uint64_t now);

/* wire.c */
int wire_send(int sock, uint32_t version, const struct sfs_msg *m, const int *fds, int nfds);
/*
 * 1 message, 0 end, negative errno value. *fd: the first descriptor or -1; further ones are closed and counted as an error. One that is a socket is closed, as
 * if none had come.
 */
int wire_recv(int sock, struct sfs_msg *m, int *fd);

/* closing.c */
/*
 * What a client has sent: a socket is closed at once, whatever it has in its queue; false: it is none, and still
 * there.
 */
bool wire_close_socket(int fd);
/* Of a client's connection. */
void wire_close(int *sock);

#endif
