/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets what: the queue of an inode, and what is in the way of the first in it. */
#include "agent/internal.h"

/* A claim lasts as long as a call of the kernel; one whose call was interrupted by a signal handler may last for ever. */
#define CLAIM_PATIENCE_MS 20

static void queue_add(struct dnode *d, struct client *c)
{
	c->wait_next = NULL;
	if (d->wait_last)
		d->wait_last->wait_next = c;
	else
		d->wait_first = c;
	d->wait_last = c;
}

static void queue_remove(struct dnode *d, struct client *c)
{
	struct client **p = &d->wait_first, *before = NULL;

	while (*p != c) {
		before = *p;
		p = &(*p)->wait_next;
	}
	*p = c->wait_next;
	if (d->wait_last == c)
		d->wait_last = before;
	c->wait_next = NULL;
	c->wait_hold = NULL;
}

bool deleg_away_has(const struct agent *a, uint64_t ino)
{
	if (!client_count(a, C_AWAY) && !client_count(a, C_DYING))
		return false;
	for (const struct client *c = a->clients; c; c = c->next) {
		if (c->state != C_AWAY && !(c->state == C_DYING && !c->holds))
			continue;
		for (uint32_t i = 0; i < c->lease.head.ninodes; i++)
			if (c->lease.inodes[i].valid && c->lease.inodes[i].ino == ino)
				return true;
	}
	return false;
}

/* May the first in the queue have its answer now? Sends the REVOKEs that this takes. */
static bool clear(struct agent *a, struct dnode *d, struct client *c)
{
	const bool alone = c->wait_flags & SFS_ACQ_EXCLUSIVE;
	bool ok = true;

	if (a->grace_until || deleg_away_has(a, d->ino))
		return false;
	for (struct hold *h = d->holds; h; h = h->dnode_next) {
		if (h->client == c || !h->open)
			continue;
		if (h->client->state == C_DYING) {
			ok = false; /* its data is not in the file yet */
		} else if (h->deleg == SFS_DELEG_EXCLUSIVE || (alone && h->deleg != SFS_DELEG_NONE && !h->pinned)) {
			deleg_step_down(a, h, alone || h->assumed ? SFS_DELEG_NONE : SFS_DELEG_SHARED);
			ok = false;
		}
	}
	return ok;
}

/* Has another client the file open? */
static bool others_open(const struct dnode *d, const struct hold *h)
{
	const struct hold *o = d->holds;

	while (o && (o == h || !o->open))
		o = o->dnode_next;
	return o;
}

/* Several clients, none of which may stage: an outsider finds everything in the file. */
static bool crowded(const struct dnode *d)
{
	uint32_t open = 0;

	if (d->opening)
		return false;
	for (const struct hold *h = d->holds; h; h = h->dnode_next) {
		if (h->deleg == SFS_DELEG_EXCLUSIVE || h->client->state == C_DYING || h->client->wait_hold == h)
			return false;
		open += h->open;
	}
	return open > 1;
}

void deleg_alone_again(struct agent *a, struct dnode *d)
{
	struct hold *only = NULL;

	for (struct hold *h = d->holds; h; h = h->dnode_next) {
		if (h->open && only)
			return;
		only = h->open ? h : only;
	}
	if (only && only->deleg == SFS_DELEG_SHARED && only->client->state != C_DYING)
		deleg_step_down(a, only, SFS_DELEG_NONE);
}

bool deleg_grant(struct agent *a, struct hold *h)
{
	owners_count(a, h, h->lease_index >= 0 ? COUNTED_STAGER : COUNTED_OTHER);
	if (owners_claimed(a, h->client, h->dnode->ino)) {
		owners_count(a, h, NOT_COUNTED);
		return false;
	}
	h->deleg = SFS_DELEG_EXCLUSIVE;
	return true;
}

void deleg_process(struct agent *a, struct dnode *d)
{
	/* Who opens the file without the library comes first: a client that has just stepped down for it asks again at once. */
	while (outsider_settle(a, d) && d->wait_first && clear(a, d, d->wait_first)) {
		struct client *c = d->wait_first;
		struct hold *h = c->wait_hold;
		struct sfs_msg m = {.version = SFS_PROTO_VERSION, .type = SFS_MSG_ACQUIRE};
		const bool others = d->outsiders || others_open(d, h);

		if (!h->limited && (!others || (c->wait_flags & SFS_ACQ_EXCLUSIVE)) && !deleg_grant(a, h) &&
		    ((c->wait_flags & SFS_ACQ_EXCLUSIVE) || agent_now() - c->wait_since < CLAIM_PATIENCE_MS)) {
			a->claimed = true;
			break;
		}
		queue_remove(d, c);
		if (h->deleg != SFS_DELEG_EXCLUSIVE)
			h->deleg = SFS_DELEG_SHARED;
		/* Whoever made it wait is gone. */
		if (h->deleg == SFS_DELEG_EXCLUSIVE && h->lease_index >= 0)
			outsider_mark(a, d, &h->target);
		m.a = h->deleg;
		m.b = h->deleg == SFS_DELEG_EXCLUSIVE && d->outsiders ? SFS_ACQ_AT_ONCE : 0;
		client_set_state(a, c, C_READY);
		/* Dropping it changes the dnode only by state C_DYING: the hold stays until it is recovered. */
		client_reply(a, c, &m, NULL, 0);
		if (m.b)
			deleg_step_down(a, h, SFS_DELEG_SHARED); /* which it does by itself */
	}
	if (d->marked && !d->outsiders && crowded(d))
		outsider_unmark(a, d);
	dnode_put(a, d);
}

void deleg_retry_all(struct agent *a)
{
	struct client *next;

	for (struct client *c = a->clients; c; c = next) {
		next = c->next;
		if (c->state == C_WAIT_ACQUIRE)
			deleg_process(a, c->wait_hold->dnode);
	}
}

void deleg_wait(struct agent *a, struct client *c, struct hold *h, uint64_t flags)
{
	c->wait_hold = h;
	c->wait_flags = flags;
	queue_add(h->dnode, c);
	client_set_state(a, c, C_WAIT_ACQUIRE);
	deleg_process(a, h->dnode);
}

void deleg_cancel_wait(struct agent *a, struct client *c)
{
	struct dnode *d;

	if (c->state != C_WAIT_ACQUIRE)
		return;
	d = c->wait_hold->dnode;
	queue_remove(d, c);
	client_set_state(a, c, C_READY);
	deleg_process(a, d);
}

bool deleg_unused(const struct agent *a, const struct dnode *d, const struct hold *h)
{
	if (a->grace_until || deleg_away_has(a, d->ino) || d->outsiders || d->opening || d->wait_first || h->limited)
		return false;
	for (const struct hold *o = d->holds; o; o = o->dnode_next)
		if (o != h && o->open &&
		    (o->deleg != SFS_DELEG_NONE || o->pinned || o->client->state == C_DYING ||
		     !(o->client->features & SFS_FEATURE_OWNERS)))
			return false;
	return true;
}
