/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's start: the volume is its own and recovered, and what the agent before it has left is known, before anybody is listened to. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "agent/internal.h"
#include "control/blocked.h"

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

int agent_begin(struct agent *a, struct sfs_why *why)
{
	const struct sfs_agent_config *cf = a->config;
	const struct sfs_recover_how how = {.durable = true, .later = true, .notice = notice, .notice_ctx = a};
	struct sfs_recovery sum = {0};
	struct statfs sf;
	uint32_t living = 0;
	int err;

	raise_limit(a);
	sfs_file_size_lift();
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
	a->provider = cf->copies ? RELINK_COPY : (enum relink_provider)err;
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
