/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of delegations (proto.h says what they mean). Nothing here waits: an ACQUIRE that has to wait for another
 * client's answer stands in the queue of its inode, first come first served, and whatever may let it go on looks at the queue again.
 *
 * What we believe of a hold may be too high, never too low: too high costs a REVOKE that is answered at once, too low would let
 * two clients cache one file. So:
 *   - an ACQUIRE of a client that holds the inode already says that this client is inside of its own lock on the inode, with
 *     nothing staged, and will take whatever we answer: what it had is forgotten, and a REVOKE that is under way to it no longer
 *     has to be waited for (its service thread may be waiting for that very lock). The answer to that REVOKE comes some time
 *     and is then not applied (`stale`);
 *   - every REVOKE gets one answer, in order, also for inodes that the client does not know any more. REVOKE carries a number in d;
 *     an answer that repeats it is matched by it, and one with 0 there by counting.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/internal.h"
#include "base/hash.h"
#include "format/identity.h"

/* A claim lasts as long as a call of the kernel; one whose call was interrupted by a signal handler may last for ever. */
#define CLAIM_PATIENCE_MS 20

static struct dnode **slot(const struct agent *a, uint64_t ino, uint32_t gen)
{
	struct dnode **p = &a->table[(ino * SFS_HASH_FACTOR >> 20) & (a->table_size - 1)];

	while (*p && ((*p)->ino != ino || (*p)->gen != gen))
		p = &(*p)->next;
	return p;
}

static int table_grow(struct agent *a)
{
	const uint32_t old_size = a->table_size, size = old_size ? old_size * 2 : 1024;
	struct dnode **old = a->table, **table = calloc(size, sizeof(*table));

	if (!table)
		return old ? 0 : -ENOMEM; /* longer chains do no harm */
	a->table = table;
	a->table_size = size;
	for (uint32_t i = 0; i < old_size; i++) {
		struct dnode *next;

		for (struct dnode *d = old[i]; d; d = next) {
			struct dnode **p = slot(a, d->ino, d->gen);

			next = d->next;
			d->next = NULL;
			*p = d;
		}
	}
	free(old);
	return 0;
}

static struct dnode *dnode_get(struct agent *a, uint64_t ino, uint32_t gen)
{
	struct dnode **p, *d;

	if (a->ndnodes >= a->table_size && table_grow(a))
		return NULL;
	p = slot(a, ino, gen);
	if (*p)
		return *p;
	d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	d->ino = ino;
	d->gen = gen;
	d->way.fd = -1;
	*p = d;
	a->ndnodes++;
	return d;
}

struct dnode *deleg_first(const struct agent *a, uint64_t ino)
{
	struct dnode *d = a->table_size ? a->table[(ino * SFS_HASH_FACTOR >> 20) & (a->table_size - 1)] : NULL;

	while (d && d->ino != ino)
		d = d->next;
	return d;
}

struct dnode *deleg_next(const struct dnode *d)
{
	struct dnode *next = d->next;

	while (next && next->ino != d->ino)
		next = next->next;
	return next;
}

struct dnode *deleg_find(const struct agent *a, uint64_t ino, uint32_t gen)
{
	return a->table_size ? *slot(a, ino, gen) : NULL;
}

static void dnode_put(struct agent *a, struct dnode *d)
{
	struct dnode **p;

	if (d->holds || d->wait_first || d->opening || outsider_watched(d))
		return;
	outsider_unmark(a, d);
	p = slot(a, d->ino, d->gen);
	*p = d->next;
	free(d);
	a->ndnodes--;
}

static struct hold *hold_find(const struct dnode *d, const struct client *c)
{
	struct hold *h = d->holds;

	while (h && h->client != c)
		h = h->dnode_next;
	return h;
}

static struct hold *hold_new(struct client *c, struct dnode *d)
{
	struct hold *h;

	if (c->nholds >= HOLDS_MAX)
		return NULL;
	h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	h->client = c;
	h->dnode = d;
	h->lease_index = -1;
	h->target = (struct target){d->ino, d->gen, -1, NULL};
	h->dnode_next = d->holds;
	d->holds = h;
	h->client_next = c->holds;
	if (c->holds)
		c->holds->client_prev = h;
	c->holds = h;
	c->nholds++;
	return h;
}

static void hold_free(struct agent *a, struct hold *h)
{
	struct hold **p = &h->dnode->holds;
	struct client *c = h->client;

	owners_count(a, h, NOT_COUNTED);
	while (*p != h)
		p = &(*p)->dnode_next;
	*p = h->dnode_next;
	if (h->client_prev)
		h->client_prev->client_next = h->client_next;
	else
		c->holds = h->client_next;
	if (h->client_next)
		h->client_next->client_prev = h->client_prev;
	c->nholds--;
	target_close(&h->target);
	free(h);
}

/* ---- revoking ---- */

static void send_revoke(struct agent *a, struct hold *h)
{
	const struct sfs_msg m = {.version = SFS_PROTO_VERSION,
				  .type = SFS_MSG_REVOKE,
				  .a = h->dnode->ino,
				  .b = h->dnode->gen,
				  .c = h->revoke_to,
				  .d = h->revoke_number};
	struct client *c = h->client;
	int err;

	if (c->event < 0 || c->event_blocked)
		return;
	err = wire_send(c->event, &m, NULL, 0);
	if (err == -EAGAIN || err == -ENOBUFS) {
		/* It may be stopped: what it holds waits for it, we don't. */
		c->event_blocked = true;
		agent_rewatch(a, c->event, EPOLLIN | EPOLLOUT | EPOLLRDHUP, &c->event_src);
		return;
	}
	/* Any other error: the socket is closed, which the loop is about to see. */
	if (!err)
		h->unsent = false;
}

void deleg_step_down(struct agent *a, struct hold *h, enum sfs_delegation to)
{
	if (h->revoking && h->revoke_to <= to)
		return;
	if (h->revoking && !h->unsent)
		h->stale++; /* the answer to the weaker one is not enough */
	h->revoking = h->unsent = true;
	h->revoke_to = to;
	h->revoke_number = ++a->revoke_number;
	send_revoke(a, h);
}

void deleg_send_revokes(struct agent *a, struct client *c)
{
	c->event_blocked = false;
	for (struct hold *h = c->holds; h && !c->event_blocked; h = h->client_next)
		if (h->revoking && h->unsent)
			send_revoke(a, h);
	if (!c->event_blocked && c->event >= 0)
		agent_rewatch(a, c->event, EPOLLIN | EPOLLRDHUP, &c->event_src);
}

/* ---- granting ---- */

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

/* EXCLUSIVE, counted before anybody may act upon it. False: another client is changing the file by the kernel at this moment. */
static bool grant(struct agent *a, struct hold *h)
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

		if (!h->limited && (!others || (c->wait_flags & SFS_ACQ_EXCLUSIVE)) && !grant(a, h) &&
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

/* ---- requests ---- */

/* May recovery write this file for the client, which has it open for writing? What only appends must not overwrite. */
static bool replayable(int fd)
{
	long flags = 0;

	return ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0 || !((int)flags & (FS_APPEND_FL | FS_IMMUTABLE_FL));
}

/* 0 when fd is the regular file of this volume that the message names, opened for reading or writing. */
static int check(const struct agent *a, const struct sfs_msg *m, int fd, int *flags)
{
	struct stat st;
	uint32_t gen;
	int err;

	if (fd < 0 || m->b > UINT32_MAX || (m->c & ~(uint64_t)(SFS_ACQ_EXCLUSIVE | SFS_ACQ_RECLAIM | SFS_ACQ_TRY)))
		return -EINVAL;
	*flags = fcntl(fd, F_GETFL);
	if (*flags < 0 || (*flags & O_PATH))
		return -EBADF;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_dev != a->root.dev || !S_ISREG(st.st_mode) || st.st_ino != m->a)
		return -EINVAL;
	err = sfs_generation(fd, &gen);
	if (err)
		return err;
	return gen == (uint32_t)m->b ? 0 : -ESTALE;
}

static void forget_grant(struct agent *a, struct hold *h)
{
	owners_count(a, h, NOT_COUNTED);
	if (h->revoking && !h->unsent)
		h->stale++;
	/* It is asked anew whether it goes on looking: what it has told was of a grant that is over. */
	h->revoking = h->unsent = h->assumed = h->pinned = false;
	h->deleg = SFS_DELEG_NONE;
}

/*
 * After a restart of the agent the client says what it holds; it does not look at the answer and must not wait for anybody: two
 * clients that come back would wait for each other. So the worst is believed, and revoked where somebody else is there.
 */
static void reclaim(struct agent *a, struct client *c, struct dnode *d, struct hold *h)
{
	struct sfs_msg m = {.version = SFS_PROTO_VERSION, .type = SFS_MSG_ACQUIRE, .a = SFS_DELEG_EXCLUSIVE};
	bool others = d->outsiders;

	h->assumed = false;
	owners_count(a, h, h->lease_index >= 0 ? COUNTED_STAGER : COUNTED_OTHER);
	h->deleg = SFS_DELEG_EXCLUSIVE;
	for (struct hold *o = d->holds; o; o = o->dnode_next)
		others |= o != h && o->open && o->deleg != SFS_DELEG_NONE;
	if (others || h->limited) {
		m.a = SFS_DELEG_SHARED;
		for (struct hold *o = d->holds; o; o = o->dnode_next)
			if (o->open && o->deleg == SFS_DELEG_EXCLUSIVE && o->client->state != C_DYING)
				deleg_step_down(a, o, SFS_DELEG_SHARED);
	}
	if (h->lease_index >= 0)
		outsider_mark(a, d, &h->target);
	client_reply(a, c, &m, NULL, 0);
}

/* Is the file nobody else's, as far as we know? One that goes by the table does not count: it looks before each call. */
static bool unused(const struct agent *a, const struct dnode *d, const struct hold *h)
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

static void release(struct agent *a, struct client *c, struct hold *h);

/* SFS_ACQ_TRY: now or not at all. What the client had is forgotten in either case. */
static void try(struct agent *a, struct client *c, struct dnode *d, struct hold *h)
{
	struct sfs_msg m = {.version = SFS_PROTO_VERSION, .type = SFS_MSG_ACQUIRE, .a = SFS_DELEG_NONE};

	if (unused(a, d, h) && grant(a, h)) {
		m.a = SFS_DELEG_EXCLUSIVE;
		if (h->lease_index >= 0)
			outsider_mark(a, d, &h->target);
	} else {
		release(a, c, h);
	}
	client_reply(a, c, &m, NULL, 0);
}

void deleg_acquire(struct agent *a, struct client *c, const struct sfs_msg *m, int *fd)
{
	struct dnode *d;
	struct hold *h;
	int flags, err = check(a, m, *fd, &flags);

	if (err) {
		client_reply_error(a, c, SFS_MSG_ACQUIRE, err, "not an open file of it");
		return;
	}
	d = dnode_get(a, m->a, (uint32_t)m->b);
	h = d ? hold_find(d, c) : NULL;
	if (d && !h)
		h = hold_new(c, d);
	if (!h) {
		if (d)
			dnode_put(a, d);
		client_reply_error(a, c, SFS_MSG_ACQUIRE, -ENOMEM, "too many open files");
		return;
	}
	h->open = true;
	if ((flags & O_ACCMODE) != O_RDONLY) {
		h->limited = !replayable(*fd);
		if (!h->limited && h->lease_index < 0) {
			h->lease_index = sfs_lease_add_inode(&c->lease, d->ino, d->gen);
			if (h->lease_index < 0) {
				/* Nothing can be staged then; the kernel serves the file. */
				agent_log(a, "write the lease of log %u: %s", c->log_id, strerror((int)-h->lease_index));
				h->lease_index = -1;
				h->limited = true;
			}
		}
		if (h->lease_index >= 0)
			target_keep(a, &h->target, *fd);
	}
	outsider_is_client(a, d, c->pid);
	drop_fd(fd);
	if (m->c & SFS_ACQ_RECLAIM) {
		reclaim(a, c, d, h);
		return;
	}
	forget_grant(a, h);
	if (m->c & SFS_ACQ_TRY) {
		try(a, c, d, h);
		return;
	}
	c->wait_hold = h;
	c->wait_flags = m->c;
	c->wait_next = NULL;
	if (d->wait_last)
		d->wait_last->wait_next = c;
	else
		d->wait_first = c;
	d->wait_last = c;
	client_set_state(a, c, C_WAIT_ACQUIRE);
	deleg_process(a, d);
}

static void release(struct agent *a, struct client *c, struct hold *h)
{
	struct dnode *d = h->dnode;

	if (h->lease_index >= 0 && sfs_lease_del_inode(&c->lease, (uint32_t)h->lease_index))
		agent_log(a, "write the lease of log %u: %s", c->log_id, strerror(errno));
	h->lease_index = -1;
	target_close(&h->target);
	forget_grant(a, h);
	h->open = false;
	if (!h->stale)
		hold_free(a, h);
	deleg_process(a, d);
}

void deleg_release(struct agent *a, struct client *c, uint64_t ino, uint32_t gen)
{
	struct dnode *d = deleg_find(a, ino, gen);
	struct hold *h = d ? hold_find(d, c) : NULL;

	/* An honest client releases more than it holds only after a restart of the agent. */
	if (h && h->open)
		release(a, c, h);
}

void deleg_revoked(struct agent *a, struct client *c, const struct sfs_msg *m)
{
	struct dnode *d = deleg_find(a, m->a, (uint32_t)m->b);
	struct hold *h = d && m->b <= UINT32_MAX ? hold_find(d, c) : NULL;

	if (!h)
		return;
	if (m->d && (!h->revoking || m->d != h->revoke_number)) {
		if (h->stale)
			h->stale--;
		if (!h->open && !h->stale) {
			hold_free(a, h);
			dnode_put(a, d);
		}
		return;
	}
	if (m->d)
		h->stale = 0; /* answers come in order, and a client that repeats the number needs no counting */
	if (h->stale) {
		h->stale--;
		if (!h->open && !h->stale) {
			hold_free(a, h);
			dnode_put(a, d);
		}
		return;
	}
	if (!h->revoking || h->unsent)
		return;
	h->revoking = false;
	h->pinned = m->c == SFS_DELEG_SHARED && h->revoke_to == SFS_DELEG_NONE;
	if (h->pinned)
		h->revoke_to = SFS_DELEG_SHARED;
	if (h->revoke_to < h->deleg)
		h->deleg = h->revoke_to;
	if (h->deleg != SFS_DELEG_EXCLUSIVE)
		owners_count(a, h, NOT_COUNTED);
	/* It may not even have the file open; when it has, it asks again. Who goes by the table asks when it pays. */
	if (h->assumed || (h->deleg == SFS_DELEG_NONE && (c->features & SFS_FEATURE_OWNERS))) {
		release(a, c, h);
		return;
	}
	deleg_process(a, d);
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

void deleg_free_all(struct agent *a)
{
	/* What is left has no holds: programs without the library have it open. */
	for (uint32_t i = 0; i < a->table_size; i++) {
		while (a->table[i]) {
			struct dnode *d = a->table[i];

			a->table[i] = d->next;
			outsider_unmark(a, d);
			free(d);
		}
	}
	free(a->table);
}

void deleg_forget_client(struct agent *a, struct client *c)
{
	while (c->holds) {
		struct dnode *d = c->holds->dnode;

		hold_free(a, c->holds);
		deleg_process(a, d);
	}
}

int deleg_assume(struct agent *a, struct client *c)
{
	for (uint32_t i = 0; i < c->lease.head.ninodes; i++) {
		const struct sfs_lease_inode *e = &c->lease.inodes[i];
		struct dnode *d;
		struct hold *h;

		if (e->valid != 1)
			continue;
		d = dnode_get(a, e->ino, e->gen);
		h = d ? hold_find(d, c) : NULL;
		if (d && !h)
			h = hold_new(c, d);
		if (!h) {
			if (d)
				dnode_put(a, d);
			return -ENOMEM;
		}
		h->open = h->assumed = true;
		h->lease_index = i;
		owners_count(a, h, COUNTED_STAGER);
		h->deleg = SFS_DELEG_EXCLUSIVE;
	}
	return 0;
}

struct target *deleg_take_targets(struct client *c, size_t *n)
{
	struct target *list = c->nholds ? calloc(c->nholds, sizeof(*list)) : NULL;

	*n = 0;
	for (struct hold *h = c->holds; h && list; h = h->client_next) {
		if (h->target.fd < 0 && !h->target.handle)
			continue;
		list[(*n)++] = h->target;
		h->target.fd = -1;
		h->target.handle = NULL;
	}
	return list;
}
