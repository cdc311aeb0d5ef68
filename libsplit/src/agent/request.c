/* SPDX-License-Identifier: Apache-2.0 */
/* The requests of clients: HELLO here; staging files in chunks.c, delegations in delegation.c. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/internal.h"

/* ---- HELLO ---- */

static struct client *find_away(struct agent *a, uint32_t log_id)
{
	for (struct client *c = a->clients; c; c = c->next)
		if (c->state == C_AWAY && c->log_id == log_id)
			return c;
	return NULL;
}

/* Is it the log of a client of the agent before us, as that client has it? */
static bool shows_log(const struct client *old, int fd)
{
	struct stat x, y;

	if (fd < 0 || fstat(fd, &x) < 0)
		return false;
	if (old->lease.head.memory)
		return x.st_ino == old->lease.head.memory;
	return fstat(old->log_fd, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static uint64_t volume_flags(const struct agent *a)
{
	return (a->root.dax ? SFS_HELLO_DAX : 0) | (a->root.dedicated ? SFS_HELLO_DEDICATED : 0) |
	       (a->memory == SFS_MEMORY_EADR ? SFS_HELLO_CACHES : 0);
}

/* What we can and the client knows of. A quiet one is known by its claims, which take the table, and by the end of its process. */
static uint64_t features(const struct agent *a, const struct client *c, const struct sfs_msg *hello)
{
	const bool asked = a->outsiders.opens_fd >= 0, table = owners_fd(a) >= 0, seen = c->pid > 0 && c->pidfd >= 0;

	return hello->c & (SFS_FEATURE_GROW | SFS_FEATURE_TURN | SFS_FEATURE_FILES | SFS_FEATURE_KERNEL | SFS_FEATURE_CODE |
			   SFS_FEATURE_LEFT | (table ? SFS_FEATURE_OWNERS : 0) | (asked ? SFS_FEATURE_WATCH : 0) |
			   (asked && table ? SFS_FEATURE_OUTSIDE : 0) | (seen && table ? SFS_FEATURE_QUIET : 0));
}

/* Reply to HELLO: the log and the event socket. The client is ready when this returns true. */
static bool welcome(struct agent *a, struct client *c, int log_fd)
{
	struct sfs_msg m = {.type = SFS_MSG_HELLO};
	int pair[2], fds[3] = {-1, -1, owners_fd(a)};

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
		client_reply_error(a, c, SFS_MSG_HELLO, -errno, "agent: no sockets left");
		return false;
	}
	/* The client's end blocks as it likes; that flag belongs to the description, which it shares with nobody. */
	fcntl(pair[1], F_SETFL, fcntl(pair[1], F_GETFL) & ~O_NONBLOCK);
	c->event = pair[0];
	if (agent_watch(a, c->event, EPOLLIN | EPOLLRDHUP, &c->event_src)) {
		close(pair[1]);
		client_reply_error(a, c, SFS_MSG_HELLO, -ENOMEM, "agent: out of memory");
		return false;
	}
	m.a = c->log_id;
	m.b = volume_flags(a) | c->features << SFS_FEATURES_SHIFT;
	if (c->lease.head.memory)
		m.b &= ~(uint64_t)SFS_HELLO_DAX;
	m.c = a->config->chunk_bytes;
	m.d = a->provider;
	fds[0] = log_fd;
	fds[1] = pair[1];
	processes_knows(&a->outsiders, c);
	if (c->features & SFS_FEATURE_CODE)
		processes_says(&a->outsiders, c);
	client_set_state(a, c, C_READY);
	if (client_reply(a, c, &m, fds, c->features & SFS_FEATURE_OWNERS ? 3 : 2)) {
		close(pair[1]);
		return false;
	}
	close(pair[1]);
	return true;
}

/* 0, or a negative errno value. */
static int lease_of(struct agent *a, struct client *c, struct made *log, const struct sfs_lease *head)
{
	int err;

	if (log->left)
		return reuse_lease(a, c, log, head);
	do
		err = sfs_lease_create(&a->root, log->id, head, &c->lease);
	while (full_makes_room(a, err, "a client needs a lease"));
	return err;
}

/* A spare log becomes the client's. */
static void give_log(struct agent *a, struct client *c, uint32_t index)
{
	struct made log = reuse_take(a, index);
	struct sfs_lease head = {.held = 1,
				 .pid = c->pid,
				 .start = c->start,
				 .uid = c->uid,
				 .mode = (uint8_t)c->mode,
				 .quiet = (c->features & SFS_FEATURE_QUIET) != 0};
	int given = -1, err = 0;

	memcpy(head.comm, c->comm, sizeof(head.comm));
	if (c->right < RIGHT_MOUNT)
		given = err = sfs_log_memory(&a->root, log.id, FIRST_SLOTS, &head.memory);
	if (err >= 0)
		err = lease_of(a, c, &log, &head);
	if (err < 0) {
		agent_log(a, "make the lease of log %u: %s", log.id, strerror(-err));
		drop_fd(&given);
		reuse_failed(a, c);
		reuse_drop(a, &log);
		client_reply_error(a, c, SFS_MSG_HELLO, err, "no space for a lease");
		return;
	}
	c->log_id = log.id;
	c->log_fd = log.fd;
	c->log_slots = FIRST_SLOTS;
	logs_count(a, c, c->log_slots, 1);
	if (!(c->features & SFS_FEATURE_GROW))
		logs_grow(a, c);
	if (c->growing)
		client_set_state(a, c, C_WAIT_GROW);
	else
		welcome(a, c, given >= 0 ? given : c->log_fd);
	drop_fd(&given);
}

void request_welcome(struct agent *a, struct client *c)
{
	welcome(a, c, c->log_fd);
}

/* A client of the agent before us comes back with its log. */
static void resume(struct agent *a, struct client *c, uint32_t log_id, int *proof)
{
	struct client *old = find_away(a, log_id);

	if (!old || old->pid != c->pid || old->start != c->start || !shows_log(old, *proof)) {
		client_reply_error(a, c, SFS_MSG_HELLO, -ESTALE, "log is not yours");
		return;
	}
	drop_fd(proof);
	c->log_id = old->log_id;
	c->log_fd = old->log_fd;
	c->log_slots = old->log_slots;
	logs_count(a, old, c->log_slots, -1);
	logs_count(a, c, c->log_slots, 1);
	c->lease = old->lease;
	c->mode = old->mode;
	c->right = right_resumed(old);
	c->counted_away = old->counted_away;
	chunks_count(a, old, -1);
	memcpy(c->lesser, old->lesser, sizeof(c->lesser));
	memcpy(c->given, old->given, sizeof(c->given));
	chunks_count(a, c, 1);
	old->counted_away = false;
	old->log_id = 0;
	old->log_fd = old->lease.fd = -1;
	old->lease.inodes = NULL;
	old->lease.free = NULL;
	client_drop(a, old, NULL);
	if (deleg_assume(a, c)) {
		client_drop(a, c, "out of memory for its inodes");
		return;
	}
	owners_count_away(a, c, false); /* its holds are, now */
	if (welcome(a, c, c->log_fd))
		deleg_retry_all(a); /* who has waited for it to come back now waits for what it holds, and it has to be told */
}

/* Programs start faster than what each of them needs is made. */
void request_more_spare(struct agent *a)
{
	if (a->spare_target < SFS_SPARE_LOGS_MAX)
		a->spare_target *= 2;
}

static void hello(struct agent *a, struct client *c, const struct sfs_msg *m, int *fd)
{
	if (m->a > SFS_STRICT || m->b > UINT32_MAX) {
		client_reply_error(a, c, SFS_MSG_HELLO, -EINVAL, "no such mode or log");
		return;
	}
	c->mode = (enum sfs_mode)m->a;
	c->features = features(a, c, m);
	c->library[0] = m->code[0];
	c->library[1] = m->code[1];
	if (m->b) {
		resume(a, c, (uint32_t)m->b, fd);
		return;
	}
	c->right = right_of_client(a, c, *fd);
	if (c->right == RIGHT_NONE) {
		client_reply_error(a, c, SFS_MSG_HELLO, -EACCES, "not a file of the volume");
		return;
	}
	drop_fd(fd);
	client_set_state(a, c, C_WAIT_LOG);
	request_serve_waiting(a);
	if (c->state == C_WAIT_LOG)
		request_more_spare(a);
	request_refill(a);
}

/* The table for a process that only looks: it is no client. */
static void peek(struct agent *a, struct client *c, int *fd)
{
	const struct sfs_msg m = {.type = SFS_MSG_PEEK, .b = volume_flags(a)};
	const int table = owners_fd(a);

	if (right_shown(a, *fd) == RIGHT_NONE || table < 0) {
		client_reply_error(a, c, SFS_MSG_PEEK, table < 0 ? -ENOENT : -EACCES, "no table for it");
		return;
	}
	if (client_reply(a, c, &m, &table, 1) == 0)
		client_drop(a, c, NULL);
}

/* ---- */

/* The first message of a connection. */
static void first(struct agent *a, struct client *c, const struct sfs_msg *m, int *fd)
{
	if (m->type != SFS_MSG_HELLO && m->type != SFS_MSG_PEEK && m->type != SFS_MSG_LEFT)
		client_drop(a, c, "a request before HELLO");
	else if (!versions_meet(a, c, m))
		return;
	else if (m->type == SFS_MSG_PEEK)
		peek(a, c, fd);
	else if (m->type == SFS_MSG_LEFT)
		left_shown(a, c, m, fd);
	else
		hello(a, c, m, fd);
}

void request_handle(struct agent *a, struct client *c, const struct sfs_msg *m, int *fd)
{
	if (c->state == C_STRANGER) {
		first(a, c, m, fd);
		return;
	}
	if (m->version != c->version) {
		client_drop(a, c, "a message of another version than that of HELLO");
		return;
	}
	switch (m->type) {
	case SFS_MSG_CHUNK:
		chunk_ask(a, c, m->a, m->b, m->c == SFS_CHUNK_OVER);
		break;
	case SFS_MSG_RETURN:
		chunk_return(a, c, m->a);
		break;
	case SFS_MSG_ACQUIRE:
		deleg_acquire(a, c, m, fd);
		break;
	case SFS_MSG_GROW:
		if (m->a == SFS_GROW_ROOM)
			full_asked(a);
		else
			logs_grow(a, c);
		break;
	case SFS_MSG_WATCH:
		deleg_watch(a, c, m, fd);
		break;
	case SFS_MSG_RELEASE:
		deleg_release(a, c, m->a, (uint32_t)m->b);
		break;
	default:
		client_drop(a, c, "an unknown request");
	}
}

static bool may_be_served(const struct agent *a, const struct client *c)
{
	uint32_t index;

	if (c->state == C_WAIT_LOG)
		return reuse_find(a, c, &index);
	return c->state == C_WAIT_CHUNK && chunk_ready(a, c);
}

/* How much its tenant has of what it waits for. */
static uint32_t has(const struct client *c)
{
	return c->state == C_WAIT_LOG ? c->tenant->clients : c->tenant->chunks;
}

/* Whose tenant has the least comes first, and among its clients who has waited longest. */
static struct client *next_waiting(const struct agent *a, enum client_state state)
{
	struct client *first = NULL;

	for (struct client *c = client_count(a, state) ? a->clients : NULL; c; c = c->next)
		if (c->state == state && may_be_served(a, c) &&
		    (!first || has(c) < has(first) || (has(c) == has(first) && c->wait_since < first->wait_since)))
			first = c;
	return first;
}

void request_serve_waiting(struct agent *a)
{
	struct client *c;
	uint32_t index;

	while ((c = next_waiting(a, C_WAIT_LOG)) != NULL && reuse_find(a, c, &index))
		give_log(a, c, index);
	while ((c = next_waiting(a, C_WAIT_CHUNK)) != NULL)
		chunk_give(a, c);
}

void request_fail_waiting(struct agent *a, enum client_state state, int err)
{
	struct client *next;

	for (struct client *c = a->clients; c; c = next) {
		next = c->next;
		if (c->state != state)
			continue;
		client_set_state(a, c, state == C_WAIT_LOG ? C_STRANGER : C_READY);
		client_reply_error(a, c, state == C_WAIT_LOG ? SFS_MSG_HELLO : SFS_MSG_CHUNK, err,
				   err == -ENOSPC ? "volume is full" : "agent failed, see log");
	}
}

void request_refill(struct agent *a)
{
	const uint32_t waiting_logs = client_count(a, C_WAIT_LOG), waiting_chunks = chunks_awaited(a, SFS_FULL, false);
	uint32_t ready = missing(a->plan.full, a->leased_chunks), low = a->plan.full / 4;
	uint32_t lesser = a->spare_target < a->plan.small ? a->spare_target : a->plan.small;
	struct wanted want = {0};

	if (ready < SPARE_CHUNKS)
		ready = SPARE_CHUNKS;
	if (low < SPARE_CHUNKS)
		low = SPARE_CHUNKS;
	/* A log that waits for space to be replayed gets it first. */
	if (client_count(a, C_DYING) > 0)
		ready = lesser = 0;
	if (low > ready)
		low = ready;
	want.logs = missing(waiting_logs + a->spare_target, a->nspare_logs - reuse_kept(a));
	want.log_urgent = waiting_logs > 0;
	want.chunks = missing(ready + waiting_chunks, a->nfree_chunks);
	want.chunks_now = missing(low + waiting_chunks, a->nfree_chunks);
	for (unsigned i = 0; i < SFS_LESSER_SIZES; i++) {
		const uint32_t waiting = chunks_awaited(a, i, false);

		/* Few programs need the next size. */
		want.lesser[i] =
			missing((i == SFS_TINY || lesser < SPARE_CHUNKS ? lesser : SPARE_CHUNKS) + waiting, a->lesser[i].n);
		want.lesser_now += waiting;
		want.lesser_over[i] = chunks_awaited(a, i, true);
	}
	worker_want(a, &want);
}
