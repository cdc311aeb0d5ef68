/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets what: the queue of an inode, and what is in the way of the first in it. */
#include "agent/internal.h"
#include "base/state.h"

/* A claim lasts as long as a call of the kernel; one whose call was interrupted by a signal handler may last for ever. */
#define CLAIM_PATIENCE_MS 20

static void set_turn(struct agent *a, struct hold *h, enum turn_state state)
{
	static const uint8_t next[] = {
		[TURN_NONE] = SFS_TO(TURN_ASKED),
		[TURN_ASKED] = SFS_TO(TURN_QUEUED) | SFS_TO(TURN_NONE),
		[TURN_QUEUED] = SFS_TO(TURN_CALLED) | SFS_TO(TURN_ASKED) | SFS_TO(TURN_NONE),
		[TURN_CALLED] = SFS_TO(TURN_ASKED) | SFS_TO(TURN_NONE),
	};

	sfs_check_next(next, h->turn.state, state);
	if (h->turn.state == TURN_NONE) {
		TAILQ_INSERT_TAIL(&h->dnode->queue, h, turn.place);
		TAILQ_INSERT_TAIL(&a->waiting, h, turn.among);
	} else if (state == TURN_NONE) {
		TAILQ_REMOVE(&h->dnode->queue, h, turn.place);
		TAILQ_REMOVE(&a->waiting, h, turn.among);
	}
	h->turn.state = state;
}

/* One that asks again keeps its place. */
static void enter_queue(struct agent *a, struct hold *h, uint64_t flags)
{
	if (h->turn.state == TURN_NONE) {
		h->turn.since = agent_now();
		h->turn.report = a->overdue_ms;
	}
	h->turn.flags = flags;
	set_turn(a, h, TURN_ASKED);
}

void deleg_leave_queue(struct agent *a, struct hold *h)
{
	if (h->turn.state == TURN_NONE)
		return;
	set_turn(a, h, TURN_NONE);
	if (h->client->state == C_WAIT_ACQUIRE)
		client_set_state(a, h->client, C_READY);
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
static bool clear(struct agent *a, struct dnode *d, const struct hold *first)
{
	const bool alone = first->turn.flags & SFS_ACQ_EXCLUSIVE;
	bool ok = true;

	if (a->grace_until || deleg_away_has(a, d->ino))
		return false;
	for (struct hold *h = d->holds; h; h = h->dnode_next) {
		if (h == first || !h->open)
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
		if (h->deleg == SFS_DELEG_EXCLUSIVE || h->client->state == C_DYING || h->turn.state != TURN_NONE)
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

/* Does somebody look at the kernel's view all the time: a program without the library, or a process that has the file mapped? */
static bool looked_at(const struct dnode *d, const struct hold *h)
{
	const struct hold *o = d->holds;

	while (o && (o == h || !o->open || !o->pinned))
		o = o->dnode_next;
	return o || d->writers;
}

/* Nothing is in its way: it has its answer. */
static void answer(struct agent *a, struct hold *h)
{
	struct dnode *d = h->dnode;
	struct sfs_msg m = {.type = SFS_MSG_ACQUIRE};

	deleg_leave_queue(a, h);
	if (h->deleg != SFS_DELEG_EXCLUSIVE)
		h->deleg = SFS_DELEG_SHARED;
	/* Whoever made it wait is gone. */
	if (h->deleg == SFS_DELEG_EXCLUSIVE && h->lease_index >= 0)
		outsider_granted(a, h);
	m.a = h->deleg;
	m.b = h->deleg == SFS_DELEG_EXCLUSIVE && looked_at(d, h) ? SFS_ACQ_AT_ONCE : 0;
	/* Dropping the client changes the dnode only by state C_DYING: the hold stays until it is recovered. */
	client_reply(a, h->client, &m, NULL, 0);
	if (m.b)
		deleg_step_down(a, h, SFS_DELEG_SHARED); /* which it does by itself */
}

/* May it have the grant at all? Else its answer is SHARED. */
static bool may_have(const struct hold *h)
{
	const bool others = h->dnode->writers || others_open(h->dnode, h);

	return !h->limited && !h->by_kernel && (!others || (h->turn.flags & SFS_ACQ_EXCLUSIVE));
}

/* Is the claim in its way waited for? Nobody tells us when that ends. */
static bool wait_for_claim(struct agent *a, const struct hold *h)
{
	if (!(h->turn.flags & SFS_ACQ_EXCLUSIVE) && agent_now() - h->turn.since >= CLAIM_PATIENCE_MS)
		return false;
	a->claimed = true;
	return true;
}

static bool claim_in_way(struct agent *a, const struct hold *h)
{
	return may_have(h) && owners_claimed(a, h->client, h->dnode->ino) && wait_for_claim(a, h);
}

/* The grant, if it can be had. False: a claim was in its way. It may have ended since, which is not for us to see: it is tried again. */
static bool grant_asked(struct agent *a, struct hold *h)
{
	return !may_have(h) || deleg_grant(a, h) || !wait_for_claim(a, h);
}

static void send_turn(struct agent *a, struct hold *h)
{
	const struct sfs_msg m = {.type = SFS_MSG_TURN, .a = h->dnode->ino, .b = h->dnode->gen};

	h->turn.unsent = !client_tell(a, h->client, &m);
}

/* It is asked for again, before anybody else is answered. */
static void call(struct agent *a, struct hold *h)
{
	set_turn(a, h, TURN_CALLED);
	h->turn.called = agent_now();
	h->turn.unsent = true;
	send_turn(a, h);
}

void deleg_send_turn(struct agent *a, struct hold *h)
{
	if (h->turn.unsent)
		send_turn(a, h);
}

void deleg_process(struct agent *a, struct dnode *d)
{
	/* Who opens the file without the library comes first: a client that has just stepped down for it asks again at once. */
	struct hold *h;

	while (outsider_settle(a, d) && (h = TAILQ_FIRST(&d->queue)) && h->turn.state != TURN_CALLED && clear(a, d, h)) {
		if (h->turn.state == TURN_QUEUED) {
			if (!claim_in_way(a, h))
				call(a, h);
			break;
		}
		if (!grant_asked(a, h))
			break;
		answer(a, h);
	}
	if (d->marked && !d->outsiders && crowded(d))
		outsider_unmark(a, d);
	dnode_put(a, d);
}

/*
 * Who waits: those of a client, or (NULL) all. fn may end this hold, and by the end of a client any other: so the first that this walk has not
 * met is looked for each time. One within it makes it meet some twice.
 */
static void each_waiting(struct agent *a, const struct client *of, void (*fn)(struct agent *a, struct hold *h))
{
	const uint64_t walk = ++a->walk;
	struct hold *h;

	while ((h = TAILQ_FIRST(&a->waiting)) && h->turn.walk != walk) {
		TAILQ_REMOVE(&a->waiting, h, turn.among);
		TAILQ_INSERT_TAIL(&a->waiting, h, turn.among);
		h->turn.walk = walk;
		if (!of || h->client == of)
			fn(a, h);
	}
}

static void process_of(struct agent *a, struct hold *h)
{
	deleg_process(a, h->dnode);
}

void deleg_retry_all(struct agent *a)
{
	each_waiting(a, NULL, process_of);
}

static void cancel(struct agent *a, struct hold *h)
{
	deleg_leave_queue(a, h);
	deleg_process(a, h->dnode);
}

void deleg_cancel_waits(struct agent *a, struct client *c)
{
	each_waiting(a, c, cancel);
}

/* One that could not be told keeps its hold until it has been (SIGSTOP). */
static void end_turn(struct agent *a, struct hold *h)
{
	if (h->turn.state != TURN_CALLED || agent_now() - h->turn.called < SFS_TURN_MS)
		return;
	if (h->turn.unsent)
		cancel(a, h);
	else
		deleg_release(a, h->client, h->dnode->ino, h->dnode->gen);
}

void deleg_turns_over(struct agent *a)
{
	each_waiting(a, NULL, end_turn);
}

void deleg_wait(struct agent *a, struct hold *h, uint64_t flags)
{
	struct client *c = h->client;
	const struct sfs_msg queued = {.type = SFS_MSG_ACQUIRE, .a = SFS_DELEG_NONE, .b = SFS_ACQ_QUEUED};

	enter_queue(a, h, flags);
	if (!(c->features & SFS_FEATURE_TURN))
		client_set_state(a, c, C_WAIT_ACQUIRE);
	deleg_process(a, h->dnode);
	/* It stays, with its place in the queue, as long as its client does. */
	if (h->turn.state != TURN_ASKED || !(c->features & SFS_FEATURE_TURN))
		return;
	set_turn(a, h, TURN_QUEUED);
	client_reply(a, c, &queued, NULL, 0);
}

bool deleg_unused(const struct agent *a, const struct dnode *d, const struct hold *h)
{
	if (a->grace_until || deleg_away_has(a, d->ino) || d->writers || d->opening || !TAILQ_EMPTY(&d->queue) || h->limited ||
	    h->by_kernel)
		return false;
	for (const struct hold *o = d->holds; o; o = o->dnode_next)
		if (o != h && o->open &&
		    (o->deleg != SFS_DELEG_NONE || o->pinned || o->client->state == C_DYING ||
		     !(o->client->features & SFS_FEATURE_OWNERS)))
			return false;
	return true;
}
