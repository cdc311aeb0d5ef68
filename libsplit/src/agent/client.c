/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections and their life: stranger, client, dying (its log is being recovered), gone. A client ends when its request socket
 * is closed or its process is dead, whichever is seen first: a child that inherited the socket keeps it open.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "agent/internal.h"

static void list_add(struct agent *a, struct client *c)
{
	c->prev = a->clients_last;
	if (a->clients_last)
		a->clients_last->next = c;
	else
		a->clients = c;
	a->clients_last = c;
	a->nclients++;
}

static void list_del(struct agent *a, struct client *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		a->clients = c->next;
	if (c->next)
		c->next->prev = c->prev;
	else
		a->clients_last = c->prev;
	a->nclients--;
}

static void count_state(struct agent *a, struct client *c, enum client_state state, int by)
{
	a->in_state[state] += (uint32_t)by;
	if (state == C_STRANGER) {
		a->nstrangers += (uint32_t)by;
		c->tenant->strangers += (uint32_t)by;
	}
}

struct client *client_new(struct agent *a, enum client_state state, int pid, uint32_t uid)
{
	struct client *c = calloc(1, sizeof(*c));
	struct tenant *t = c ? tenant_of(a, pid, uid) : NULL;

	if (!t) {
		free(c);
		return NULL;
	}
	c->pid = pid;
	c->uid = uid;
	c->tenant = t;
	t->clients++;
	count_state(a, c, state, 1);
	c->state = state;
	c->version = SFS_PROTO_OLDEST;
	c->request_src = (struct source){SRC_REQUEST, c};
	c->event_src = (struct source){SRC_EVENT, c};
	c->pidfd_src = (struct source){SRC_PIDFD, c};
	c->sock = c->event = c->pidfd = c->log_fd = c->lease.fd = -1;
	list_add(a, c);
	return c;
}

static void disconnect(struct agent *a, struct client *c)
{
	processes_remove(a, c);
	agent_unwatch(a, c->sock);
	wire_close(&c->sock);
	agent_unwatch(a, c->event);
	wire_close(&c->event);
	agent_unwatch(a, c->pidfd);
	drop_fd(&c->pidfd);
	c->event_blocked = false;
}

void client_gone(struct agent *a, struct client *c)
{
	count_state(a, c, c->state, -1);
	disconnect(a, c);
	if (c->leaves)
		outsider_left(a, c); /* it may go on to its next program */
	client_hold(a, c, false);
	look_forget(a, c);
	deleg_forget_client(a, c);
	owners_count_away(a, c, false);
	deleg_free_targets(c->targets, c->ntargets);
	drop_fd(&c->log_fd);
	if (c->lease.fd >= 0)
		sfs_lease_close(&c->lease);
	list_del(a, c);
	c->tenant->clients--;
	c->state = C_GONE;
	c->next_gone = a->gone;
	a->gone = c;
}

void client_free_gone(struct agent *a)
{
	while (a->gone) {
		struct client *c = a->gone;

		a->gone = c->next_gone;
		free(c);
	}
}

/* The agent stops: sockets and descriptors are closed, everything on disk stays for the next one. */
void client_free_all(struct agent *a)
{
	/* First nobody can be told anything, so that the end of one grants nothing to another. */
	for (struct client *c = a->clients; c; c = c->next)
		disconnect(a, c);
	while (a->clients)
		client_gone(a, a->clients);
	client_free_gone(a);
}

uint32_t client_count(const struct agent *a, enum client_state state)
{
	return a->in_state[state];
}

bool client_silent(const struct client *c)
{
	struct pollfd p = {c->sock, POLLIN, 0};

	return poll(&p, 1, 0) == 0;
}

/* Requests are read only from who waits for nothing: a client that sends ahead waits in its own queue. */
static bool listens(enum client_state state)
{
	return state == C_STRANGER || state == C_READY;
}

static void watch_request(struct agent *a, struct client *c)
{
	if (c->sock >= 0)
		agent_rewatch(a, c->sock, (listens(c->state) && !c->held ? EPOLLIN : 0) | EPOLLRDHUP, &c->request_src);
}

void client_watch_event(struct agent *a, struct client *c)
{
	if (c->event >= 0)
		agent_rewatch(a, c->event, (c->held ? 0 : EPOLLIN) | (c->event_blocked ? EPOLLOUT : 0) | EPOLLRDHUP,
			      &c->event_src);
}

void client_hold(struct agent *a, struct client *c, bool hold)
{
	if (c->held == hold)
		return;
	c->held = hold;
	a->nheld += hold ? 1u : -1u;
	c->tenant->nheld += hold ? 1u : -1u;
	watch_request(a, c);
	client_watch_event(a, c);
}

void client_set_state(struct agent *a, struct client *c, enum client_state state)
{
	const bool listened = listens(c->state);

	count_state(a, c, c->state, -1);
	count_state(a, c, state, 1);
	c->state = state;
	if (state == C_WAIT_CHUNK || state == C_WAIT_LOG)
		c->wait_since = agent_now();
	if (listens(state) != listened)
		watch_request(a, c);
}

int client_reply(struct agent *a, struct client *c, const struct sfs_msg *m, const int *fds, int nfds)
{
	int err;

	drop_fd(&a->shown.fd);
	if (c->sock < 0)
		return -ENOTCONN;
	err = wire_send(c->sock, c->version, m, fds, nfds);
	if (err)
		client_drop(a, c, err == -EPIPE || err == -ECONNRESET ? NULL : "it does not read its replies");
	return err;
}

bool client_tell(struct agent *a, struct client *c, const struct sfs_msg *m)
{
	int err;

	if (c->event < 0 || c->event_blocked)
		return false;
	err = wire_send(c->event, c->version, m, NULL, 0);
	if (err == -EAGAIN || err == -ENOBUFS) {
		/* It may be stopped: what it holds waits for it, we don't. */
		c->event_blocked = true;
		client_watch_event(a, c);
	}
	/* Any other error: the socket is closed, which the loop is about to see. */
	return !err;
}

int client_reply_error(struct agent *a, struct client *c, uint16_t type, int err, const char *text)
{
	struct sfs_msg m = {.type = type, .status = err};
	int r;

	strncpy(m.text, text, sizeof(m.text) - 1);
	r = client_reply(a, c, &m, NULL, 0);
	if (!r && (type == SFS_MSG_HELLO || c->state == C_STRANGER)) {
		client_drop(a, c, NULL);
		r = -ECONNREFUSED;
	}
	return r;
}

/* ---- the end ---- */

static void start_recovery(struct agent *a, struct client *c)
{
	struct recovery_job *job = calloc(1, sizeof(*job));

	if (!job) {
		c->deadline = agent_now() + RETRY_SECONDS * 1000;
		return;
	}
	job->client = c;
	if (!c->targets)
		c->targets = deleg_take_targets(c, &c->ntargets);
	job->reuse = !a->stopping && !c->counted_away && reuse_may(a);
	a->nkeeping += job->reuse;
	c->queued = true;
	c->deadline = 0;
	worker_recover(a, job);
}

void client_drop(struct agent *a, struct client *c, const char *why)
{
	int err;

	if (c->state == C_DYING || c->state == C_GONE)
		return;
	if (why)
		agent_log(a, "process %d (%s, user %u) is disconnected: %s", c->pid, c->comm[0] ? c->comm : "?", c->uid, why);
	disconnect(a, c);
	left_by(a, c);
	if (!c->log_id) {
		client_gone(a, c);
		return;
	}
	look_forget(a, c);
	client_set_state(a, c, C_DYING);
	deleg_cancel_waits(a, c);
	/* Its process may live on (exec, a broken connection): the next agent must not wait for it. */
	err = sfs_lease_set_held(&c->lease, SFS_HELD_NOT);
	if (err)
		agent_log(a, "write the lease of log %u: %s", c->log_id, strerror(-err));
	start_recovery(a, c);
}

bool client_recovered(struct agent *a, struct recovery_job *job)
{
	struct client *c = job->client;
	const struct sfs_recovery *s = &job->result;

	c->queued = false;
	a->nkeeping -= job->reuse;
	tenant_charge_us(c->tenant, job->cpu_us);
	if (job->err) {
		full_unrecovered(a, job);
		return false;
	}
	if (s->replayed || s->quarantined)
		agent_log(
			a,
			"recovered log %u of process %d (%s): %llu records replayed, %llu bytes, %llu files, %llu quarantined",
			c->log_id, c->pid, c->comm, (unsigned long long)s->replayed, (unsigned long long)s->bytes,
			(unsigned long long)s->files, (unsigned long long)s->quarantined);
	if (job->totals_err)
		agent_log(a, "write the totals: %s", strerror(-job->totals_err));
	chunks_count(a, c, -1);
	logs_count(a, c, c->log_slots, -1);
	if (job->kept.left)
		reuse_keep(a, c, &job->kept);
	free(job);
	client_gone(a, c);
	return true;
}

/* ---- messages ---- */

void client_request(struct agent *a, struct client *c)
{
	struct sfs_msg m;
	int fd, r;

	/* One message per round: nobody who sends much keeps the others waiting. */
	r = wire_recv(c->sock, &m, &fd);
	if (r == -EAGAIN)
		return;
	if (r <= 0) {
		client_drop(a, c, r == 0 || r == -ECONNRESET ? NULL : "a malformed message");
		return;
	}
	request_handle(a, c, &m, &fd);
	drop_fd(&fd);
}

static void event_ready(struct agent *a, struct client *c, uint32_t events)
{
	struct sfs_msg m;
	int fd, r;

	if (events & EPOLLIN) {
		r = wire_recv(c->event, &m, &fd);
		if (fd >= 0)
			close(fd);
		if (r == 1 && m.version == c->version && m.type == SFS_MSG_REVOKED)
			deleg_revoked(a, c, &m);
		else if (r == 1 && m.version == c->version && m.type == SFS_MSG_LOOK)
			look_ask(a, c, &m);
		else if (r == 1 || r == -EPROTO)
			client_drop(a, c, "an unknown message on the event socket");
		else if (r != -EAGAIN)
			client_drop(a, c, NULL);
		return;
	}
	if (events & (EPOLLHUP | EPOLLRDHUP | EPOLLERR)) {
		client_drop(a, c, NULL);
		return;
	}
	if (events & EPOLLOUT)
		deleg_send_revokes(a, c);
}

void client_event(struct agent *a, struct client *c, enum source_kind kind, uint32_t events)
{
	uint64_t since;

	if (c->state == C_DYING || c->state == C_GONE)
		return; /* an event of the same round as the one that ended it */
	if (kind == SRC_PIDFD) {
		client_drop(a, c, NULL);
		return;
	}
	since = tenant_clock();
	if (events & EPOLLIN) {
		if (tenant_waits(c->tenant, a->round))
			return; /* what is ready stays so */
		if (tenant_overdrawn(c->tenant)) {
			client_hold(a, c, true);
			return;
		}
	}
	if (kind == SRC_REQUEST && (!(events & EPOLLIN) || !listens(c->state)))
		client_drop(a, c, NULL); /* closed while it waits for a reply */
	else if (kind == SRC_REQUEST)
		client_request(a, c);
	else
		event_ready(a, c, events);
	tenant_spent(c->tenant, since);
}

void client_timeouts(struct agent *a, uint64_t now)
{
	struct client *next;

	for (struct client *c = a->clients; c; c = next) {
		next = c->next;
		if (!c->deadline || (now < c->deadline && !full_no_more(a, c)))
			continue;
		if (c->state == C_STRANGER) {
			tenant_refused(a, c->tenant, c->tenant->strangers, a->nstrangers, "connections without HELLO");
			client_drop(a, c, NULL);
		} else if (c->state == C_DYING && !c->queued)
			start_recovery(a, c);
		else if (c->state == C_AWAY && client_still_there(c)) /* it comes when it needs us, or when it goes on */
			c->deadline = now + AWAY_SECONDS * 1000;
		else if (c->state == C_AWAY)
			client_drop(a, c, c->lease.head.quiet ? NULL : "it did not come back");
	}
}
