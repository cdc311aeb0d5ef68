/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs without the library that open a file for writing are refused, where the volume's users want that (policy.h); part of
 * agent/internal.h. The kernel asks about every open on the file system then. The listener's thread answers what needs no look at the
 * process. A thread of its own looks at the others: what it reads of a process may hang as long as that process's memory is locked.
 */
#ifndef SFS_AGENT_ENFORCE_H
#define SFS_AGENT_ENFORCE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/policy.h"
#include "control/store.h"
#include "control/unserved.h"

struct agent;
struct client;

/* What the listener's thread passes on: somebody is about to open a file. fd: the kernel's, of the file. */
struct question {
	int fd, tid, pid;
	bool client;
	bool answered; /* the loop did not take it in time */
};

/* Where the library, and the C library whose calls it sees, are in a process. */
#define CODE_SPANS 8 /* some loaders split them */
struct code {
	uint32_t n;
	bool library;
	struct {
		unsigned long from, to;
	} span[CODE_SPANS];
};
void code_look(int pid, struct code *c);
bool code_has(const struct code *c, unsigned long pc);

struct enforcer {
	pthread_t thread;
	bool started;
	int questions[2]; /* to the thread */
	int stop_fd;	  /* eventfd */
	int watch_fd;	  /* inotify, of the directory of the pods' policies */
	pthread_mutex_t lock;
	/* Under the lock: */
	struct policies policies;
	bool marked;	     /* the kernel asks about every open */
	struct question now; /* the one that the thread looks at; fd -1: none */
	uint64_t now_since;  /* ms */
	uint32_t taken;	     /* counts the questions that the thread took */
	/* Questions wait, and it has taken none since then, ms; 0: none wait. */
	uint64_t idle_since;
	uint32_t idle_at; /* taken, at that time */
	struct sfs_unserved_list list;
	uint64_t changed; /* ms: since when the list is not written; 0: it is */
	/* The thread's: */
	uint64_t logged; /* ms */
};

/* An agent that can't enforce anything goes on, and says so. */
int enforce_start(struct agent *a);
/* Before the listener ends, and after. */
void enforce_stop(struct agent *a);
void enforce_free(struct agent *a);
/* The directory of the policies has changed. */
void enforce_reload(struct agent *a);
/* Does the kernel ask about every open? */
bool enforce_marked(struct agent *a);
/*
 * For the listener's thread: an open that has waited too long for the look at its process goes on as if nobody had asked for more.
 * Returns how long to wait before the next call, ms, or -1.
 */
int enforce_let_go(struct agent *a);

/* refused.c */
/* The thread has done that to the process which asks; pod: "" of none. */
void refused_note(struct agent *a, const struct question *q, enum sfs_unserved did, const char *pod);
/*
 * Write the list: now, or when the last change has become old enough. Returns how long to wait for that, ms, or -1.
 */
int refused_write(struct agent *a, bool now);
/* The name of an open file, as far as it can be known. */
void refused_file(int fd, char name[SFS_UNSERVED_PATH]);

#endif
