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
#include "format/identity.h"

/* ---- revoking ---- */

static void send_revoke(struct agent *a, struct hold *h)
{
	const struct sfs_msg m = {
		.type = SFS_MSG_REVOKE, .a = h->dnode->ino, .b = h->dnode->gen, .c = h->revoke_to, .d = h->revoke_number};

	h->unsent = !client_tell(a, h->client, &m);
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
		else
			deleg_send_turn(a, h);
	if (!c->event_blocked)
		client_watch_event(a, c);
}

/* ---- requests ---- */

/* May recovery write this file for the client, which has it open for writing? What only appends must not overwrite. */
static bool replayable(int fd)
{
	long flags = 0;

	return ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0 || !((int)flags & (FS_APPEND_FL | FS_IMMUTABLE_FL));
}

/* 0 when fd is the regular file of this volume that the message names, opened for reading or writing. */
int deleg_check(const struct agent *a, const struct sfs_msg *m, int fd, int *flags)
{
	struct stat st;
	uint32_t gen;
	int err;

	if (fd < 0 || m->b > UINT32_MAX)
		return -EINVAL;
	if (right_of_fd(a, fd, flags, &st) == RIGHT_NONE || !S_ISREG(st.st_mode) || st.st_ino != m->a)
		return -EINVAL;
	if (*flags < 0 || (*flags & O_PATH))
		return -EBADF;
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
static void reclaim(struct agent *a, struct client *c, struct dnode *d, struct hold *h, bool watched)
{
	struct sfs_msg m = {.type = SFS_MSG_ACQUIRE, .a = SFS_DELEG_EXCLUSIVE};
	bool others = d->writers;

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
	if (h->lease_index >= 0 || watched)
		outsider_granted(a, h);
	client_reply(a, c, &m, NULL, 0);
}

static void release(struct agent *a, struct client *c, struct hold *h);

/* SFS_ACQ_TRY: now or not at all. What the client had is forgotten in either case. */
static void try(struct agent *a, struct client *c, struct dnode *d, struct hold *h)
{
	struct sfs_msg m = {.type = SFS_MSG_ACQUIRE, .a = SFS_DELEG_NONE};

	if (deleg_unused(a, d, h) && deleg_grant(a, h)) {
		m.a = SFS_DELEG_EXCLUSIVE;
		if (h->lease_index >= 0)
			outsider_granted(a, h);
	} else if (h->turn.state == TURN_NONE) { /* else another thread of the client waits for it */
		release(a, c, h);
	}
	client_reply(a, c, &m, NULL, 0);
}

static void acquire(struct agent *a, struct client *c, const struct sfs_msg *m, int fd)
{
	struct dnode *d;
	struct hold *h;
	const uint64_t known =
		SFS_ACQ_EXCLUSIVE | SFS_ACQ_RECLAIM | SFS_ACQ_TRY | SFS_ACQ_WATCH | SFS_ACQ_KERNEL | SFS_ACQ_PARENT;
	int flags, err = m->c & ~known ? -EINVAL : deleg_check(a, m, fd, &flags);

	if (err) {
		client_reply_error(a, c, SFS_MSG_ACQUIRE, err, "not an open file of it");
		return;
	}
	err = sfs_lease_not_quiet(&c->lease);
	if (err) {
		client_reply_error(a, c, SFS_MSG_ACQUIRE, err, "its lease can't be written");
		return;
	}
	h = hold_get(a, c, m->a, (uint32_t)m->b);
	if (!h) {
		client_reply_error(a, c, SFS_MSG_ACQUIRE, -ENOMEM, "too many open files");
		return;
	}
	d = h->dnode;
	h->open = true;
	h->by_kernel = m->c & SFS_ACQ_KERNEL;
	if ((flags & O_ACCMODE) != O_RDONLY) {
		c->right = RIGHT_WRITE; /* check() has seen that it is a file of the volume */
		h->limited = c->lease.head.memory || !replayable(fd);
		if (!h->limited && h->lease_index < 0) {
			do
				h->lease_index = sfs_lease_add_inode(&c->lease, d->ino, d->gen);
			while (full_makes_room(a, (int)h->lease_index, "a lease gets longer"));
			if (h->lease_index < 0) {
				err = (int)h->lease_index;
				h->lease_index = -1;
				/* Nothing can be staged then; the kernel serves the file. */
				agent_log(a, "write the lease of log %u: %s", c->log_id, strerror(-err));
				h->limited = true;
			}
		}
		if (h->lease_index >= 0)
			target_keep(a, &h->target, fd);
	}
	if (m->c & SFS_ACQ_WATCH)
		target_keep(a, &h->target, fd);
	openers_is_client(a, d, c);
	if (m->c & SFS_ACQ_RECLAIM) {
		reclaim(a, c, d, h, m->c & SFS_ACQ_WATCH);
		return;
	}
	forget_grant(a, h);
	if ((m->c & SFS_ACQ_PARENT) && h->lease_index >= 0 && !h->by_kernel)
		left_to_children(a, h);
	/* Who can't do without is told why it has to. */
	if (err == -ENOSPC && (m->c & SFS_ACQ_EXCLUSIVE)) {
		release(a, c, h);
		client_reply_error(a, c, SFS_MSG_ACQUIRE, err, "volume is full");
		return;
	}
	if (m->c & SFS_ACQ_TRY) {
		try(a, c, d, h);
		return;
	}
	deleg_wait(a, h, m->c);
}

void deleg_acquire(struct agent *a, struct client *c, const struct sfs_msg *m, int *fd)
{
	/* Closed before the answer (client_reply): a lock of its description must not outlast the client's close. */
	a->shown = (struct shown){m->a, (uint32_t)m->b, *fd};
	*fd = -1;
	acquire(a, c, m, a->shown.fd);
	drop_fd(&a->shown.fd);
}

static void release(struct agent *a, struct client *c, struct hold *h)
{
	struct dnode *d = h->dnode;

	if (h->lease_index >= 0 && sfs_lease_del_inode(&c->lease, (uint32_t)h->lease_index))
		agent_log(a, "write the lease of log %u: %s", c->log_id, strerror(errno));
	h->lease_index = -1;
	target_close(&h->target);
	forget_grant(a, h);
	deleg_leave_queue(a, h);
	h->open = h->turn.unsent = false;
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
	bool earlier; /* it answers a REVOKE that another one has followed */

	if (!h)
		return;
	earlier = m->d ? !h->revoking || m->d != h->revoke_number : h->stale > 0;
	if (m->d && !earlier)
		h->stale = 0; /* answers come in order, and a client that repeats the number needs no counting */
	if (earlier) {
		if (h->stale)
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
		struct hold *h;

		if (e->valid != 1)
			continue;
		h = hold_get(a, c, e->ino, e->gen);
		if (!h)
			return -ENOMEM;
		h->open = h->assumed = true;
		h->lease_index = i;
		owners_count(a, h, COUNTED_STAGER);
		h->deleg = SFS_DELEG_EXCLUSIVE;
	}
	return 0;
}
