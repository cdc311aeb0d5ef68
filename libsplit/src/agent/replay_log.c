/* SPDX-License-Identifier: Apache-2.0 */
/* What the worker does with the log of a client that is gone. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/internal.h"

struct find {
	const struct client *client;
	const struct sfs_root *root;
};

static int reopen(const struct target *t, const struct sfs_root *root)
{
	char path[64];
	int fd, flags;

	if (t->handle) {
		fd = open_by_handle_at(root->fd, t->handle, O_RDWR | O_CLOEXEC | O_NONBLOCK);
		return fd < 0 ? (errno == ESTALE ? -ENOENT : -errno) : fd;
	}
	if (t->fd < 0)
		return -ENOENT;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", t->fd);
	fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0)
		return fd;
	fd = -errno;
	flags = fcntl(t->fd, F_GETFL);
	if (flags & O_PATH)
		return fd;
	/* What the client's own descriptor could do, ours can. */
	if (flags & O_APPEND)
		return -ENOENT;
	fd = fcntl(t->fd, F_DUPFD_CLOEXEC, 3);
	return fd < 0 ? -errno : fd;
}

static int find_target(void *ctx, uint64_t ino, uint32_t gen)
{
	const struct find *f = ctx;

	for (size_t i = 0; i < f->client->ntargets; i++)
		if (f->client->targets[i].ino == ino && f->client->targets[i].gen == gen)
			return reopen(&f->client->targets[i], f->root);
	return -ENOENT;
}

/*
 * The counters of the log go over to the totals before the log is removed: whoever adds up both (splitfs status) is to see them once at
 * any moment.
 */
static int settle(struct worker *w, const struct client *c, const struct sfs_recovery *s)
{
	const uint64_t mark = sfs_log_mark(c->log_id, c->log_fd);
	struct sfs_totals *t = &w->totals;
	struct sfs_usage usage;

	if (t->settled_log == mark)
		return 0;				      /* it could not be removed at the last try */
	sfs_log_usage(c->log_fd, c->lease.head.mode, &usage); /* zeros when it cannot be read */
	sfs_totals_add(t, &usage, s);
	t->settled_log = mark;
	return sfs_totals_write(w->root, t);
}

/* The holder is gone: bring its data into the files, then remove its log and staging files. */
void worker_recover_log(struct worker *w, struct recovery_job *job)
{
	struct find f = {job->client, w->root};
	const struct sfs_targets targets = {find_target, &f};
	/* On an emulated volume a power loss voids everything that was not fsynced anyway. */
	const struct sfs_recover_how how = {.targets = &targets, .durable = w->root->dax};
	struct client *c = job->client;

	memset(&job->result, 0, sizeof(job->result));
	job->why.text[0] = 0;
	job->err = sfs_recover_log(w->root, c->log_id, &c->lease, &how, &job->result, &job->why);
	if (job->err)
		return;
	job->totals_err = settle(w, c, &job->result);
	if (job->reuse && worker_keep_log(w, job))
		return;
	job->err = sfs_recover_discard(w->root, c->log_id, &c->lease, &job->why);
}
