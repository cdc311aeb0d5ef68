/* SPDX-License-Identifier: Apache-2.0 */
/* Programs without the library, as the kernel tells of them; part of agent/internal.h. */
#ifndef SFS_AGENT_OUTSIDERS_H
#define SFS_AGENT_OUTSIDERS_H

#include <stdbool.h>
#include <stdint.h>

#include "control/store.h"

struct agent;
struct client;
struct code;
struct dnode;
struct hold;
struct opener;
struct outsiders;
struct question;
struct sfs_msg;
struct target;

/* listener.c */
/* Before the volume is opened: where the group is the one of the agent before us, the kernel asks about our own opens. */
int listener_start(struct agent *a);
/* It is known who is refused. */
void listener_decide(struct agent *a);
/* The kernel lets everybody go on whose question was not answered. */
void listener_stop(struct agent *a);
/* The open that the kernel asks about goes on, or fails with EPERM; fd: the kernel's, closed. */
void listener_answer(const struct outsiders *o, int fd, bool allow);
/* The thread of enforce.h is to look at who asks that. */
void listener_ask_look(struct agent *a, const struct question *q);

/* processes.c */
/* From when its process and connection are known until one of them is not; a client that was not added may be removed. */
void processes_add(struct agent *a, struct client *c);
void processes_remove(struct agent *a, struct client *c);
/* Is it a client's? One that has executed another program is none any more, also when the loop has not got round to it. */
bool processes_is_client(struct outsiders *o, int pid);
/* The library of a client has said HELLO, or to the agent before us. */
void processes_knows(struct outsiders *o, struct client *c);
/* From now on it is known where the client's library is in its process, and the log says what that opens (SFS_FEATURE_CODE). */
void processes_says(struct outsiders *o, struct client *c);
/* Does the library see the call in which the thread stands? Where it can't be known it does. */
bool processes_sees(struct outsiders *o, const struct question *q, const struct sfs_call *call);
/* The code of the client's process; and is that a part of it from which the library sees all calls? No, while nobody has looked. */
void processes_code(struct outsiders *o, int pid, const struct code *code);
bool processes_known_code(struct outsiders *o, int pid, unsigned long pc);
/* Which process asks (q->pid, q->client). True: a client whose library sees the open. */
bool processes_who_asks(struct outsiders *o, struct question *q);

/* gate.c */
int gate_open(struct agent *a);
void gate_close(struct outsiders *o);
/* A question was read, and has been answered. */
void gate_note(const struct outsiders *o, int fd, int tid);
void gate_answered(const struct outsiders *o, int fd);
/* What the agent before us left without an answer is looked at. */
void gate_ask_again(struct agent *a);

/* how.c */
/* Is that the number of a call by which files are opened? Where a thread stands in another one, it is a ring that opens. */
bool outsider_open_call(long nr);
/* The same of a program, which may be one of 32 bits. */
bool outsider_usual_call(const struct sfs_call *call);
/* Does the thread open for writing? It stands in that call until we answer. */
bool outsider_writes(int tid, const struct sfs_call *call);

/* outsider.c */
/* From now on the kernel asks before somebody opens the file to which `way` leads. Does nothing where it can't be asked. */
void outsider_mark(struct agent *a, struct dnode *d, const struct target *way);
/* The same for who is granted the file, and it is looked who has it open already. */
void outsider_granted(struct agent *a, const struct hold *h);
void outsider_unmark(struct agent *a, struct dnode *d);
/* A client is about to have the kernel change the file, or to ask it for a lease: if nobody may stage, the kernel asks no more. */
void outsider_rest(struct agent *a, struct dnode *d);
/* Answer opens that wait. False: somebody still has to bring in what is staged; call again when that has changed. */
bool outsider_settle(struct agent *a, struct dnode *d);
/* Of the file that the kernel's descriptor is open on; or NULL. */
struct dnode *outsider_dnode(const struct agent *a, int fd);
/* Who has the file is to bring in what is staged, for an open that writes or does not. Is there anybody? */
bool outsider_step_down(struct agent *a, struct dnode *d, bool writes);
/* Of the file that fd is open on; the kernel asks about it from now on. Or NULL. */
struct dnode *outsider_of(struct agent *a, int fd);
/* Such a file is left to `who`, says the connection (LEFT), which is answered when nobody has anything of it staged. */
void outsider_leaves(struct agent *a, struct dnode *d, const struct opener *who, struct client *c);
/* That connection has ended. */
void outsider_left(struct agent *a, struct client *c);
void outsider_opens(struct agent *a);
void outsider_timeouts(struct agent *a, uint64_t now);
/* fanotify_mark() of a group of ours, and its end, of which errors are only told. 0, or a negative errno value. */
int outsider_ask(const struct agent *a, int group, unsigned how, uint64_t mask, const struct target *t);
void outsider_ask_no_more(struct agent *a, const struct dnode *d, int group, uint64_t mask);

/* Who is about to have a file open, unseen by a library. */
struct opener {
	int pid, tid;
	bool writes;
	bool client;	      /* its process has the library, but makes the call by itself */
	bool alone;	      /* its process has one thread */
	bool has;	      /* it has it since before we were there */
	bool leaves;	      /* it has it, and is about to execute another program; or has been left it so */
	struct sfs_call call; /* in which it opens, or RUNNING */
};

/* left.c */
/* Is the call the word of a library about who is to have the file? */
bool left_said(const struct sfs_call *call);
/* Who that is; false: nobody. */
bool left_to(const struct agent *a, const struct dnode *d, struct opener *who);
/* LEFT: the same, by the file itself. *fd: see request_handle(). */
void left_shown(struct agent *a, struct client *c, const struct sfs_msg *m, int *fd);
/* A client is about to be granted a file: which of the processes that it has made have it, and have not the library? Only looked at where that was not known. */
void left_to_children(struct agent *a, const struct hold *h);
/* The client's connection has ended, and its holds are there still: does its process go on with what it had? */
void left_by(struct agent *a, const struct client *c);

/* openers.c, closes.c */
/* Before its open is let go. d is marked. */
void openers_add(struct agent *a, struct dnode *d, const struct opener *who);
/* The agent before us has said that somebody has it: until it is known who, somebody writes. */
void openers_before(struct agent *a, struct dnode *d);
/* A process that was taken for one without the library has turned out to have it. */
void openers_is_client(struct agent *a, struct dnode *d, const struct client *c);
/* What the process was to leave to somebody it has left to a child, which is known, and goes on with its library. */
void openers_has_left(struct agent *a, struct dnode *d, int pid);
void openers_forget(struct agent *a, struct dnode *d);
/* Does such a program have it open? Who has turned out to have the library does not count. */
bool openers_any(const struct dnode *d);
/* Does any, those that do not count among them, and shall we see when no more? */
bool openers_watched(const struct dnode *d);
void openers_closes(struct agent *a);
/* The looker has answers. */
void openers_hear(struct agent *a);
void openers_timeouts(struct agent *a, uint64_t now);
/* Until then; -1: nothing is to be looked at. */
int openers_wait_ms(const struct agent *a);

/* before.c */
/* It is looked who has it open, if the kernel asks about it. */
void before_granted(struct agent *a, struct dnode *d);
/* The same for who has gone on having it when another one that had it has ended. */
void before_again(struct agent *a, struct dnode *d);
/* It is not known any more. */
void before_forget(struct agent *a, struct dnode *d);
/* As openers_hear(), openers_timeouts() and openers_wait_ms(). */
void before_hear(struct agent *a);
void before_timeouts(struct agent *a, uint64_t now);
int before_wait_ms(const struct agent *a);

#endif
