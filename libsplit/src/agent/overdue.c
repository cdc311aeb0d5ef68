/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that wait long for a file because another one does not answer its REVOKE: it is stopped, or its disk is. Nothing can be
 * taken from such a process: it has the files mapped and may go on in the middle of a store at any time, so whoever got the file
 * meanwhile would see torn data or lose its own. So they go on waiting, and it is said who waits for whom: in the agent's log, again
 * each time the wait has doubled, and in `splitfs status`.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "agent/internal.h"
#include "control/blocked.h"

struct overdue {
	struct sfs_blocked_list list;
	uint64_t now;
};

/* Does somebody else wait for what h's client has? */
static bool holds_up(const struct hold *h, const struct client *c)
{
	return h->client != c && h->open && (h->revoking || h->client->state == C_DYING);
}

static void say(struct agent *a, const struct client *c, const struct hold *h, uint64_t seconds)
{
	const struct client *o = h->client;

	if (o->state == C_DYING)
		agent_log(a, "process %d (%s) has waited %llu s for inode %llu: the log of process %d (%s) is being recovered",
			  c->pid, c->comm, (unsigned long long)seconds, (unsigned long long)h->dnode->ino, o->pid, o->comm);
	else
		agent_log(a,
			  "process %d (%s) has waited %llu s for inode %llu, which process %d (%s, state %c) does not give up; "
			  "let it go on, or end it",
			  c->pid, c->comm, (unsigned long long)seconds, (unsigned long long)h->dnode->ino, o->pid, o->comm,
			  sfs_process_state(o->pid));
}

static void look(struct agent *a, struct overdue *o, struct hold *w)
{
	const struct client *c = w->client;
	const uint64_t waited = o->now - w->turn.since;
	const bool report = waited >= w->turn.report;

	if (waited < a->overdue_ms)
		return;
	if (report) {
		o->list.total += w->turn.report == a->overdue_ms;
		w->turn.report *= 2;
	}
	for (const struct hold *h = w->dnode->holds; h; h = h->dnode_next) {
		if (!holds_up(h, c))
			continue;
		if (report)
			say(a, c, h, waited / 1000);
		if (o->list.n < SFS_BLOCKED_MAX)
			o->list.v[o->list.n++] = (struct sfs_blocked){c->pid, h->client->pid, h->dnode->ino,
								      (uint64_t)time(NULL) - waited / 1000};
	}
}

void overdue_check(struct agent *a, uint64_t now)
{
	struct overdue o = {.list.total = a->overdue_total, .now = now};
	struct hold *h;
	int err;

	TAILQ_FOREACH(h, &a->waiting, turn.among)
		look(a, &o, h);
	/* Written when the picture changes; how long each has waited follows from when it began. */
	if (o.list.n == a->overdue_listed && o.list.total == a->overdue_total)
		return;
	a->overdue_listed = o.list.n;
	a->overdue_total = o.list.total;
	err = sfs_blocked_write(&a->root, &o.list);
	if (err)
		agent_log(a, "write the list of waiting processes: %s", strerror(-err));
}
