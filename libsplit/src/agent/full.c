/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A full file system: what was acknowledged comes before staging space for what may come. A recovery that finds no space gets that of spare staging
 * files, and is made again as soon as there is more than it found; so does who waits for a client that has to bring its bytes in, and a client
 * that needs a log, a place in its lease, or staging space for a write over what a file has.
 */
#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>

#include "agent/internal.h"
#include "base/result.h"

#define WAITED_MS 200	       /* so long somebody has waited, perhaps for space */
#define SCARCE	  (1ull << 20) /* bytes: less may be too little to bring anything in */

#define ROOM (8ull << 20) /* bytes: with more it is not the file system that is full */

/* UINT64_MAX: that can't be said. */
static uint64_t free_bytes(const struct agent *a)
{
	struct statvfs sv;

	return fstatvfs(a->root.pool, &sv) < 0 ? UINT64_MAX : (uint64_t)sv.f_bavail * sv.f_frsize;
}

bool full_makes_room(struct agent *a, int err, const char *what)
{
	const uint32_t spare = sfs_no_space(err) ? chunks_give_up(a) : 0;

	if (spare > 0)
		agent_log(a, "the file system is full, and %s; giving up %u spare staging files", what, spare);
	return spare > 0;
}

void full_unrecovered(struct agent *a, struct recovery_job *job)
{
	struct client *c = job->client;
	const bool full = sfs_no_space(job->err);
	const uint32_t spare = full ? chunks_give_up(a) : 0;

	c->full = full;
	c->found_free = free_bytes(a);
	if (spare > 0) {
		agent_log(a, "recover log %u of process %d (%s): %s; giving up %u spare staging files for it", c->log_id,
			  c->pid, c->comm, job->why.text, spare);
		c->deadline = agent_now();
	} else {
		agent_log(a, "recover log %u of process %d (%s): %s; trying again in %d s%s", c->log_id, c->pid, c->comm,
			  job->why.text, RETRY_SECONDS, full ? ", or when there is more space" : "");
		c->deadline = agent_now() + RETRY_SECONDS * 1000;
	}
	free(job);
}

bool full_no_more(const struct agent *a, const struct client *c)
{
	return c->state == C_DYING && c->full && free_bytes(a) > c->found_free;
}

bool full_in_way(const struct agent *a, uint64_t ino)
{
	for (const struct client *c = client_count(a, C_DYING) ? a->clients : NULL; c; c = c->next)
		for (uint32_t i = 0; c->state == C_DYING && c->full && i < c->lease.head.ninodes; i++)
			if (c->lease.inodes[i].valid && c->lease.inodes[i].ino == ino)
				return true;
	return false;
}

void full_give_way(struct agent *a, uint64_t now)
{
	if (TAILQ_EMPTY(&a->waiting) && !a->looks && !a->outsiders.nopening) {
		a->waited_since = 0;
		return;
	}
	if (!a->waited_since)
		a->waited_since = now;
	if (now - a->waited_since < WAITED_MS || free_bytes(a) >= SCARCE)
		return;
	a->waited_since = now;
	full_makes_room(a, -ENOSPC, "a file is waited for");
}

void full_asked(struct agent *a)
{
	if (free_bytes(a) < ROOM)
		full_makes_room(a, -ENOSPC, "a client finds no room for what it has staged");
}
