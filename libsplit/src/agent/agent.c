/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's start, loop and end. */
#include "agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "agent/internal.h"
#include "control/blocked.h"

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

/* ---- start ---- */

/* As many descriptors as we may have, and as many places for clients as that allows. */
static void raise_limit(struct agent *a)
{
	struct rlimit rl;
	uint64_t places;

	a->places = CLIENTS_MAX;
	if (getrlimit(RLIMIT_NOFILE, &rl) < 0)
		return;
	if (rl.rlim_cur < rl.rlim_max) {
		const rlim_t before = rl.rlim_cur;

		rl.rlim_cur = rl.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &rl) < 0)
			rl.rlim_cur = before;
	}
	places = rl.rlim_cur > OTHER_FDS ? (rl.rlim_cur - OTHER_FDS) / CLIENT_FDS : 1;
	if (places < a->places)
		a->places = (uint32_t)places;
}

/* Does the kernel let us open files by handle on this file system? */
static bool handles_work(const struct sfs_root *r)
{
	union {
		struct file_handle h;
		char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} u;
	int mount, fd;

	u.h.handle_bytes = MAX_HANDLE_SZ;
	if (name_to_handle_at(r->lock, "", &u.h, &mount, AT_EMPTY_PATH) < 0)
		return false;
	fd = open_by_handle_at(r->fd, &u.h, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	close(fd);
	return true;
}

/* Is it a whole one of a lesser size, and not one too many? Then it is ready. */
static bool keep_lesser(struct agent *a, uint32_t id)
{
	for (unsigned i = 0; a->plan.small && i < SFS_LESSER_SIZES; i++) {
		struct spares *s = &a->lesser[i];

		if (s->n < LESSER_MAX && sfs_chunk_whole(&a->root, id, sfs_lesser_bytes(i))) {
			s->id[s->n++] = id;
			return true;
		}
	}
	return false;
}

/* Staging files that no lease names and that are whole are ready to be leased; others are removed. */
static int load_pool(struct agent *a, struct sfs_why *why)
{
	struct sfs_numbers chunks, logs, leases;
	uint32_t max_chunk = 0, max_log = 0;
	int err = sfs_chunk_list(&a->root, &chunks, true, why);

	if (err)
		return err;
	max_chunk = chunks.max;
	a->free_chunks = calloc(chunks.n + 1, sizeof(*a->free_chunks));
	a->free_chunks_room = a->free_chunks ? chunks.n + 1 : 0;
	for (uint32_t i = 0; i < chunks.n; i++) {
		bool leased = false;

		for (struct client *c = a->clients; c; c = c->next) {
			for (uint32_t k = 0; k < c->lease.head.nchunks && k < SFS_LEASE_CHUNKS; k++) {
				leased |= c->lease.head.chunks[k] == chunks.v[i];
				if (c->lease.head.chunks[k] > max_chunk)
					max_chunk = c->lease.head.chunks[k];
			}
		}
		if (leased)
			continue;
		if (a->free_chunks_room && sfs_chunk_whole(&a->root, chunks.v[i], a->config->chunk_bytes))
			a->free_chunks[a->nfree_chunks++] = chunks.v[i];
		else if (!keep_lesser(a, chunks.v[i]))
			sfs_chunk_remove(&a->root, chunks.v[i]);
	}
	sfs_numbers_free(&chunks);
	err = sfs_log_list(&a->root, &logs, &leases, why);
	if (err)
		return err;
	max_log = logs.max > leases.max ? logs.max : leases.max;
	/* Spare logs of the agent before us. */
	for (uint32_t i = 0; i < logs.n; i++)
		if (!sfs_numbers_has(&leases, logs.v[i]))
			sfs_log_remove(&a->root, logs.v[i]);
	sfs_numbers_free(&logs);
	sfs_numbers_free(&leases);
	if (max_log == UINT32_MAX || max_chunk == UINT32_MAX)
		return sfs_fail(why, -EOVERFLOW, "the numbers of logs or staging files of %s are used up", a->root.path);
	a->worker.next_log = max_log + 1;
	a->worker.next_chunk = max_chunk + 1;
	return 0;
}

static int watch_signals(struct agent *a)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGIO, SIG_IGN); /* somebody opens a file while we look who has it open (watch.c) */
	a->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (a->signal_fd < 0)
		return -errno;
	a->signal_src = (struct source){SRC_SIGNAL, NULL};
	return agent_watch(a, a->signal_fd, EPOLLIN, &a->signal_src);
}

static void notice(void *ctx, const char *text)
{
	agent_log(ctx, "%s", text);
}

/* What the volume is on, and what that means for those who write to it. */
static int look_at_memory(struct agent *a, struct sfs_why *why)
{
	struct sfs_machine machine;
	int err = sfs_machine_here(&machine, why);

	if (err)
		return err;
	a->memory = sfs_memory_of_root(&machine, &a->root);
	if (a->root.dax && !sfs_memory_durable(a->memory))
		agent_log(a,
			  "the volume is on memory that is '%s': what was stored may be lost with the power ('splitfs memory' "
			  "says more)",
			  sfs_memory_word(a->memory));
	return 0;
}

static int start(struct agent *a, struct sfs_why *why)
{
	const struct sfs_agent_config *cf = a->config;
	const struct sfs_recover_how how = {.durable = true, .notice = notice, .notice_ctx = a};
	struct sfs_recovery sum = {0};
	struct statfs sf;
	uint32_t living = 0;
	int err;

	raise_limit(a);
	tenants_start(a);
	a->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (a->epoll < 0)
		return sfs_fail(why, -errno, "epoll: %s", strerror(errno));
	err = watch_signals(a); /* before the first thread */
	if (err)
		return sfs_fail(why, err, "signalfd: %s", strerror(-err));
	err = listener_start(a);
	if (err)
		return sfs_fail(why, err, "watch for programs without the library: %s", strerror(-err));
	err = sfs_root_open(&a->root, cf->root, true, why);
	if (!err)
		err = sfs_root_lock(&a->root, "agent", why);
	if (err)
		return err;
	err = enforce_start(a);
	if (err)
		return sfs_fail(why, err, "look at programs without the library: %s", strerror(-err));
	err = look_at_memory(a, why);
	if (err)
		return err;
	if (a->root.dax_unsynced)
		agent_log(a,
			  "the device is mapped directly but refuses MAP_SYNC: the volume is served as an emulated one, what "
			  "was not fsynced does not survive a power loss in any mode");
	if (fstatfs(a->root.fd, &sf) < 0)
		return sfs_fail(why, -errno, "statfs %s: %s", a->root.path, strerror(errno));
	a->fs_type = (unsigned long)sf.f_type;
	a->provider = RELINK_COPY;
	err = relink_probe(a->root.ctl);
	if (err < 0)
		return sfs_fail(why, err, "try relinking in %s: %s", a->root.path, strerror(-err));
	a->provider = (enum relink_provider)err;
	err = sfs_recover_all(&a->root, &how, &sum, &living, why);
	if (err)
		return err;
	err = sfs_totals_read(&a->root, &a->worker.totals);
	/* Numbers of logs begin anew. */
	if (!err && a->worker.totals.settled_log) {
		a->worker.totals.settled_log = 0;
		err = sfs_totals_write(&a->root, &a->worker.totals);
	}
	if (err)
		return sfs_fail(why, err, "read the totals of %s: %s", a->root.path, strerror(-err));
	a->by_handle = handles_work(&a->root);
	a->worker.root = &a->root;
	a->worker.chunk_bytes = cf->chunk_bytes;
	a->spare_target = SPARE_LOGS;
	a->worker.log_slots = (uint32_t)(cf->log_bytes / sizeof(struct sfs_record));
	err = fill_start(&a->worker.fill, cf->fill_lock, cf->fill_percent, why);
	if (err)
		return err;
	err = worker_start(a);
	if (err)
		return sfs_fail(why, err, "start a thread: %s", strerror(-err));
	a->worker_src = (struct source){SRC_WORKER, NULL};
	err = agent_watch(a, a->worker.done_fd, EPOLLIN, &a->worker_src);
	if (err)
		return sfs_fail(why, err, "epoll: %s", strerror(-err));
	err = owners_start(a, why);
	if (!err)
		err = client_load_away(a, why);
	if (!err)
		owners_settle(a);
	if (!err)
		err = load_pool(a, why);
	if (!err)
		err = agent_listen(a, why);
	if (!err)
		err = sfs_root_lock_note(&a->root, "agent", relink_provider_name(a->provider), cf->agents_dir);
	if (err)
		return sfs_fail(why, err, "start the agent of %s: %s", a->root.path, strerror(-err));
	/* What the agent before us said of this is void. */
	versions_start(a);
	err = sfs_blocked_write(&a->root, &(struct sfs_blocked_list){0});
	if (err)
		return sfs_fail(why, err, "write the list of waiting processes: %s", strerror(-err));
	request_refill(a);
	return 0;
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
	case SRC_POLICIES:
		enforce_reload(a);
		break;
	default:
		client_event(a, src->client, src->kind, ev->events);
	}
}

static void timeouts(struct agent *a)
{
	const uint64_t now = agent_now();

	if (a->accept_again && now >= a->accept_again && a->listen_fd >= 0) {
		a->accept_again = 0;
		agent_rewatch(a, a->listen_fd, EPOLLIN, &a->listen_src);
	}
	if (a->grace_until && (now >= a->grace_until || !client_count(a, C_AWAY))) {
		a->grace_until = 0;
		/* Without a process to watch, not coming back is all we can see. */
		for (struct client *c = a->clients; c; c = c->next)
			if (c->state == C_AWAY && c->pidfd < 0)
				c->deadline = now;
		deleg_retry_all(a);
	}
	client_timeouts(a, now);
	outsider_timeouts(a, now);
	overdue_check(a, now);
	if (a->claimed) {
		a->claimed = false;
		deleg_retry_all(a);
	}
	deleg_turns_over(a);
	look_settle(a);
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
	if (a->claimed)
		return CLAIM_MS;
	if (a->nheld)
		return HELD_MS;
	return a->stopping || a->grace_until || a->accept_again || a->nstrangers || client_count(a, C_DYING) ||
			       !TAILQ_EMPTY(&a->waiting) || a->outsiders.nopening || a->overdue_listed || a->looks
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
	for (uint32_t i = 0; i < a->nspare_logs; i++) {
		sfs_log_remove(&a->root, a->spare_logs[i].id);
		close(a->spare_logs[i].fd);
	}
	client_free_all(a);
	owners_stop(a);
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
			      .questions = {-1, -1},
			      .lock = PTHREAD_MUTEX_INITIALIZER},
		.enforcer = {
			.questions = {-1, -1}, .stop_fd = -1, .watch_fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER, .now.fd = -1}};
	uint64_t most;
	int err;

	TAILQ_INIT(&a.waiting);
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
	err = start(&a, why);
	if (!err && write(config->ready_fd, "ready\n", 6) != 6)
		err = sfs_fail(why, -errno, "say that the agent is ready: %s", strerror(errno));
	if (!err)
		err = loop(&a, why);
	stop(&a);
	return err;
}
