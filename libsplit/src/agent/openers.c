/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which programs without the library have a file open, from their open (outsider.c) until they have closed it. While one has it for
 * writing nobody is granted EXCLUSIVE, as with two clients (granting.c). While one has it at all the table of owners says so, and
 * fsync and the service thread of who stages bytes of it bring them into the file for it (format/owners.h).
 *
 * The kernel tells of each close, but joins those that are alike. So they are not counted: after each we look what the processes
 * have open still. What is not seen: a descriptor that was handed on, when the process that opened it has closed it and opens
 * and closes the file once more.
 */
#include <stdlib.h>
#include <sys/fanotify.h>
#include <unistd.h>

#include "agent/internal.h"

#define CLOSES (FAN_CLOSE_WRITE | FAN_CLOSE_NOWRITE)

/* A process that has the inode open. */
struct outsider {
	struct outsider *next;
	int pid; /* 0: one that can't be seen from here; it stays as long as clients have the file */
	bool writes;
	bool client; /* it has the library, which did not see the open */
};

static void set_writes(struct dnode *d, struct outsider *w, bool writes)
{
	d->writers += (uint32_t)writes - (uint32_t)w->writes;
	w->writes = writes;
}

static void drop(struct agent *a, struct dnode *d, struct outsider **p)
{
	struct outsider *w = *p;

	arriving_forget(a, d, w->pid);
	set_writes(d, w, false);
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

void openers_add(struct agent *a, struct dnode *d, const struct opener *who)
{
	int pid = who->pid;
	struct outsider *w;

	/* Where its end can't be seen it stays as long as clients have the file. */
	if (!d->outsiders && outsider_ask(a, a->outsiders.closes_fd, FAN_MARK_ADD, CLOSES, &d->way))
		pid = 0;
	w = *find(d, pid);
	if (!w) {
		w = calloc(1, sizeof(*w));
		if (!w) {
			agent_log(a, "out of memory: process %d is not seen to have inode %llu open", pid,
				  (unsigned long long)d->ino);
			return;
		}
		w->pid = pid;
		w->next = d->outsiders;
		d->outsiders = w;
	}
	set_writes(d, w, w->writes || who->writes);
	w->client |= who->client;
	if (pid > 0)
		arriving_add(a, d, who);
	owners_outside(a, d);
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

/* Who has closed it may have it open more than once, or have handed it on to who closes it now, or be about to have it again. */
static void look_again(struct agent *a, struct dnode *d)
{
	const bool wrote = d->writers;
	struct outsider **p = &d->outsiders, *w;

	while ((w = *p) != NULL) {
		const enum sfs_opened has = w->pid > 0 ? sfs_process_opened(w->pid, d->ino) : SFS_OPENED_UNKNOWN;

		if (has < SFS_OPENED_WRITE && !arriving_some(a, d, w->pid)) {
			if (has == SFS_OPENED_NOT) {
				drop(a, d, p);
				continue;
			}
			set_writes(d, w, false);
		}
		p = &w->next;
	}
	dropped(a, d, wrote);
}

void openers_is_client(struct agent *a, struct dnode *d, int pid)
{
	struct outsider **p = pid > 0 ? find(d, pid) : NULL;
	const bool wrote = d->writers;

	if (p && *p && !(*p)->client) {
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

bool openers_watched(const struct dnode *d)
{
	const struct outsider *w = d->outsiders;

	while (w && w->pid <= 0)
		w = w->next;
	return w;
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
		if (d && d->outsiders && m->pid != a->pid && (*find(d, m->pid) || !listener_is_client(&a->outsiders, m->pid))) {
			arriving_closed(a, d, m->pid);
			look_again(a, d);
			deleg_process(a, d); /* nobody may have it any more */
		}
	}
}

void openers_timeouts(struct agent *a, uint64_t now)
{
	const bool time = arriving_look(a, now);
	struct dnode *d;

	while (time && (d = arriving_ended(a)) != NULL) {
		look_again(a, d);
		deleg_process(a, d);
	}
}
