/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LOOK: a client without a grant wants the kernel's view of a file to be true. It waits without a lock of its own, and hears of it on its
 * event socket; here a question is only a number. Whoever may have something staged steps down; a dead one is recovered first.
 *
 * Each question has its answer: LOOKED with the number in the table's word at which nobody staged the inode, or an error when
 * the holder has not answered for OVERDUE_SECONDS.
 */
#include <errno.h>
#include <string.h>

#include "agent/internal.h"

struct look {
	struct look *next;
	struct client *client;
	uint64_t ino, flags, number;
	uint64_t since;
};

static bool stages(const struct hold *h)
{
	return h->counted == COUNTED_STAGER;
}

/* Must the question wait? Sends the REVOKEs that this takes. */
static bool busy(struct agent *a, const struct look *l)
{
	bool wait = deleg_away_has(a, l->ino);
	struct dnode *next;

	for (struct dnode *d = deleg_first(a, l->ino); d; d = next) {
		next = deleg_next(d);
		for (struct hold *h = d->holds; h; h = h->dnode_next) {
			if (h->client == l->client || !h->open)
				continue;
			/* Recovery has a descriptor for a while, and a lease is given to who has the file alone. */
			if (h->client->state == C_DYING && (l->flags & SFS_LOOK_CHANGE))
				wait = true;
			if (h->deleg != SFS_DELEG_EXCLUSIVE)
				continue;
			if (!stages(h) && !(l->flags & SFS_LOOK_CHANGE))
				continue;
			if (h->client->state != C_DYING)
				deleg_step_down(a, h, SFS_DELEG_NONE);
			wait = true;
		}
	}
	return wait;
}

/* False: its event socket is full. It may be stopped: what it has asked for waits for it, and is looked at again then. */
static bool answer(struct agent *a, const struct look *l, int status)
{
	const struct sfs_msg m = {
		.type = SFS_MSG_LOOKED, .status = status, .a = l->ino, .c = owners_number(a, l->ino), .d = l->number};

	return client_tell(a, l->client, &m);
}

/* Take it out of the list. */
static void look_free(struct agent *a, struct look **p)
{
	struct look *l = *p;

	*p = l->next;
	l->client->tenant->looks--;
	l->client->nlooks--;
	a->nlooks--;
	free(l);
}

/* Nobody has it any more. */
static void rest(struct agent *a, uint64_t ino)
{
	for (struct dnode *d = deleg_first(a, ino); d; d = deleg_next(d))
		outsider_rest(a, d);
}

/* Has it got its answer? */
static bool settled(struct agent *a, const struct look *l, uint64_t now)
{
	int status = 0;

	if (l->client->event_blocked)
		return false;
	if (busy(a, l)) {
		const bool full = full_in_way(a, l->ino);

		/* Who is about to write is told at once what the kernel would say; a reader waits for space as long as it may. */
		if (now - l->since < a->look_ms && !(full && l->flags & SFS_LOOK_CHANGE))
			return false;
		status = full ? -ENOSPC : -ETIMEDOUT;
	}
	if (status == 0 && l->flags & SFS_LOOK_CHANGE)
		rest(a, l->ino);
	return answer(a, l, status);
}

/* Answer those that can be answered. */
void look_settle(struct agent *a)
{
	const uint64_t now = a->looks ? agent_now() : 0;
	struct look **p = &a->looks;

	while (*p) {
		if ((*p)->client->event < 0 || settled(a, *p, now))
			look_free(a, p);
		else
			p = &(*p)->next;
	}
}

void look_ask(struct agent *a, struct client *c, const struct sfs_msg *m)
{
	struct look *l, **last;

	if (c->event_blocked && c->nlooks >= LOOKS_UNREAD) {
		client_drop(a, c, "it asks on and does not read its events");
		return;
	}
	for (last = &a->looks; *last; last = &(*last)->next)
		;
	l = tenant_may(c->tenant->looks, a->nlooks, LOOKS_MAX, 1) ? calloc(1, sizeof(*l)) : NULL;
	if (!l) {
		client_drop(a, c, "too many questions");
		return;
	}
	*l = (struct look){.client = c, .ino = m->a, .flags = m->c, .number = m->d, .since = agent_now()};
	*last = l;
	c->tenant->looks++;
	c->nlooks++;
	a->nlooks++;
	/* The loop calls look_settle() before it waits again. */
}

void look_forget(struct agent *a, const struct client *c)
{
	for (struct look **p = &a->looks; *p;) {
		if ((*p)->client == c)
			look_free(a, p);
		else
			p = &(*p)->next;
	}
}
