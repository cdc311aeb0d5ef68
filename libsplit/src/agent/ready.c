/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that start one after the other. A program that ends and leaves nothing to be recovered (its lease names no
 * inode) leaves its log, the lease and a tiny staging file to the next one: making these anew would cost more than all
 * else that the agent does for it.
 *
 * A log or staging file that a client has had goes to another one only when
 *
 *   - that runs in the same container (cgroup) as the same user and group: it could get at the files and at the memory of
 *     the former anyway;
 *   - nobody else has the file open or mapped any more, neither a child nor whoever was passed the descriptor
 *     (sfs_number_alone());
 *   - it is as new: the log without a record and of another epoch, the staging file all zeros.
 *
 * Until then the lease names the staging file, and no process (pid 0): an agent that comes after a kill recovers such a
 * log as that of a dead process, finds nothing, and removes both. There are SFS_READY_LOGS_MAX at most, each of
 * READY_SECONDS at most, and they count in the space of logs. A volume that is short of space gets it back.
 */
#include <fcntl.h>
#include <string.h>

#include "agent/internal.h"

#define READY_SECONDS 10
#define INODES_MAX    64 /* that its lease has ever named: a program that opens more is no short one */

static bool names_nothing(const struct sfs_leasefile *l)
{
	if (l->head.ninodes > INODES_MAX && !l->map)
		return false;
	for (uint32_t i = 0; i < l->head.ninodes; i++)
		if (l->inodes[i].valid == 1)
			return false;
	return true;
}

static bool may_be_left(const struct agent *a, const struct client *c)
{
	const uint32_t tiny = c->lesser[SFS_TINY] != 0;

	return !a->stopping && c->cgroups && !c->lease.head.memory && !c->growing && c->log_slots == FIRST_SLOTS &&
	       c->lease.head.nchunks == tiny && names_nothing(&c->lease);
}

static struct client *oldest(const struct agent *a)
{
	struct client *c = client_count(a, C_LEFT) ? a->clients : NULL;

	while (c && c->state != C_LEFT)
		c = c->next;
	return c;
}

bool ready_leave(struct agent *a, struct client *c)
{
	if (!may_be_left(a, c) || sfs_lease_leave(&c->lease))
		return false;
	if (client_count(a, C_LEFT) >= SFS_READY_LOGS_MAX)
		client_discard(a, oldest(a));
	client_set_state(a, c, C_LEFT);
	client_hold(a, c, false);
	c->left_tiny = c->lesser[SFS_TINY] != 0;
	c->wait_since = agent_now();
	deleg_cancel_waits(a, c);
	owners_count_away(a, c, false);
	deleg_forget_client(a, c);
	deleg_retry_all(a);
	return true;
}

static bool same(const struct client *old, const struct client *c)
{
	/* Its lease is of one who may write a file, where it names a staging file. */
	const enum right needs = old->left_tiny ? RIGHT_WRITE : RIGHT_MOUNT;

	return old->state == C_LEFT && old->mode == c->mode && old->uid == c->uid && old->gid == c->gid && c->cgroups &&
	       strcmp(old->cgroups, c->cgroups) == 0 && c->right >= needs;
}

static struct client *find(const struct agent *a, const struct client *c)
{
	/* The latest: what it has is in the caches. */
	for (struct client *old = client_count(a, C_LEFT) ? a->clients_last : NULL; old; old = old->prev)
		if (same(old, c))
			return old;
	return NULL;
}

bool ready_for(const struct agent *a, const struct client *c)
{
	return find(a, c) != NULL;
}

void ready_take_over(struct agent *a, struct client *c, struct client *old)
{
	c->log_id = old->log_id;
	c->log_fd = old->log_fd;
	c->log_slots = old->log_slots;
	logs_count(a, old, c->log_slots, -1);
	logs_count(a, c, c->log_slots, 1);
	chunks_count(a, old, -1);
	c->lease = old->lease;
	memcpy(c->lesser, old->lesser, sizeof(c->lesser));
	c->left_tiny = old->left_tiny;
	chunks_count(a, c, 1);
	old->log_id = 0;
	old->log_fd = old->lease.fd = -1;
	old->lease.inodes = NULL;
	old->lease.free = NULL;
	client_gone(a, old);
}

bool ready_take(struct agent *a, struct client *c)
{
	struct sfs_lease head = {.held = 1, .pid = c->pid, .start = c->start, .uid = c->uid, .mode = (uint8_t)c->mode};
	struct client *old;

	memcpy(head.comm, c->comm, sizeof(head.comm));
	while ((old = find(a, c)) != NULL) {
		const int fd = old->log_fd;
		int log;

		/* The client had this very description. */
		close(fd);
		old->log_fd = -1;
		log = sfs_log_renew(&a->root, old->log_id, FIRST_SLOTS);
		old->log_fd = log >= 0 ? log : sfs_log_open(&a->root, old->log_id, O_RDWR);
		if (log >= 0 && sfs_lease_take(&old->lease, &head) == 0) {
			ready_take_over(a, c, old);
			return true;
		}
		client_discard(a, old);
	}
	return false;
}

void ready_timeouts(struct agent *a, uint64_t now)
{
	struct client *c;

	while ((c = oldest(a)) != NULL && now - c->wait_since >= READY_SECONDS * 1000)
		client_discard(a, c);
}

uint32_t ready_give_up(struct agent *a)
{
	const uint32_t n = client_count(a, C_LEFT);
	struct client *c;

	while ((c = oldest(a)) != NULL)
		client_discard(a, c);
	return n;
}
