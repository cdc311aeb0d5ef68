/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes are clients', and what their libraries see: asked by the listener's thread and the enforcer's for each open that the
 * kernel tells of, so all of it is under a lock that nobody holds for long.
 */
#include <errno.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/internal.h"
#include "format/layout.h"

static struct client **bucket(struct outsiders *o, int pid)
{
	return &o->clients[(unsigned)pid % OUTSIDER_BUCKETS];
}

void processes_add(struct agent *a, struct client *c)
{
	struct outsiders *o = &a->outsiders;
	struct client **p = bucket(o, c->pid);

	if (c->pid <= 0)
		return;
	pthread_mutex_lock(&o->lock);
	c->next_of_pid = *p;
	*p = c;
	pthread_mutex_unlock(&o->lock);
}

void processes_remove(struct agent *a, struct client *c)
{
	struct outsiders *o = &a->outsiders;
	struct client **p = bucket(o, c->pid);

	pthread_mutex_lock(&o->lock);
	while (*p && *p != c)
		p = &(*p)->next_of_pid;
	if (*p)
		*p = c->next_of_pid;
	pthread_mutex_unlock(&o->lock);
}

/* Under the lock. */
static struct client *find_client(struct outsiders *o, int pid)
{
	struct client *c = pid > 0 ? *bucket(o, pid) : NULL;

	for (; c; c = c->next_of_pid) {
		struct pollfd alive = {c->sock, POLLRDHUP, 0};

		if (c->pid == pid && c->known && (c->sock < 0 || poll(&alive, 1, 0) == 0))
			break;
	}
	return c;
}

bool processes_is_client(struct outsiders *o, int pid)
{
	bool found;

	pthread_mutex_lock(&o->lock);
	found = find_client(o, pid);
	pthread_mutex_unlock(&o->lock);
	return found;
}

void processes_knows(struct outsiders *o, struct client *c)
{
	pthread_mutex_lock(&o->lock);
	c->known = true;
	pthread_mutex_unlock(&o->lock);
}

void processes_says(struct outsiders *o, struct client *c)
{
	pthread_mutex_lock(&o->lock);
	c->says = true;
	pthread_mutex_unlock(&o->lock);
}

/* Read, not mapped, as claims are (owners.c), and not waited for: the worker may be making the log longer, on a disk that does not answer. */
static bool announced(const struct client *c, int tid)
{
	uint32_t thread;
	const off_t at = SFS_OPENING_OFFSET + (off_t)(sfs_opening_place((uint32_t)tid) * sizeof(thread));
	const struct iovec to = {&thread, sizeof(thread)};
	ssize_t n = preadv2(c->log_fd, &to, 1, at, RWF_NOWAIT);

	/* Only a file system in memory knows no such reads. */
	if (n < 0 && errno == EOPNOTSUPP)
		n = pread(c->log_fd, &thread, sizeof(thread), at);
	return n == (ssize_t)sizeof(thread) && thread == (uint32_t)tid;
}

/* As far as the client's log says; of a client that says nothing of its opens the library sees all. */
static bool seen_by_log(const struct client *c, int tid)
{
	return !c->says || announced(c, tid);
}

bool processes_sees(struct outsiders *o, const struct question *q, const struct sfs_call *call)
{
	const struct client *c;
	bool sees;

	if (!q->client || left_said(call))
		return false;
	pthread_mutex_lock(&o->lock);
	c = find_client(o, q->pid);
	sees = c && seen_by_log(c, q->tid);
	/* The address is that of the next instruction. */
	if (c && !sees)
		sees = call->nr == SFS_CALL_NONE || call->nr == SFS_CALL_RUNNING ||
		       (outsider_open_call(call->nr) && call->pc > c->library[0] && call->pc <= c->library[1]);
	pthread_mutex_unlock(&o->lock);
	return sees;
}

void processes_code(struct outsiders *o, int pid, const struct code *code)
{
	struct client *c;

	pthread_mutex_lock(&o->lock);
	c = find_client(o, pid);
	if (c)
		c->code = *code;
	pthread_mutex_unlock(&o->lock);
}

bool processes_known_code(struct outsiders *o, int pid, unsigned long pc)
{
	const struct client *c;
	bool known;

	pthread_mutex_lock(&o->lock);
	c = find_client(o, pid);
	known = c && code_has(&c->code, pc);
	pthread_mutex_unlock(&o->lock);
	return known;
}

bool processes_who_asks(struct outsiders *o, struct question *q)
{
	const struct client *c;
	bool seen;

	pthread_mutex_lock(&o->lock);
	c = find_client(o, q->tid);
	/* The number of a first thread is its process's, which spares most a look into /proc. */
	if (!c) {
		pthread_mutex_unlock(&o->lock);
		q->pid = (int)sfs_process_number(q->tid, "Tgid");
		pthread_mutex_lock(&o->lock);
		c = q->pid != q->tid ? find_client(o, q->pid) : NULL;
	}
	q->client = c != NULL;
	seen = c && seen_by_log(c, q->tid);
	pthread_mutex_unlock(&o->lock);
	return seen;
}
