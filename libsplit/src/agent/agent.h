/* SPDX-License-Identifier: Apache-2.0 */
/* The agent of one volume: leases logs and staging files, keeps the directory of delegations, recovers the dead (proto.h). */
#ifndef SFS_AGENT_H
#define SFS_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "control/unserved.h"
#include "control/why.h"

#define SFS_DEFAULT_FILL_PERCENT 25u
#define SFS_SPARE_LOGS_MAX	 8 /* so many logs are kept ready, where programs start one after the other */
#define SFS_KEPT_LOGS_MAX                                                                                                      \
	4 /* so many that clients have left, each with a lease and a tiny staging file, for the next of their tenant */

struct sfs_agent_config {
	const char *root;
	const char *agents_dir;
	uint64_t pool_bytes;	/* staging space kept ready or leased */
	uint64_t chunk_bytes;	/* size of a staging file, a multiple of 2 MiB */
	uint64_t log_bytes;	/* records of one log, at most: it begins small */
	uint64_t log_space;	/* of all logs together, which do not grow beyond it; 0: SFS_DEFAULT_LOG_SPACE */
	uint32_t client_chunks; /* staging files one client may have; 0: half of the pool, at least 2 */
	/*
	 * Percent of one processor that filling the pool may take while nobody runs short, 0: SFS_DEFAULT_FILL_PERCENT; for all
	 * agents with the same fill_lock together (a file, made when it is missing), or NULL: for this one.
	 */
	const char *fill_lock;
	uint32_t fill_percent;
	uint64_t overdue_ms; /* a client that waits longer for another one is reported; 0: 30 seconds */
	/*
	 * For `splitfs run`: the directory of the socket is ours alone and goes with us; SIGTERM means "stop when nobody uses
	 * the volume any more": no client is connected and nobody holds the lock of `users` in the directory.
	 */
	bool private_dir;
	/*
	 * A listening socket that somebody else has bound in agents_dir, for whoever serves the volume: connections wait in it while
	 * one agent follows another. Its name is not touched. 0: the agent makes a socket and removes it at its end.
	 */
	int listen_fd;
	/*
	 * A fanotify group that outlives the agent, for its questions about opens, and in the descriptor after it a memory file for those that
	 * are not answered (gate.c); both kept by whoever starts agents for the volume. 0: the agent makes a group of its own.
	 */
	int gate_fd;
	/* What is done with programs without the library that open a file for writing; of pods that the file names, what it says (policy.h). */
	enum sfs_unserved unserved;
	const char *unserved_by; /* or NULL */
	bool copies;		 /* staged bytes are copied into files, although blocks could be moved */
	int ready_fd;		 /* gets "ready\n" */
};

/* Serve until SIGTERM or SIGINT. 0, or a negative errno value with a sentence. */
int sfs_agent_run(const struct sfs_agent_config *config, struct sfs_why *why);

/* AGENTSDIR/<major>-<minor>.sock into path; -ENAMETOOLONG with a sentence when no socket can have that name. */
#define SFS_SOCKET_PATH 108
int sfs_agent_socket_path(char path[SFS_SOCKET_PATH], const char *agents_dir, unsigned major, unsigned minor,
			  struct sfs_why *why);

#endif
