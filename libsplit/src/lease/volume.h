/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A volume as this process uses it: what it is, the log and the staging files that its agent has lent, and the conversation with the
 * agent. Everything here is volatile: what survives is in the log and in the staging files.
 */
#ifndef SFS_VOLUME_H
#define SFS_VOLUME_H

#include <errno.h>
#include <sys/types.h>

#include "base/atomic.h"
#include "base/lock.h"
#include "base/protect.h"
#include "base/result.h"
#include "format/layout.h"
#include "format/proto.h"
#include "lease/grant.h"
#include "record/log.h"
#include "relink/relink.h"
#include "staging/pool.h"

#define SFS_VOLUMES_MAX 16
#define SFS_PATH_MAX	1024

enum sfs_volume_state { VOL_UNKNOWN = 0, VOL_READY, VOL_LOST };

/* A question to the agent (LOOK) that a thread waits for the answer of: a futex (ask.c). */
#define SFS_LOOK_WAITS 32
struct sfs_look_wait {
	uint64_t number; /* 0: free */
	uint32_t done;	 /* the lower half of the last number that was answered */
	uint32_t at;
	int status;
};

/* The conversation with the agent. */
struct sfs_agent {
	enum sfs_volume_state state;
	bool away; /* the agent did not come back in time; under request */
	bool complained;
	bool full;		  /* the last HELLO was refused because the volume is full */
	struct sfs_mutex request; /* one request and its reply at a time; held while an ACQUIRE waits for other processes */
	struct sfs_mutex conn;	  /* one message to the agent; held to change request_fd */
	int request_fd;
	int event_fd;
	int hello_fd;		    /* HELLO has been said on it, and the answer is to come; -1 */
	int64_t wait_since;	    /* ms: when the wait for the first answer began; 0: it has not */
	uint32_t version;	    /* of the protocol, that both speak */
	struct sfs_versions theirs; /* of an agent that speaks none of ours */
	int64_t room_asked;	    /* ns: when it was told that there is no room for what is staged, atomic */
	int64_t unmet_until;	    /* seconds: it is not asked again before; 0: it is not so */
	uint64_t features;	    /* that both know of */
	uint32_t connection;	    /* number of the connection; changes with both sockets, request lock held */
	bool peeked;		    /* the table is being asked for, or an agent has answered; atomic */
	int64_t peek_again;	    /* ns: there was no agent, or no answer, and it is not asked for before; atomic */
	bool silent;		    /* there was no answer; whose turn it is to ask (peeked) */
	bool gone;		    /* no agent has answered a question for a while, atomic */
	uint64_t look_number;
	struct sfs_look_wait looks[SFS_LOOK_WAITS];
};

struct sfs_volume {
	enum sfs_mode mode;
	char dir[SFS_PATH_MAX];	   /* mount path */
	char agents[SFS_PATH_MAX]; /* directory of the agents' sockets */
	/* What dir is; dev is 0 while it has not been looked at. */
	dev_t dev;
	ino_t ino;
	/* What it is called without symbolic links, and the number of its mount or 0 (place.c). */
	bool placed;
	uint64_t mount;
	char place[SFS_PATH_MAX];
	bool dax;
	bool dedicated;
	bool watches;  /* its agent knows WATCH */
	bool unstaged; /* SPLITFS_STAGING=off, in posix: what does not go in place is the kernel's */
	enum relink_provider provider;

	struct sfs_agent agent;
	/* The agent's table and our claims (ask.h); NULL: every file is asked for, and for its first call. */
	const uint64_t *owners;
	struct sfs_claims *claims;
	struct sfs_log log;
	struct sfs_pool pool;
	uint32_t live;	 /* inodes with records that are not retired, atomic; a hint whether there is anything to do */
	uint32_t idle;	 /* ticks of visibility_ms with nothing staged; the service thread's */
	bool dirty;	 /* something staged since the service thread last looked */
	uint32_t forces; /* files of this process that were written, and how many of them were forced twice (files/forces.h) */
};

/* The process: its configuration, and what all rooms look at. */
struct sfs_state {
	bool configured;
	int nvolumes;
	uint32_t visibility_ms;
	bool unmet;		/* a volume has an agent that has not answered this process yet (VOL_UNKNOWN) */
	uint32_t agent_wait_ms; /* so long a process waits for its first agent, which may be about to come back */
	uint32_t forks;		/* that this process comes from, since the library began */
	bool parent;		/* it has made processes that may not have the library */
	uint8_t protection;	/* enum sfs_protection */
	bool grant_first;	/* a file is asked for with its first call */
	bool fsync_shows;	/* SPLITFS_FSYNC=visible: fsync relinks whoever has the file open (sfs_outside()) */
	int service_state;	/* 0 none, 1 running */
	int wake_fd;		/* eventfd of the service thread */
	int *alive; /* the process; zeroed by the kernel in the child of any fork (user-mode emulators only promise that) */
	bool no_staging; /* io_uring is in use: the kernel serves everything */
	uint64_t fsize_limit;
	struct sfs_volume volumes[SFS_VOLUMES_MAX];
};

extern struct sfs_state sfs __attribute__((visibility("hidden")));

/* SPLITFS_CONFIG: MODE:DIR:AGENTSDIR joined by ';'. An entry that does not parse is a volume that stays the kernel's. */
void sfs_volumes_parse(const char *config);
/* A volume on device dev, or NULL; for an open file sfs_volume_at() says which (place.h). */
struct sfs_volume *sfs_volume_of(dev_t dev);
/*
 * Get a log and the event socket. proof_fd: any open file of the volume. Once lost, every further open tries again. 0 when the volume is
 * ready, or a negative errno value: -EAGAIN where an agent may be about to come, whom sfs_volume_await() waits for; SFS_NOT_OF_VOLUME where
 * it says that the file is none of the volume's (one of the control directory, as `splitfs status` opens them): it is the kernel's.
 */
int sfs_volume_connect(struct sfs_volume *vol, int proof_fd);
/*
 * The same until there is an answer, or agent_wait_ms are over: for who holds no lock and has blocked no signal. A signal ends the process or
 * runs its handler as it does in a call of the kernel's that is not interrupted by one; then the wait goes on.
 */
void sfs_volume_await(struct sfs_volume *vol, int proof_fd);
/* In a child of fork: the connection and the log are the parent's. The maps are gone already (MADV_DONTFORK). */
void sfs_volume_forget(struct sfs_volume *vol);

/* Why a file can't be written in strict without an agent. */
static inline int sfs_volume_refuses(const struct sfs_volume *vol)
{
	return vol->agent.full ? -ENOSPC : -EIO;
}

enum sfs_lease_for {
	SFS_LEASE_ANY,
	SFS_LEASE_WHOLE, /* one write that is to be whole: the agent may give more than this process's part of the pool */
	SFS_LEASE_OVER,	 /* the same, over bytes that the file has: also on a full volume */
};
/*
 * One more staging file unless there is room for so many blocks already. No inode's lock held. -ENOSPC: the pool is empty, or this process's part of
 * it.
 */
int sfs_chunk_lease(struct sfs_volume *vol, uint64_t blocks, enum sfs_lease_for use);
/*
 * ACQUIRE of the file (ino, gen), open as fd; sets the grant's state. Without an agent the kernel serves it. 0; SFS_TURN; or a negative
 * errno value.
 */
int sfs_agent_acquire(struct sfs_volume *vol, struct sfs_grant *grant, ino_t ino, uint32_t gen, int fd, unsigned flags);
/* EXCLUSIVE at once, or nothing: what there was is over. True when it is granted. */
bool sfs_agent_try(struct sfs_volume *vol, struct sfs_grant *grant, ino_t ino, uint32_t gen, int fd);
/* RETURN, for the pool. */
void sfs_agent_give_back(struct sfs_pool *pool, uint32_t id);
/* A message on the event socket. Any thread. 0, or -ENOTCONN. */
int sfs_agent_tell(struct sfs_volume *vol, const struct sfs_msg *m);
/*
 * 0: the log is too short for what is done here: the agent may make it longer (sfs_log_grown()). SFS_GROW_ROOM: what is staged finds no room
 * in its file: the agent may have some to give up. Waits for nobody.
 */
void sfs_agent_grow(struct sfs_volume *vol, uint64_t what);
int sfs_agent_release(struct sfs_volume *vol, struct sfs_grant *grant, ino_t ino, uint32_t gen);
/* While sfs_held_reclaim() tells a new agent: this process holds the file. */
int sfs_agent_reclaim(struct sfs_volume *vol, ino_t ino, uint32_t gen, int fd, bool watched);
/* In GRANT_EXCLUSIVE: WATCH. fd: our own of the file. */
void sfs_agent_watch(struct sfs_volume *vol, struct sfs_grant *grant, ino_t ino, uint32_t gen, int fd);
/* Service thread: the agent of connection number `lost` has gone; one try to come back. */
void sfs_agent_reconnect(struct sfs_volume *vol, uint32_t lost);
/* Service thread: the next event, -EAGAIN when there is none. */
int sfs_agent_event(struct sfs_volume *vol, struct sfs_msg *msg);
int sfs_agent_answer(struct sfs_volume *vol, const struct sfs_msg *msg);

/* ---- what rooms above do for this one ---- */

/* process/held.c: tell a new agent what this process holds, by sfs_agent_reclaim(). */
int sfs_held_reclaim(struct sfs_volume *vol);
/* process/held.c: nobody will be told any more that its turn has come: all ask again. */
void sfs_held_turns_end(struct sfs_volume *vol);
/* process/held.c: everything staged is given up; returns the number of files that lost something. */
unsigned sfs_held_lost(struct sfs_volume *vol);
/* process/service.c: unless there is one. 0, or a negative errno value: there is no thread. */
int sfs_service_start(void);
/* process/service.c: vol (or, with NULL, the agent's answer to a reconnect) wants attention. */
void sfs_service_wake(struct sfs_volume *vol);
/* process/fork.c */
void sfs_fork_child(void);

/*
 * Every call begins with it. Did a fork happen that was not announced (a bare clone)? Then this is the child.
 */
static inline void sfs_check_fork(void)
{
	sfs_protect_enter(); /* a signal handler begins without a right to look at what is mapped */
	if (unlikely(sfs.alive && *sfs.alive == 0))
		sfs_fork_child();
}

/* Has a signal handler forked since sfs.forks was that, and is this the child? A call that it has interrupted is the parent's to make. */
static inline bool sfs_is_child(uint32_t forks)
{
	sfs_check_fork();
	return unlikely(forks != sfs.forks);
}

/*
 * Does the mode promise that a write that has returned survives a power loss? An emulated volume promises what was forced, and the kernel keeps
 * that by itself. Without an agent, we do not know what it is.
 */
static inline bool sfs_volume_durable(const struct sfs_volume *vol)
{
	return vol->mode != SFS_POSIX && (vol->dax || load_acquire(&vol->agent.state) != VOL_READY);
}

/* Might a file that ends there, and one more block, reach RLIMIT_FSIZE? */
static inline bool sfs_near_limit(uint64_t end)
{
	return end + 2 * SFS_BLOCK > sfs.fsize_limit;
}

#endif
