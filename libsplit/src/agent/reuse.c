/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that start one after the other would each have a log, a lease and a tiny staging file made and removed, which costs the agent more
 * than all that they ask for, on persistent memory several commits of the journal. So what a client leaves is kept for the next one of
 * the same user and tenant, when it is as a new one: nothing counts in the log, the staging file is zeros, and no descriptor or mapping of
 * them is left in any process, which the kernel says. What another user or pod has had is never given on: a process that was root there
 * may have kept a path to it (O_PATH), which the kernel does not count.
 *
 * On disk it is a log that is leased to nobody, with a staging file: recovery removes them, like those of the dead.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/internal.h"
#include "base/sys.h"

#define ALONE_TRIES 5
#define ALONE_US    200
#define KEPT_MS	    10000 /* so long it waits for somebody: the next program comes sooner, or not at all */

struct leftover {
	struct sfs_leasefile lease;
	char tenant[TENANT_NAME];
	uint32_t uid;
	uint32_t tiny;	/* the staging file that the lease names; 0: none */
	uint64_t since; /* ms */
};

/* ---- the worker's ---- */

/* A process that ends closes its files one after the other, and the connection, whose end we saw, need not be the last. */
static bool alone_soon(int fd)
{
	for (int i = 0; i < ALONE_TRIES; i++) {
		if (sys_may_lease(fd, F_WRLCK))
			return true;
		usleep(ALONE_US);
	}
	return false;
}

static bool renew_log(struct worker *w, struct made *log)
{
	struct stat st;

	log->fd = sfs_log_open(w->root, log->id, O_RDWR);
	if (log->fd >= 0 && fstat(log->fd, &st) == 0 &&
	    st.st_size == SFS_LOG_RECORDS_OFFSET + (off_t)(FIRST_SLOTS * sizeof(struct sfs_record)) && alone_soon(log->fd) &&
	    sfs_log_renew(w->root, log->id, log->fd, FIRST_SLOTS, w->log_slots) == 0)
		return true;
	if (log->fd >= 0)
		close(log->fd);
	return false;
}

/* Zeros again, and without holes. */
static bool renew_tiny(struct worker *w, uint32_t id)
{
	const int fd = sfs_chunk_open(w->root, id);
	const bool ok =
		fd >= 0 && alone_soon(fd) && sfs_fill_zero(fd, SFS_TINY_CHUNK) == 0 && (!w->root->dax || fsync(fd) == 0);

	if (fd >= 0)
		close(fd);
	return ok;
}

/* All but the tiny one go, before the lease names them no more. */
static bool remove_others(struct worker *w, const struct client *c, uint32_t tiny)
{
	for (uint32_t i = 0; i < c->lease.head.nchunks; i++)
		if (c->lease.head.chunks[i] != tiny && sfs_chunk_remove(w->root, c->lease.head.chunks[i]))
			return false;
	return sfs_chunk_settle(w->root) == 0;
}

bool worker_keep_log(struct worker *w, struct recovery_job *job)
{
	struct client *c = job->client;
	struct leftover *left = c->lease.head.memory || c->log_slots != FIRST_SLOTS ? NULL : calloc(1, sizeof(*left));
	struct made log = {c->log_id, -1, left};

	if (!left)
		return false;
	close(c->log_fd); /* the client has it from us: only a description of our own tells whether others are left */
	c->log_fd = -1;
	left->tiny = c->lesser[SFS_TINY];
	if (left->tiny && !c->tiny_kept && !renew_tiny(w, left->tiny))
		left->tiny = 0;
	if (!renew_log(w, &log)) {
		free(left);
		return false;
	}
	memcpy(left->tenant, c->tenant->name, sizeof(left->tenant));
	left->uid = c->uid;
	left->lease = c->lease; /* the loop looks at what the client's says until it is gone */
	if (!remove_others(w, c, left->tiny) || sfs_lease_spare(&left->lease, left->tiny)) {
		close(log.fd);
		free(left);
		return false;
	}
	job->kept = log;
	return true;
}

/* ---- the loop's ---- */

/* May the client have what that one has left? */
static bool fits(const struct leftover *left, const struct client *c)
{
	return c->right >= RIGHT_MOUNT && left->uid == c->uid && strcmp(left->tenant, c->tenant->name) == 0;
}

bool reuse_find(const struct agent *a, const struct client *c, uint32_t *index)
{
	bool found = false;

	for (uint32_t i = a->nspare_logs; i-- > 0;) {
		const struct leftover *left = a->spare_logs[i].left;

		if (left ? !fits(left, c) : found)
			continue;
		*index = i;
		found = true;
		if (left)
			break;
	}
	return found;
}

uint32_t reuse_kept(const struct agent *a)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < a->nspare_logs; i++)
		n += a->spare_logs[i].left != NULL;
	return n;
}

struct made reuse_take(struct agent *a, uint32_t index)
{
	const struct made log = a->spare_logs[index];

	a->nspare_logs--;
	memmove(&a->spare_logs[index], &a->spare_logs[index + 1], (a->nspare_logs - index) * sizeof(log));
	return log;
}

void reuse_drop(struct agent *a, struct made *log)
{
	struct leftover *left = log->left;

	close(log->fd);
	if (left) {
		if (left->tiny)
			sfs_chunk_remove(&a->root, left->tiny);
		sfs_lease_close(&left->lease);
		free(left);
	}
	sfs_lease_remove(&a->root, log->id);
	sfs_log_remove(&a->root, log->id);
}

/* The one that was left first; nspare_logs: there is none. */
static uint32_t oldest(const struct agent *a)
{
	uint32_t i = 0;

	while (i < a->nspare_logs && !a->spare_logs[i].left)
		i++;
	return i;
}

bool reuse_may(const struct agent *a)
{
	return reuse_kept(a) + a->nkeeping < SFS_KEPT_LOGS_MAX;
}

static bool drop_oldest(struct agent *a, uint64_t left_before)
{
	const uint32_t i = oldest(a);
	struct made log;

	if (i == a->nspare_logs || a->spare_logs[i].left->since > left_before)
		return false;
	log = reuse_take(a, i);
	reuse_drop(a, &log);
	return true;
}

void reuse_give_up(struct agent *a)
{
	while (drop_oldest(a, UINT64_MAX))
		;
}

void reuse_timeouts(struct agent *a, uint64_t now)
{
	while (now > KEPT_MS && drop_oldest(a, now - KEPT_MS))
		;
}

void reuse_keep(struct agent *a, struct client *c, struct made *log)
{
	struct made *bigger;

	/* Its file and mapping are the spare log's by now. */
	c->lease.fd = -1;
	c->lease.map = NULL;
	c->lease.head.ninodes = 0;
	sfs_lease_close(&c->lease);
	log->left->since = agent_now();
	bigger = reallocarray(a->spare_logs, a->nspare_logs + 1, sizeof(*bigger));
	if (!bigger) {
		reuse_drop(a, log);
		return;
	}
	a->spare_logs = bigger;
	a->spare_logs[a->nspare_logs++] = *log;
}

void reuse_failed(struct agent *a, struct client *c)
{
	if (c->tiny_kept) {
		sfs_chunk_remove(&a->root, c->lesser[SFS_TINY]);
		a->leased_lesser[SFS_TINY]--;
		c->lesser[SFS_TINY] = 0;
		c->tiny_kept = false;
	}
	if (c->lease.fd >= 0)
		sfs_lease_close(&c->lease);
}

int reuse_lease(struct agent *a, struct client *c, struct made *log, const struct sfs_lease *head)
{
	struct leftover *left = log->left;

	c->lease = left->lease;
	c->lesser[SFS_TINY] = left->tiny;
	c->tiny_kept = left->tiny != 0;
	a->leased_lesser[SFS_TINY] += c->tiny_kept;
	free(left);
	log->left = NULL;
	return sfs_lease_give(&c->lease, head);
}
