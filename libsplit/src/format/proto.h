/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conversation between the library and the agent of a volume: SOCK_SEQPACKET on AGENTSDIR/<major>-<minor>.sock, fixed-size
 * messages, descriptors by SCM_RIGHTS. The agent trusts nothing but the kernel: SO_PEERCRED for who, fstat and F_GETFL of a
 * passed descriptor for what the client may touch.
 *
 * Two sockets per client. On the request socket the client sends one request and waits for its reply (RELEASE and RETURN have
 * none). The event socket comes with the reply to HELLO: on it the agent sends REVOKE and the client's service thread answers
 * REVOKED, so that a revocation never waits for a request.
 *
 * Inode delegations keep several processes coherent (the agent is the directory): EXCLUSIVE lets the holder stage data and
 * cache the size; SHARED lets it only use the kernel's view of the file. ACQUIRE grants EXCLUSIVE when no other client has the
 * inode open and SHARED otherwise, after the present holder has given EXCLUSIVE up (relinked everything); an inode once shared
 * stays so until all clients but one have released it. A client that died is recovered first.
 *
 * A client that knows of SFS_FEATURE_TURN never waits for another one on its request socket: where an ACQUIRE can't be answered now
 * the reply says so (SFS_ACQ_QUEUED), the question keeps its place, and TURN on the event socket tells when to ask again. Until then
 * the client holds no lock and goes on with everything else.
 */
#ifndef SFS_PROTO_H
#define SFS_PROTO_H

#include <stdint.h>

/*
 * Library and agent need not be of the same release: each speaks a range of versions. HELLO, PEEK and LEFT are the
 * same in all of them. There `version` is the oldest that the client speaks and d the newest (0: it speaks no other).
 * The reply, and every message after it, has the newest that both speak in `version`. Where there is none the reply
 * is -EPROTONOSUPPORT in the client's oldest version, with the agent's range in a and b (0: it speaks no other than
 * the reply's), and the connection ends.
 *
 *   1   library and agent spoke one version, and were of the same release
 *   2   ranges
 */
#define SFS_PROTO_OLDEST 1u
#define SFS_PROTO_NEWEST 2u

struct sfs_versions {
	uint32_t oldest, newest;
};

static inline struct sfs_versions sfs_versions_of(uint64_t oldest, uint64_t newest)
{
	const struct sfs_versions v = {(uint32_t)oldest, newest ? (uint32_t)newest : (uint32_t)oldest};

	return v;
}

/* The newest that we speak, too; 0: there is none. */
static inline uint32_t sfs_versions_meet(struct sfs_versions theirs)
{
	const uint32_t newest = theirs.newest < SFS_PROTO_NEWEST ? theirs.newest : SFS_PROTO_NEWEST;

	return newest >= theirs.oldest && newest >= SFS_PROTO_OLDEST ? newest : 0;
}

#define SFS_WHOLE_MAX (1ull << 30)

#define SFS_CHUNK_OVER 1u

enum sfs_msg_type {
	SFS_MSG_HELLO =
		1, /* a = mode, b = log id to resume or 0, c = features, d = version; fd: any file or directory of the volume.
	                      reply: a = log id, b = flags, c = pool chunk size in bytes, d = enum relink_provider that works
	                      on this volume (probed by the agent when it starts); fds: log, event socket[, table] */
	SFS_MSG_CHUNK, /* lease a staging file; -EACCES before a file that is open for writing came with HELLO or ACQUIRE. a = bytes that are about to be staged, or 0: a full-size file;
			    b = bytes of the write that it is for, which is to be whole (strict), up to SFS_WHOLE_MAX, and has not found
			    space in the client's part of the pool: it may have more for as long as that takes;
			    c = SFS_CHUNK_OVER, when b is not 0 and the write goes over bytes that the file has: it takes no space in the end, so
			    it gets a short one also of the space that is left to the user. Older agents look at neither.
			    reply: a = its number, b = bytes; fd: the file, O_RDWR */
	SFS_MSG_RETURN,	 /* a = number of the staging file that no live record names; no reply */
	SFS_MSG_ACQUIRE, /* a = ino, b = gen, c = SFS_ACQ_*; fd: the file as the application opened it. reply: a = delegation,
			    b = SFS_ACQ_AT_ONCE, SFS_ACQ_QUEUED or 0 */
	SFS_MSG_RELEASE, /* a = ino, b = gen: closed, nothing staged; no reply */
	SFS_MSG_REVOKE,	 /* agent to client, event socket: a = ino, b = gen, c = the delegation to go down to */
	SFS_MSG_REVOKED, /* client to agent, event socket: a = ino, b = gen, c as in REVOKE, or SHARED instead of NONE by who goes
			      on using the kernel's view (a mapped file); done */
	SFS_MSG_LOOK,	 /* client to agent, event socket, so that no request is in its way: a = ino, c = SFS_LOOK_*, d = a
			      number of the client's. Every other client that may have something staged of the inode relinks
			      and steps down */
	SFS_MSG_LOOKED, /* agent to client, event socket: a = ino, c = the number in the table's word at which nobody staged it,
			      d as in LOOK; or status */
	SFS_MSG_PEEK, /* instead of HELLO: the table and nothing else. d = version. reply: b = flags; fd: the table; the connection ends */
	SFS_MSG_GROW, /* the log is too short: the agent makes it longer, which its header says then, or does not. Or, a = SFS_GROW_ROOM: what
			 is staged finds no room in its file; an agent that knows nothing of that makes the log longer. No reply */
	SFS_MSG_WATCH, /* SFS_FEATURE_WATCH. a = ino, b = gen; fd: the client's own of the file. The client is about to look at the file's own
			   memory, and has the file EXCLUSIVE: a program without the library is to be let in after the client has
			   stepped down, also where that one can't write. reply: a = 1: so it is, and nobody without the library
			   has it open for writing as far as can be seen; 0: it is not */
	SFS_MSG_TURN, /* SFS_FEATURE_TURN; agent to client, event socket: a = ino, b = gen. An ACQUIRE that was queued is the next to be
			  answered: the client asks again, within SFS_TURN_MS, or its place is the next one's */
	SFS_MSG_LEFT, /* instead of HELLO: what an open with SFS_OPEN_LEFT or SFS_OPEN_SPAWNED says, from a process that can't open the file
			 once more, or has a lock on it, which that would end. a = which of the two, b = an address of the library's code,
			 d = version; fd: the file, open for writing. Reply when who stages for it has given it up; the connection ends */
};

#define SFS_GROW_ROOM 1u

/*
 * What openat(2) has as the mode of an open for reading, which it does not look at: the process has the file open for writing, and leaves that to the
 * program that it is about to execute; or it may have left it to the child that its thread has made last. The agent takes that for one without the
 * library, until it sees that the new program has it.
 */
#define SFS_OPEN_LEFT	 0x5f53u
#define SFS_OPEN_SPAWNED 0x5f54u

/* In HELLO, c: what the client knows of; in the reply's b, shifted by SFS_FEATURES_SHIFT: what both know of. */
#define SFS_FEATURE_OWNERS  0x1u  /* the table (its descriptor is the third of the reply), claims, LOOK, SFS_ACQ_TRY */
#define SFS_FEATURE_GROW    0x2u  /* a log that begins small, and GROW */
#define SFS_FEATURE_WATCH   0x4u  /* WATCH, SFS_ACQ_WATCH */
#define SFS_FEATURE_TURN    0x8u  /* SFS_ACQ_QUEUED, TURN */
#define SFS_FEATURE_FILES   0x10u /* SFS_REC_FILES */
#define SFS_FEATURE_OUTSIDE 0x20u /* the table says which files programs without the library have open; only beside OWNERS */
#define SFS_FEATURE_KERNEL  0x40u /* SFS_ACQ_KERNEL */
/*
 * Until a client's first ACQUIRE or LOOK nothing is sent to it, and an agent that comes after this one waits for no word from it. It need not
 * listen on its event socket, and comes back with its first request. Not where the agent can't see that the process has ended.
 */
#define SFS_FEATURE_QUIET 0x80u
/*
 * HELLO says where the library's own code is in the process. What other code of the process opens (system calls that the program makes by itself, the
 * dynamic linker) the library does not see, and for the agent it is as of a program without the library.
 */
#define SFS_FEATURE_CODE 0x100u
#define SFS_FEATURE_LEFT 0x200u /* SFS_OPEN_LEFT, SFS_OPEN_SPAWNED, SFS_ACQ_PARENT */
#define SFS_FEATURES                                                                                                           \
	(SFS_FEATURE_OWNERS | SFS_FEATURE_GROW | SFS_FEATURE_WATCH | SFS_FEATURE_TURN | SFS_FEATURE_FILES |                    \
	 SFS_FEATURE_OUTSIDE | SFS_FEATURE_KERNEL | SFS_FEATURE_QUIET | SFS_FEATURE_CODE | SFS_FEATURE_LEFT)
#define SFS_FEATURES_SHIFT 32

/* LOOK: the client is about to change the file by the kernel, so nobody is to remember anything of it. */
#define SFS_LOOK_CHANGE 0x1u

#define SFS_HELLO_DAX	    0x1u /* the file system maps PM directly (statx says DAX and MAP_SYNC works) */
#define SFS_HELLO_DEDICATED 0x2u /* ROOT is the root of its file system: every file on the device is ours */
#define SFS_HELLO_CACHES    0x4u /* with DAX: the platform writes the caches back when the power fails (eADR) */

/*
 * ACQUIRE with this flag grants EXCLUSIVE in any case: every other client's delegation is revoked to NONE first, and the next
 * plain ACQUIRE of one of them revokes this one to SHARED. strict writes to a file that several processes have open.
 */
#define SFS_ACQ_EXCLUSIVE 0x2u
/* ACQUIRE with this flag waits for nobody: EXCLUSIVE when it can be granted at once, else NONE, and nothing has changed. */
#define SFS_ACQ_TRY 0x8u
/*
 * In the reply: a program without the library may write to the file, or another process has it mapped. The grant is for one call, which returns
 * when everything is in the file and no record counts any more; SHARED then.
 */
#define SFS_ACQ_AT_ONCE 0x1u
/* In the reply, with the delegation NONE: others have to step down first, and TURN is to come. What the client had is forgotten. */
#define SFS_ACQ_QUEUED	0x2u
#define SFS_TURN_MS	500
#define SFS_ACQ_RECLAIM 0x1u /* after the agent restarted: the client held the inode EXCLUSIVE and still has data staged */

#define SFS_ACQ_WATCH 0x10u /* with SFS_ACQ_RECLAIM: it was watched, too */

/*
 * SFS_FEATURE_KERNEL: the kernel serves the file for this client, which stages nothing and is granted SHARED. The agent does not have the
 * kernel ask it about opens for that (fanotify): it gets a descriptor with each question, and the client's program has a lease, which
 * that would break.
 */
#define SFS_ACQ_KERNEL 0x20u

/*
 * SFS_FEATURE_LEFT: the process has made others, which may have descriptors of the file and not have the library. The agent looks at them before it
 * grants the file, where the kernel has not asked it about their opens (SFS_OPEN_LEFT).
 */
#define SFS_ACQ_PARENT 0x40u

enum sfs_delegation { SFS_DELEG_NONE = 0, SFS_DELEG_SHARED = 1, SFS_DELEG_EXCLUSIVE = 2 };

struct sfs_msg {
	uint16_t version;
	uint16_t type;
	int32_t status; /* replies: 0 or -errno */
	uint64_t a, b, c, d;
	union {
		char text[24];	  /* replies with status < 0: what to tell the user, NUL-terminated */
		uint64_t code[2]; /* HELLO, SFS_FEATURE_CODE: the addresses where the library's code begins and ends */
	};
};
_Static_assert(sizeof(struct sfs_msg) == 64, "messages have one size");

#endif
