/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which programs without the library have a file open, from their open (outsider.c) until they have closed it. While one has it for
 * writing nobody is granted EXCLUSIVE, as with two clients (granting.c). While one has it at all the table of owners says so, and
 * fsync and the service thread of who stages bytes of it bring them into the file for it (format/owners.h).
 *
 * The kernel tells of each close, but joins those that are alike. So they are not counted: after each, and some time after an open, which
 * may have failed, a thread looks what the process has open still (looker.c). It must not take a file for closed whose open it does not see yet. An
 * open has ended when its thread asks for another one, stands in another call, or has run in its program; or when a process of one thread closes the
 * file, if no close was still to be read when the open was let go.
 *
 * What is not seen: a descriptor that was handed on, when the process that opened it has closed it and opens and closes the file once more.
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/fanotify.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent/internal.h"

#define CLOSES	       (FAN_CLOSE_WRITE | FAN_CLOSE_NOWRITE)
#define LOOK_FIRST_MS  5 /* from an open to the first look; each later one comes after twice as long */
#define LOOK_LAST_MS   200
#define LOOK_RARELY_MS 5000
#define LOOK_SELDOM_MS 60000
#define LOOKER_WAIT_MS 20

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
	struct arrival *arrivals;
	uint32_t number;       /* of its last open */
	bool closed;	       /* since then the process has closed the file, or another open one of it */
	bool asked, ask_again; /* the looker is asked; and something has happened since */
	uint64_t look_at;      /* ms; 0: not before it closes the file */
	uint64_t look_ms;
	TAILQ_ENTRY(outsider) looked_at; /* while look_at is set */
};

static void set_writes(struct dnode *d, struct outsider *w, bool writes)
{
	d->writers += (uint32_t)writes - (uint32_t)w->writes;
	w->writes = writes;
}

/* ---- when it is looked at ---- */

static void set_look(struct agent *a, struct outsider *w, uint64_t at)
{
	if (w->look_at && !at)
		TAILQ_REMOVE(&a->outsiders.looked_at, w, looked_at);
	if (!w->look_at && at)
		TAILQ_INSERT_TAIL(&a->outsiders.looked_at, w, looked_at);
	w->look_at = at;
}

static void look_after(struct agent *a, struct outsider *w, uint64_t ms)
{
	w->look_ms = ms;
	set_look(a, w, agent_now() + ms);
}

static void look_soon(struct agent *a, struct outsider *w)
{
	look_after(a, w, LOOK_FIRST_MS);
}

static void look_later(struct agent *a, struct outsider *w)
{
	look_after(a, w, w->look_ms * 2 < LOOK_LAST_MS ? w->look_ms * 2 : LOOK_LAST_MS);
}

/* It is not known that it has closed the file, or it has not. A close may not be told, so it is looked at again all the same. */
static void look_rarely(struct agent *a, struct outsider *w)
{
	const uint64_t ms = w->look_ms < LOOK_RARELY_MS ? LOOK_RARELY_MS : w->look_ms * 2;

	look_after(a, w, ms < LOOK_SELDOM_MS ? ms : LOOK_SELDOM_MS);
}

/* ---- who ---- */

static void end_arrival(struct arrival **p)
{
	struct arrival *r = *p;

	*p = r->next;
	free(r);
}

static void drop(struct agent *a, struct dnode *d, struct outsider **p)
{
	struct outsider *w = *p;

	set_writes(d, w, false);
	set_look(a, w, 0);
	while (w->arrivals)
		end_arrival(&w->arrivals);
	*p = w->next;
	free(w);
}

/* Of a process; or the end of the list. */
static struct outsider **find(struct dnode *d, int pid)
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
			end_arrival(p);
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
	look_soon(a, w);
	return true;
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
	w = *find(d, pid);
	if (!w)
		w = enter(d, pid);
	if (!w) {
		agent_log(a, "out of memory: process %d is not seen to have inode %llu open", pid, (unsigned long long)d->ino);
		return;
	}
	set_writes(d, w, w->writes || who->writes);
	w->client |= who->client;
	add_pc(w, who->call.pc);
	if (who->has) {
		w->tables.all = w->anywhere = true;
		look_soon(a, w);
	} else if (pid > 0 && !arrive(a, w, who)) {
		w->pid = 0; /* nothing of it is looked at any more */
	}
	owners_outside(a, d);
}

/* Has it been looked at since we began who has the inode? From then on it is known. When that was done for too many nobody else is looked for. */
static bool searched(const struct agent *a, const struct dnode *d)
{
	for (uint32_t i = 0; i < a->outsiders.nsearched; i++)
		if (a->outsiders.searched[i].ino == d->ino && a->outsiders.searched[i].gen == d->gen)
			return true;
	return a->outsiders.nsearched == SEARCHED_MAX;
}

static void note_searched(struct agent *a, const struct dnode *d)
{
	struct outsiders *o = &a->outsiders;

	if (owners_said(a, d->ino) && !searched(a, d))
		o->searched[o->nsearched++] = (struct searched){d->ino, d->gen};
}

/* Somebody may have it; until it is known who, somebody does. */
static void search(struct agent *a, struct dnode *d, bool writes)
{
	struct outsider *w = a->outsiders.opens_fd < 0 || *find(d, SOMEBODY) ? NULL : enter(d, SOMEBODY);

	if (!w)
		return;
	set_writes(d, w, writes);
	owners_outside(a, d);
	look_soon(a, w);
}

void openers_before(struct agent *a, struct dnode *d)
{
	if (!searched(a, d))
		search(a, d, true);
}

/* The list has become shorter. */
static void dropped(struct agent *a, struct dnode *d, bool wrote)
{
	if (!d->outsiders && a->outsiders.closes_fd >= 0)
		outsider_ask_no_more(a, d, a->outsiders.closes_fd, CLOSES);
	owners_outside(a, d);
	if (wrote && !d->writers)
		deleg_alone_again(a, d);
}

void openers_is_client(struct agent *a, struct dnode *d, const struct client *c)
{
	struct outsider **p = c->pid > 0 ? find(d, c->pid) : NULL;
	const bool wrote = d->writers;

	if (!p || !*p || (*p)->client)
		return;
	/* What it opened by itself before its library was known stays. A library that does not say where it is is believed. */
	if ((c->features & SFS_FEATURE_CODE) && !all_from(*p, c->library)) {
		(*p)->client = true;
	} else {
		drop(a, d, p);
		dropped(a, d, wrote);
	}
}

void openers_forget(struct agent *a, struct dnode *d)
{
	if (!d->outsiders)
		return;
	while (d->outsiders)
		drop(a, d, &d->outsiders);
	dropped(a, d, false);
}

/* ---- what it has ---- */

static void look(struct agent *a, struct outsider *w)
{
	struct look_for f = {.who = {w->dnode->ino, w->dnode->gen, w->pid, w->number}, .tables = w->tables};
	struct stat st;

	set_look(a, w, 0);
	if (w->pid == SOMEBODY) {
		/* Who opens it from now on is seen. */
		for (const struct hold *h = w->dnode->holds; h && !w->dnode->marked; h = h->dnode_next)
			outsider_mark(a, w->dnode, &h->target);
		f.who.pid = 0;
		f.dev = fstat(a->root.fd, &st) == 0 ? st.st_dev : 0;
	} else if (w->pid <= 0) {
		return;
	}
	if (w->asked) {
		w->ask_again = true;
		return;
	}
	for (const struct arrival *r = w->arrivals; r && f.n < LOOKER_OPENS; r = r->next)
		f.open[f.n++] = r->open;
	w->asked = looker_ask(&a->outsiders.looker, &f);
	w->ask_again = false;
	a->outsiders.nasked += w->asked;
	if (!w->asked)
		look_later(a, w);
}

static void forget_ended(struct outsider *w, const struct look_answer *r)
{
	for (uint32_t i = 0; i < r->n; i++) {
		struct arrival **p = &w->arrivals;

		while (*p && (*p)->open.number != r->ended[i])
			p = &(*p)->next;
		if (*p)
			end_arrival(p);
	}
}

/* Where it can't be watched when they close it, they have it as long as clients do. */
static void hear_all(struct agent *a, struct dnode *d, const struct look_answer *r)
{
	struct outsider *w = *find(d, SOMEBODY);
	const bool wrote = d->writers;

	if (!w)
		return;
	w->asked = false;
	for (uint32_t i = 0; i < r->nfound; i++) {
		const int pid = r->found[i].pid;

		if (!listener_is_client(&a->outsiders, pid))
			openers_add(a, d, &(struct opener){.pid = pid, .tid = pid, .writes = r->found[i].writes, .has = true});
	}
	if (r->has == SFS_OPENED_UNKNOWN) {
		look_rarely(a, w);
		return;
	}
	note_searched(a, d);
	drop(a, d, find(d, SOMEBODY));
	dropped(a, d, wrote);
	deleg_process(a, d);
}

/* It has gone, or has not got it; or a child has it, or who else it was handed on to. */
static void gone(struct agent *a, struct dnode *d, struct outsider **p)
{
	const bool wrote = d->writers, handed_on = !(*p)->closed, writes = (*p)->writes;

	drop(a, d, p);
	if (handed_on)
		search(a, d, writes);
	dropped(a, d, wrote);
	deleg_process(a, d); /* nobody may have it any more */
}

static void hear(struct agent *a, const struct look_answer *r)
{
	struct dnode *d = deleg_find(a, r->who.ino, r->who.gen);
	struct outsider **p = d && r->who.pid > 0 ? find(d, r->who.pid) : NULL, *w = p ? *p : NULL;
	const bool wrote = d && d->writers;

	if (d && r->who.pid == 0)
		hear_all(a, d, r);
	if (!w)
		return;
	w->asked = false;
	forget_ended(w, r);
	if (w->ask_again || (w->arrivals && r->n > 0)) {
		look(a, w);
	} else if (w->arrivals || w->number != r->who.number) {
		look_later(a, w);
	} else if (r->has == SFS_OPENED_NOT) {
		gone(a, d, p);
	} else {
		look_rarely(a, w);
		if (r->has == SFS_OPENED_READ && w->writes) {
			set_writes(d, w, false);
			dropped(a, d, wrote);
			deleg_process(a, d);
		}
	}
}

void openers_hear(struct agent *a)
{
	struct look_answer r;

	while (looker_hears(&a->outsiders.looker, &r)) {
		a->outsiders.nasked--;
		hear(a, &r);
	}
	if (a->outsiders.nasked == 0)
		a->outsiders.looker_late = false;
}

/* Most often the answers come at once, and who asks for the file next is to find it free. One that did not come in time is not waited for. */
static void hear_soon(struct agent *a)
{
	struct outsiders *o = &a->outsiders;
	struct pollfd answers = {o->looker.out, POLLIN, 0};
	const uint64_t end = agent_now() + LOOKER_WAIT_MS;

	while (o->nasked && !o->looker_late) {
		const uint64_t now = agent_now();

		if (now >= end || poll(&answers, 1, (int)(end - now)) <= 0)
			o->looker_late = true;
		openers_hear(a);
	}
}

/* Who has closed it may have it open more than once, or have had it handed on by another one. */
static void closed(struct agent *a, struct dnode *d, int pid)
{
	struct outsider *own = *find(d, pid);
	struct arrival **p = own ? &own->arrivals : NULL;

	if (own)
		own->closed = true;
	while (p && *p) {
		if ((*p)->by_close)
			end_arrival(p);
		else
			p = &(*p)->next;
	}
	for (struct outsider *w = d->outsiders; w; w = w->next) {
		w->look_ms = LOOK_FIRST_MS;
		if (w == own || !own)
			look(a, w);
		else if (!w->look_at)
			set_look(a, w, agent_now() + LOOK_LAST_MS);
	}
}

void openers_closes(struct agent *a)
{
	_Alignas(struct fanotify_event_metadata) char buf[4096];
	const struct fanotify_event_metadata *m = (void *)buf;
	ssize_t n = read(a->outsiders.closes_fd, buf, sizeof(buf));

	for (; n > 0 && FAN_EVENT_OK(m, n); m = FAN_EVENT_NEXT(m, n)) {
		struct dnode *d;

		if (m->fd < 0)
			continue;
		d = outsider_dnode(a, m->fd);
		close(m->fd);
		if (d && d->outsiders && m->pid != a->pid && (*find(d, m->pid) || !listener_is_client(&a->outsiders, m->pid)))
			closed(a, d, m->pid);
	}
	hear_soon(a);
}

int openers_wait_ms(const struct agent *a)
{
	const struct outsider *w;
	uint64_t first = UINT64_MAX, now;

	if (TAILQ_EMPTY(&a->outsiders.looked_at))
		return -1;
	TAILQ_FOREACH(w, &a->outsiders.looked_at, looked_at)
		if (w->look_at < first)
			first = w->look_at;
	now = agent_now();
	return first > now ? (int)(first - now) : 0;
}

void openers_timeouts(struct agent *a, uint64_t now)
{
	struct outsider *w, *next;

	for (w = TAILQ_FIRST(&a->outsiders.looked_at); w; w = next) {
		next = TAILQ_NEXT(w, looked_at);
		if (now >= w->look_at)
			look(a, w);
	}
}
