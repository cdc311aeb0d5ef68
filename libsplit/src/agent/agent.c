/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's loop and end. */
#include "agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/internal.h"

#define EVENTS	       1024
#define HELD_MS	       5    /* while requests wait for their tenant's time */
#define TICK_MS	       200  /* while something has to be looked at again */
#define THERE_MS       5000 /* whether the control directory is still there */
#define CLAIM_MS       1    /* while a claim is waited for */
#define LOOK_MS	       30000u
#define LOG_PER_SECOND 20u
#define OVERDUE_MS     30000u

uint64_t agent_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void agent_log(struct agent *a, const char *fmt, ...)
{
	const uint64_t now = agent_now();
	char line[1024];
	va_list args;
	int n;

	if (now - a->log_refill >= 1000) {
		a->log_refill = now;
		a->log_tokens = LOG_PER_SECOND;
	}
	if (a->log_tokens == 0)
		return;
	n = snprintf(line, sizeof(line), "splitfs agent %s: ", a->root.path);
	if (n < 0 || n >= (int)sizeof(line))
		n = 0;
	va_start(args, fmt);
	vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, args);
	va_end(args);
	fprintf(stderr, "%s%s\n", line, --a->log_tokens == 0 ? " (more messages of this second are left out)" : "");
}

int agent_watch(struct agent *a, int fd, uint32_t events, struct source *src)
{
	struct epoll_event ev = {.events = events, .data.ptr = src};

	return epoll_ctl(a->epoll, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

void agent_rewatch(struct agent *a, int fd, uint32_t events, struct source *src)
{
	struct epoll_event ev = {.events = events, .data.ptr = src};

	if (epoll_ctl(a->epoll, EPOLL_CTL_MOD, fd, &ev) < 0)
		agent_log(a, "epoll: %s", strerror(errno));
}

/*
 * Before its close: a registration belongs to the open file and outlives the descriptor as long as a child between fork and exec
 * has it too, and the source it names is freed soon.
 */
void agent_unwatch(struct agent *a, int fd)
{
	/* One that was never watched is no error. */
	if (fd >= 0 && epoll_ctl(a->epoll, EPOLL_CTL_DEL, fd, NULL) < 0 && errno != ENOENT)
		agent_log(a, "epoll: %s", strerror(errno));
}

/* ---- loop ---- */

/*
 * private_dir: does any `splitfs run` still count on us? What could not be recovered in time is the next agent's: an agent that waits for
 * space, or for a file system that has gone, would never end.
 */
static bool used(struct agent *a)
{
	int fd, free_now;

	if (a->nclients > client_count(a, C_DYING) || (client_count(a, C_DYING) && agent_now() < a->stop_until))
		return true;
	fd = openat(a->dir_fd, "users", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return false;
	free_now = flock(fd, LOCK_EX | LOCK_NB) == 0;
	close(fd);
	return !free_now;
}

/*
 * SIGTERM counts when epoll says so, after what was ready before it: the end of a client that was closed just before is not
 * left to the next agent.
 */
static void signalled(struct agent *a)
{
	struct signalfd_siginfo si;

	while (read(a->signal_fd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
		if (!a->stopping)
			a->stop_until = agent_now() + STOP_SECONDS * 1000;
		a->stopping = true;
	}
}

/* Clients that live keep their leases on disk; those that just died are recovered before we go, if that does not take long. */
static bool stop_now(struct agent *a)
{
	if (!a->stopping)
		return false;
	if (a->config->private_dir)
		return !used(a);
	if (a->listen_fd >= 0) {
		if (a->socket_path[0])
			unlink(a->socket_path);
		close(a->listen_fd);
		a->listen_fd = -1;
		a->accept_again = 0;
	}
	return client_count(a, C_DYING) == 0 || agent_now() >= a->stop_until;
}

static void dispatch(struct agent *a, const struct epoll_event *ev)
{
	const struct source *src = ev->data.ptr;

	switch (src->kind) {
	case SRC_LISTEN:
		client_accept(a);
		break;
	case SRC_WORKER:
		worker_collect(a);
		break;
	case SRC_SIGNAL:
		signalled(a);
		break;
	case SRC_OPENS:
		outsider_opens(a);
		break;
	case SRC_CLOSES:
		openers_closes(a);
		break;
	case SRC_LOOKED:
		openers_hear(a);
		before_hear(a);
		break;
	case SRC_POLICIES:
		enforce_reload(a);
		break;
	default:
		client_event(a, src->client, src->kind, ev->events);
	}
}

/* Is a client of the agent before us to come that may have a grant? One that is quiet has none, and comes with its first request. */
static bool awaited(const struct agent *a)
{
	for (const struct client *c = client_count(a, C_AWAY) ? a->clients : NULL; c; c = c->next)
		if (c->state == C_AWAY && !(c->lease.head.quiet && c->pidfd >= 0))
			return true;
	return false;
}

static void timeouts(struct agent *a)
{
	const uint64_t now = agent_now();

	if (a->accept_again && now >= a->accept_again && a->listen_fd >= 0) {
		a->accept_again = 0;
		agent_rewatch(a, a->listen_fd, EPOLLIN, &a->listen_src);
	}
	if (a->grace_until && (now >= a->grace_until || !awaited(a))) {
		a->grace_until = 0;
		for (struct client *c = a->clients; c; c = c->next)
			if (c->state == C_AWAY)
				c->deadline = now;
		deleg_retry_all(a);
	}
	client_timeouts(a, now);
	outsider_timeouts(a, now);
	openers_timeouts(a, now);
	before_timeouts(a, now);
	overdue_check(a, now);
	if (a->claimed) {
		a->claimed = false;
		deleg_retry_all(a);
	}
	deleg_turns_over(a);
	look_settle(a);
	full_give_way(a, now);
	reuse_timeouts(a, now);
}

/* Has somebody removed the control directory? Nothing can be kept or recovered without it. */
static int still_there(const struct agent *a, struct sfs_why *why)
{
	struct stat st;

	if (fstat(a->root.ctl, &st) == 0 && st.st_nlink > 0)
		return 0;
	return sfs_fail(why, -ENOENT,
			"%s/" SFS_CONTROL_DIR
			" was removed while it was served; what was staged in it is lost. Make the volume anew with "
			"'splitfs prepare'",
			a->root.path);
}

/* Until something has to be looked at again. */
static int wait_ms(const struct agent *a)
{
	const int look = agent_sooner(openers_wait_ms(a), before_wait_ms(a));

	if (a->claimed)
		return CLAIM_MS;
	if (a->nheld)
		return HELD_MS;
	if (look >= 0 && look < TICK_MS)
		return look;
	return a->stopping || a->grace_until || a->accept_again || a->nstrangers || client_count(a, C_DYING) ||
			       !TAILQ_EMPTY(&a->waiting) || a->outsiders.nopening || look >= 0 || a->overdue_listed || a->looks
		       ? TICK_MS
		       : THERE_MS;
}

static int loop(struct agent *a, struct sfs_why *why)
{
	struct epoll_event ev[EVENTS];
	uint64_t looked = agent_now();

	for (;;) {
		const int n = epoll_wait(a->epoll, ev, EVENTS, wait_ms(a));
		const uint64_t now = agent_now();

		if (n < 0 && errno != EINTR)
			return sfs_fail(why, -errno, "epoll: %s", strerror(errno));
		a->round++;
		for (int i = 0; i < n; i++)
			dispatch(a, &ev[i]);
		timeouts(a);
		tenants_refill(a);
		client_free_gone(a);
		if (stop_now(a))
			return 0;
		if (now - looked >= THERE_MS || n == 0) {
			const int err = still_there(a, why);

			if (err)
				return err;
			looked = now;
		}
	}
}

/* ---- end ---- */

static void stop(struct agent *a)
{
	if (a->socket_path[0])
		unlink(a->socket_path);
	if (a->listen_fd >= 0)
		close(a->listen_fd);
	enforce_stop(a);
	worker_stop(a);
	fill_stop(&a->worker.fill);
	for (uint32_t i = 0; i < a->nspare_logs; i++)
		reuse_drop(a, &a->spare_logs[i]);
	/* First: clients that live on have what they were granted, and the others are to see that in the table until the next agent comes. */
	owners_stop(a);
	client_free_all(a);
	if (a->config->private_dir && a->dir_fd >= 0) {
		unlinkat(a->dir_fd, "users", 0);
		rmdir(a->config->agents_dir); /* somebody else's file in it keeps it */
	}
	if (a->dir_fd >= 0)
		close(a->dir_fd);
	if (a->signal_fd >= 0)
		close(a->signal_fd);
	if (a->epoll >= 0)
		close(a->epoll);
	tenants_free(a);
	free(a->spare_logs);
	free(a->free_chunks);
	deleg_free_all(a);
	sfs_root_close(&a->root);
	listener_stop(a); /* last: the kernel may ask us about any open of ours */
	enforce_free(a);
}

int sfs_agent_run(const struct sfs_agent_config *config, struct sfs_why *why)
{
	struct agent a = {
		.config = config,
		.pid = getpid(),
		.epoll = -1,
		.listen_fd = -1,
		.signal_fd = -1,
		.dir_fd = -1,
		.worker.fill.lock_fd = -1,
		.shown = {.fd = -1},
		.outsiders = {.opens_fd = -1,
			      .closes_fd = -1,
			      .stop_fd = -1,
			      .looker = {-1, -1},
			      .before = {.looker = {-1, -1}},
			      .questions = {-1, -1},
			      .lock = PTHREAD_MUTEX_INITIALIZER},
		.enforcer = {
			.questions = {-1, -1}, .stop_fd = -1, .watch_fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER, .now.fd = -1}};
	uint64_t most;
	int err;

	TAILQ_INIT(&a.waiting);
	TAILQ_INIT(&a.outsiders.looked_at);
	TAILQ_INIT(&a.outsiders.before.waiting);
	a.root.fd = a.root.ctl = a.root.log = a.root.pool = a.root.lock = -1;
	if (config->chunk_bytes == 0 || config->chunk_bytes % SFS_CHUNK_ALIGN || config->chunk_bytes > (1ull << 40))
		return sfs_fail(why, -EINVAL, "the size of a staging file must be a multiple of 2 MiB, at most 1 TiB");
	if (config->log_bytes < 8192 || config->log_bytes % 4096 || config->log_bytes > (1ull << 36))
		return sfs_fail(why, -EINVAL, "the size of a log must be a multiple of 4096 bytes, from 8192 bytes to 64 GiB");
	a.plan = sfs_pool_plan(config->pool_bytes, config->chunk_bytes);
	most = config->pool_bytes / config->chunk_bytes / 2;
	if (config->client_chunks)
		most = config->client_chunks;
	a.client_chunks_max = most < 2 && !config->client_chunks ? 2
			      : most > SFS_LEASE_CHUNKS		 ? SFS_LEASE_CHUNKS
								 : (uint32_t)most;
	a.overdue_ms = config->overdue_ms ? config->overdue_ms : OVERDUE_MS;
	a.look_ms = LOOK_MS;
	err = agent_begin(&a, why);
	if (!err && write(config->ready_fd, "ready\n", 6) != 6)
		err = sfs_fail(why, -errno, "say that the agent is ready: %s", strerror(errno));
	if (!err)
		err = loop(&a, why);
	stop(&a);
	return err;
}
