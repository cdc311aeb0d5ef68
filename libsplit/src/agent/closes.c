/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Until when a program without the library has a file open (openers.c).
 *
 * The kernel tells of each close, but joins those that are alike. So they are not counted: after each, and some time after an open, which
 * may have failed, a thread looks what the process has open still (looker.c). It must not take a file for closed whose open it does not see yet. An
 * open has ended when its thread asks for another one, stands in another call, or has run in its program; or when a process of one thread closes the
 * file, if no close was still to be read when the open was let go.
 *
 * What is not seen: a descriptor that was handed on, when the process that opened it has closed it and opens and closes the file once more.
 */
#include <poll.h>
#include <sys/fanotify.h>
#include <unistd.h>

#include "agent/openers.h"

#define LOOK_FIRST_MS  5 /* from an open to the first look; each later one comes after twice as long */
#define LOOK_LAST_MS   200
#define LOOK_RARELY_MS 5000
#define LOOK_SELDOM_MS 60000
#define LOOKER_WAIT_MS 20

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

void opener_look_soon(struct agent *a, struct outsider *w)
{
	look_after(a, w, LOOK_FIRST_MS);
}

void opener_look_never(struct agent *a, struct outsider *w)
{
	set_look(a, w, 0);
}

static void look_later(struct agent *a, struct outsider *w)
{
	look_after(a, w, w->look_ms * 2 < LOOK_LAST_MS ? w->look_ms * 2 : LOOK_LAST_MS);
}

/* It is not known that it has closed the file, or it has not. A close may not be told, so it is looked at again all the same. */
static void look_rarely(struct agent *a, struct outsider *w)
{
	const uint64_t ms = w->look_ms < LOOK_RARELY_MS ? LOOK_RARELY_MS : w->look_ms * 2;
	/* The end of one that shares a description with who goes on is told by nobody. */
	const uint64_t most = w->left_from ? LOOK_RARELY_MS : LOOK_SELDOM_MS;

	/* The new program may just have begun. */
	if (w->left_from && w->look_ms < LOOK_LAST_MS)
		look_later(a, w);
	else
		look_after(a, w, ms < most ? ms : most);
}

void opener_is_aware(struct agent *a, struct dnode *d, struct outsider *w)
{
	const bool wrote = d->writers;

	opener_set_writes(d, w, false);
	w->leaving = 0;
	w->aware = true;
	look_after(a, w, LOOK_SELDOM_MS);
	openers_dropped(a, d, wrote);
}

/* ---- what it has ---- */

static void look(struct agent *a, struct outsider *w)
{
	struct look_for f = {.who = {w->dnode->ino, w->dnode->gen, w->pid, w->number, w->left_from},
			     .dev = a->root.dev,
			     .tables = w->tables};

	set_look(a, w, 0);
	if (w->pid == SOMEBODY) {
		/* Who opens it from now on is seen. */
		for (const struct hold *h = w->dnode->holds; h && !w->dnode->marked; h = h->dnode_next)
			outsider_mark(a, w->dnode, &h->target);
		f.who.pid = 0;
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
			opener_end_arrival(p);
	}
}

/* Where it can't be watched when they close it, they have it as long as clients do. */
static void hear_all(struct agent *a, struct dnode *d, const struct look_answer *r)
{
	struct outsider *w = *opener_find(d, SOMEBODY);
	const bool wrote = d->writers;

	if (!w)
		return;
	w->asked = false;
	for (uint32_t i = 0; i < r->nfound; i++)
		opener_found(a, d, &r->found[i], false);
	if (r->has == SFS_OPENED_UNKNOWN) {
		look_rarely(a, w);
		return;
	}
	openers_searched(a, d);
	opener_drop(a, d, opener_find(d, SOMEBODY));
	openers_dropped(a, d, wrote);
	deleg_process(a, d);
}

/* It has gone, or has not got it; or a child has it, or who else it was handed on to. */
static void gone(struct agent *a, struct dnode *d, struct outsider **p)
{
	const bool wrote = d->writers, aware = (*p)->aware, writes = (*p)->writes;
	/* What one to which the file was left has closed was its library's word to us. */
	const bool left = (*p)->left_from, handed_on = !left && !(*p)->closed;

	opener_drop(a, d, p);
	if (handed_on)
		openers_search(a, d, writes);
	else if (left && !aware)
		before_again(a, d);
	openers_dropped(a, d, wrote);
	deleg_process(a, d); /* nobody may have it any more */
}

static void hear(struct agent *a, const struct look_answer *r)
{
	struct dnode *d = deleg_find(a, r->who.ino, r->who.gen);
	struct outsider **p = d && r->who.pid > 0 ? opener_find(d, r->who.pid) : NULL, *w = p ? *p : NULL;
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
	} else if (r->left_to_library) {
		opener_is_aware(a, d, w);
		deleg_process(a, d);
	} else {
		look_rarely(a, w);
		if (r->has == SFS_OPENED_READ && w->writes) {
			opener_set_writes(d, w, false);
			openers_dropped(a, d, wrote);
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
	struct outsider *own = *opener_find(d, pid);
	struct arrival **p = own ? &own->arrivals : NULL;

	if (own)
		own->closed = true;
	while (p && *p) {
		if ((*p)->by_close)
			opener_end_arrival(p);
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
		if (d && d->outsiders && m->pid != a->pid &&
		    (*opener_find(d, m->pid) || !processes_is_client(&a->outsiders, m->pid)))
			closed(a, d, m->pid);
	}
	hear_soon(a);
}

int openers_wait_ms(const struct agent *a)
{
	const struct outsider *w;
	uint64_t first = UINT64_MAX;

	if (TAILQ_EMPTY(&a->outsiders.looked_at))
		return -1;
	TAILQ_FOREACH(w, &a->outsiders.looked_at, looked_at)
		if (w->look_at < first)
			first = w->look_at;
	return agent_until(first);
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
