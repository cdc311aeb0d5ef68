/* SPDX-License-Identifier: Apache-2.0 */
/* A program without the library that has a file open: what openers.c and closes.c share. */
#ifndef SFS_AGENT_OPENERS_H
#define SFS_AGENT_OPENERS_H

#include "agent/internal.h"

#define OPENED_BY 4u
#define SOMEBODY  (-1) /* until it is known who */

/* An open of a process that has perhaps not ended. */
struct arrival {
	struct arrival *next;
	struct under_way open;
	bool by_close; /* a close of its process says that it has ended */
};

/* A process that has the inode open. */
struct outsider {
	struct outsider *next;
	struct dnode *dnode;
	int pid; /* 0: one that can't be seen from here; it stays as long as clients have the file */
	bool writes;
	bool client; /* it has the library, which did not see the open */

	struct sfs_tables tables;    /* of the threads that opened it */
	unsigned long pc[OPENED_BY]; /* from where, while it is taken for one without the library; 0: no more is known */
	bool anywhere;		     /* and from elsewhere, or nobody knows from where */
	unsigned long left_from;     /* where its library said that it leaves the file to the next program; 0: it did not */
	uint32_t leaving;	     /* so many times, without a word since that it was for a child that it has made */
	bool aware; /* that one has the library: it counts for nothing, but may leave the file to another one */
	struct arrival *arrivals;
	uint32_t number;       /* of its last open */
	bool closed;	       /* since then the process has closed the file, or another open one of it */
	bool asked, ask_again; /* the looker is asked; and something has happened since */
	uint64_t look_at;      /* ms; 0: not before it closes the file */
	uint64_t look_ms;
	TAILQ_ENTRY(outsider) looked_at; /* while look_at is set */
};

/* openers.c */
/* Of a process; or the end of the list. */
struct outsider **opener_find(struct dnode *d, int pid);
void opener_set_writes(struct dnode *d, struct outsider *w, bool writes);
void opener_end_arrival(struct arrival **p);
/* openers_dropped() is to follow. */
void opener_drop(struct agent *a, struct dnode *d, struct outsider **p);
/* The list has become shorter; wrote: somebody in it wrote before. */
void openers_dropped(struct agent *a, struct dnode *d, bool wrote);
/*
 * One that has it since before the kernel asked; false: it is a client's. leaves: it has been seen that it has not
 * the library, or not for long.
 */
bool opener_found(struct agent *a, struct dnode *d, const struct look_found *f, bool leaves);
/* Somebody may have it; until it is known who, somebody does. */
void openers_search(struct agent *a, struct dnode *d, bool writes);
/* It has been looked who. */
void openers_searched(struct agent *a, const struct dnode *d);

/* closes.c */
/* It is looked soon what it has, or no more before it closes the file. */
void opener_look_soon(struct agent *a, struct outsider *w);
void opener_look_never(struct agent *a, struct outsider *w);
/* Its program has the library. deleg_process() is to follow. */
void opener_is_aware(struct agent *a, struct dnode *d, struct outsider *w);

#endif
