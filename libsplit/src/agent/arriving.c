/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens that were let go and have perhaps not ended: between the agent's answer and the descriptor in the process's table the thread may be
 * held up as long as you like (its turn does not come, another fanotify group, a long O_TRUNC). Who looks then which files the process
 * has open does not find this one, and must not take it for closed (openers.c).
 *
 * The open has ended when the thread stands in another call; or when a process of one thread closes the file, if no close was still to
 * be read when it was let go. Neither need be seen at once, so we look again later; an open may have failed, too, which no close tells of.
 */
#include <stdlib.h>
#include <sys/ioctl.h>

#include "agent/internal.h"

#define LOOK_MS 5 /* first; later half as long again as it has been */

struct arrival {
	struct arrival *next;
	struct dnode *dnode;
	struct opener who;
	bool by_close; /* a close of its process says that it has ended */
};

void arriving_add(struct agent *a, struct dnode *d, const struct opener *who)
{
	struct arrival *r = calloc(1, sizeof(*r));
	int unread = 0;

	if (!r) {
		agent_log(a, "out of memory: process %d is perhaps not seen to have inode %llu open", who->pid,
			  (unsigned long long)d->ino);
		return;
	}
	*r = (struct arrival){a->outsiders.arriving, d, *who, false};
	r->by_close = who->alone && ioctl(a->outsiders.closes_fd, FIONREAD, &unread) == 0 && unread == 0;
	a->outsiders.arriving = r;
	a->outsiders.arriving_since = agent_now();
	a->outsiders.arriving_look = a->outsiders.arriving_since + LOOK_MS;
}

/* Where the thread runs it may do so in the same call as before, or behind it. */
static bool has_ended(struct arrival *r)
{
	const char state = sfs_process_state(r->who.tid);
	struct sfs_call now;

	if (state == 'Z' || state == 'X' || state == '?')
		return true;
	sfs_process_call(r->who.tid, &now, 0);
	if (now.nr == SFS_CALL_RUNNING)
		return false;
	/* It had not stood still before. */
	if (r->who.call.nr == SFS_CALL_RUNNING) {
		r->who.call = now;
		return false;
	}
	return now.nr != r->who.call.nr || now.pc != r->who.call.pc || now.arg[0] != r->who.call.arg[0] ||
	       now.arg[1] != r->who.call.arg[1] || now.arg[2] != r->who.call.arg[2];
}

static void remove_at(struct arrival **p)
{
	struct arrival *r = *p;

	*p = r->next;
	free(r);
}

void arriving_closed(struct agent *a, const struct dnode *d, int pid)
{
	struct arrival **p = &a->outsiders.arriving, *r;

	while ((r = *p) != NULL) {
		if (r->dnode == d && ((r->by_close && r->who.pid == pid) || has_ended(r)))
			remove_at(p);
		else
			p = &r->next;
	}
}

void arriving_forget(struct agent *a, const struct dnode *d, int pid)
{
	struct arrival **p = &a->outsiders.arriving, *r;

	while ((r = *p) != NULL) {
		if (r->dnode == d && r->who.pid == pid)
			remove_at(p);
		else
			p = &r->next;
	}
}

bool arriving_some(const struct agent *a, const struct dnode *d, int pid)
{
	const struct arrival *r = a->outsiders.arriving;

	while (r && (r->dnode != d || r->who.pid != pid))
		r = r->next;
	return r;
}

bool arriving_look(struct agent *a, uint64_t now)
{
	struct outsiders *o = &a->outsiders;

	if (!o->arriving || now < o->arriving_look)
		return false;
	o->arriving_look = now + LOOK_MS + (now - o->arriving_since) / 2;
	return true;
}

struct dnode *arriving_ended(struct agent *a)
{
	for (struct arrival **p = &a->outsiders.arriving; *p; p = &(*p)->next) {
		struct dnode *d = (*p)->dnode;

		if (has_ended(*p)) {
			remove_at(p);
			return d;
		}
	}
	return NULL;
}
