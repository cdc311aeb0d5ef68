/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which programs without the library have a file open, from their open (outsider.c) until they have closed it (closes.c). While one has it for
 * writing nobody is granted EXCLUSIVE, as with two clients (granting.c). While one has it at all the table of owners says so, and
 * fsync and the service thread of who stages bytes of it bring them into the file for it (format/owners.h).
 */
#include <stdlib.h>
#include <sys/fanotify.h>
#include <sys/ioctl.h>

#include "agent/openers.h"

#define CLOSES (FAN_CLOSE_WRITE | FAN_CLOSE_NOWRITE)

void opener_set_writes(struct dnode *d, struct outsider *w, bool writes)
{
	d->writers += (uint32_t)writes - (uint32_t)w->writes;
	w->writes = writes;
}

void opener_end_arrival(struct arrival **p)
{
	struct arrival *r = *p;

	*p = r->next;
	free(r);
}

void opener_drop(struct agent *a, struct dnode *d, struct outsider **p)
{
	struct outsider *w = *p;

	opener_set_writes(d, w, false);
	opener_look_never(a, w);
	while (w->arrivals)
		opener_end_arrival(&w->arrivals);
	*p = w->next;
	free(w);
}

struct outsider **opener_find(struct dnode *d, int pid)
{
	struct outsider **p = &d->outsiders;

	while (*p && (*p)->pid != pid)
		p = &(*p)->next;
	return p;
}

/* It was not in the list. NULL: out of memory. */
static struct outsider *enter(struct dnode *d, int pid)
{
	struct outsider *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->pid = pid;
	w->dnode = d;
	w->next = d->outsiders;
	d->outsiders = w;
	return w;
}

/* Its thread has a table of descriptors that may be its own. */
static void add_table(struct sfs_tables *t, int tid)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (t->tid[i] == tid)
			return;
	if (t->n < SFS_TABLES_MAX)
		t->tid[t->n++] = tid;
	else
		t->all = true;
}

static void add_pc(struct outsider *w, unsigned long pc)
{
	uint32_t i = 0;

	while (i < OPENED_BY && w->pc[i] && w->pc[i] != pc)
		i++;
	if (i == OPENED_BY || !pc)
		w->anywhere = true;
	else
		w->pc[i] = pc;
}

/* Have all its opens come from there? */
static bool all_from(const struct outsider *w, const unsigned long code[2])
{
	for (uint32_t i = 0; i < OPENED_BY && w->pc[i]; i++)
		if (w->pc[i] <= code[0] || w->pc[i] > code[1])
			return false;
	return !w->anywhere;
}

/* It opens the file once more. */
static bool arrive(struct agent *a, struct outsider *w, const struct opener *who)
{
	struct arrival **p = &w->arrivals;
	int unread = 0;

	add_table(&w->tables, who->tid);
	w->tables.ring |= !outsider_usual_call(&who->call);
	/* A thread opens one file after the other. */
	while (*p) {
		if ((*p)->open.tid == who->tid)
			opener_end_arrival(p);
		else
			p = &(*p)->next;
	}
	*p = calloc(1, sizeof(**p));
	if (!*p)
		return false;
	w->number = ++a->outsiders.opens;
	w->closed = false;
	(*p)->open = (struct under_way){w->number, who->tid, who->call, sfs_thread_ran(who->pid, who->tid)};
	(*p)->by_close = who->alone && ioctl(a->outsiders.closes_fd, FIONREAD, &unread) == 0 && unread == 0;
	opener_look_soon(a, w);
	return true;
}

bool openers_any(const struct dnode *d)
{
	const struct outsider *w = d->outsiders;

	while (w && w->aware)
		w = w->next;
	return w;
}

bool openers_watched(const struct dnode *d)
{
	const struct outsider *w = d->outsiders;

	while (w && w->pid <= 0)
		w = w->next;
	return w;
}

void openers_add(struct agent *a, struct dnode *d, const struct opener *who)
{
	int pid = who->pid;
	struct outsider *w;

	/* Where its end can't be seen it stays as long as clients have the file. */
	if (!openers_watched(d) && outsider_ask(a, a->outsiders.closes_fd, FAN_MARK_ADD, CLOSES, &d->way))
		pid = 0;
	w = *opener_find(d, pid);
	if (!w)
		w = enter(d, pid);
	if (!w) {
		agent_log(a, "out of memory: process %d is not seen to have inode %llu open", pid, (unsigned long long)d->ino);
		return;
	}
	opener_set_writes(d, w, w->writes || who->writes);
	w->aware = false;
	w->client |= who->client && !who->leaves;
	if (who->leaves) {
		/* What the program before this one had to say has come true. */
		w->leaving = w->left_from == who->call.pc ? w->leaving + 1 : 1;
		w->left_from = who->call.pc;
	} else {
		add_pc(w, who->call.pc);
	}
	if (who->has) {
		w->tables.all = w->anywhere = true;
		w->number = ++a->outsiders.opens; /* what was looked at before says nothing */
		opener_look_soon(a, w);
	} else if (pid > 0 && !arrive(a, w, who)) {
		w->pid = 0; /* nothing of it is looked at any more */
	}
	owners_outside(a, d);
}

bool opener_found(struct agent *a, struct dnode *d, const struct look_found *f, bool leaves)
{
	struct opener who = {.pid = f->pid, .tid = f->pid, .writes = f->writes, .has = true, .leaves = leaves};

	/* A client that was looked at for its library is about to become another program: its connection has not ended yet. */
	if (!leaves && processes_is_client(&a->outsiders, f->pid))
		return false;
	who.call.pc = NOWHERE;
	openers_add(a, d, &who);
	return true;
}

/* Has it been looked at since we began who has the inode? From then on it is known. When that was done for too many nobody else is looked for. */
static bool searched(const struct agent *a, const struct dnode *d)
{
	for (uint32_t i = 0; i < a->outsiders.nsearched; i++)
		if (a->outsiders.searched[i].ino == d->ino && a->outsiders.searched[i].gen == d->gen)
			return true;
	return a->outsiders.nsearched == SEARCHED_MAX;
}

void openers_searched(struct agent *a, const struct dnode *d)
{
	struct outsiders *o = &a->outsiders;

	if (owners_said(a, d->ino) && !searched(a, d))
		o->searched[o->nsearched++] = (struct searched){d->ino, d->gen};
}

void openers_search(struct agent *a, struct dnode *d, bool writes)
{
	struct outsider *w = a->outsiders.opens_fd < 0 || *opener_find(d, SOMEBODY) ? NULL : enter(d, SOMEBODY);

	if (!w)
		return;
	opener_set_writes(d, w, writes);
	owners_outside(a, d);
	opener_look_soon(a, w);
}

void openers_before(struct agent *a, struct dnode *d)
{
	if (!searched(a, d))
		openers_search(a, d, true);
}

void openers_dropped(struct agent *a, struct dnode *d, bool wrote)
{
	if (!d->outsiders && a->outsiders.closes_fd >= 0)
		outsider_ask_no_more(a, d, a->outsiders.closes_fd, CLOSES);
	owners_outside(a, d);
	if (wrote && !d->writers)
		deleg_alone_again(a, d);
}

void openers_is_client(struct agent *a, struct dnode *d, const struct client *c)
{
	struct outsider **p = c->pid > 0 ? opener_find(d, c->pid) : NULL;
	const bool wrote = d->writers;

	if (!p || !*p || (*p)->client || (*p)->aware)
		return;
	/* The new program; or the one that was to leave the file goes on. When it does leave it, its connection ends (left.c). */
	if ((*p)->left_from) {
		opener_is_aware(a, d, *p);
		return;
	}
	/* What it opened by itself before its library was known stays. A library that does not say where it is is believed. */
	if ((c->features & SFS_FEATURE_CODE) && !all_from(*p, c->library)) {
		(*p)->client = true;
	} else {
		opener_drop(a, d, p);
		openers_dropped(a, d, wrote);
	}
}

void openers_has_left(struct agent *a, struct dnode *d, int pid)
{
	struct outsider *w = *opener_find(d, pid);

	if (w && w->leaving && --w->leaving == 0 && !w->client && !w->aware)
		opener_is_aware(a, d, w);
	deleg_process(a, d); /* it may have been made for the question */
}

void openers_forget(struct agent *a, struct dnode *d)
{
	if (!d->outsiders)
		return;
	while (d->outsiders)
		opener_drop(a, d, &d->outsiders);
	openers_dropped(a, d, false);
}
