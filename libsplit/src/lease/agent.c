/* SPDX-License-Identifier: Apache-2.0 */
/* The client's side of the conversation with the agent (format/proto.h). */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#include "base/sys.h"
#include "base/text.h"
#include "fds/own.h"
#include "lease/ask.h"
#include "lease/hello.h"
#include "lease/message.h"

#define RECONNECT_TRIES	   30
#define RECONNECT_PAUSE_NS 100000000l
#define PAUSE_NS	   10000000l
#define NUMBERS		   13 /* of descriptors of ours, for files and staging files and two for the process */
#define NUMBERS_EACH	   3  /* for each volume: two sockets and the log */

/* A message without a reply. Does not wait for a request that is under way. */
static int notify(struct sfs_volume *vol, const struct sfs_msg *m)
{
	int r;

	sfs_mutex_lock(&vol->agent.conn);
	r = vol->agent.request_fd >= 0 ? sfs_msg_send(vol->agent.request_fd, vol->agent.version, m, -1) : -ENOTCONN;
	sfs_mutex_unlock(&vol->agent.conn);
	return r;
}

void sfs_agent_give_back(struct sfs_pool *pool, uint32_t id)
{
	struct sfs_volume *vol = (struct sfs_volume *)((char *)pool - offsetof(struct sfs_volume, pool));
	const struct sfs_msg m = {.type = SFS_MSG_RETURN, .a = id};

	notify(vol, &m);
}

void sfs_agent_grow(struct sfs_volume *vol, uint64_t what)
{
	const struct sfs_msg m = {.type = SFS_MSG_GROW, .a = what};

	if ((what || vol->log.slots < vol->log.slots_max) && (vol->agent.features & SFS_FEATURE_GROW))
		notify(vol, &m);
}

/* Is there a volume whose agent has not answered yet? */
static bool unmet(void)
{
	for (int i = 0; i < sfs.nvolumes; i++)
		if (sfs.volumes[i].agent.state == VOL_UNKNOWN)
			return true;
	return false;
}

/*
 * Get a log and the event socket. proof_fd: any open file of the volume. Once lost, every further open tries again.
 * Returns 0 when the volume is ready, or a negative errno value.
 */
int sfs_volume_connect(struct sfs_volume *vol, int proof_fd)
{
	int r = 0;

	if (likely(load_acquire(&vol->agent.state) == VOL_READY))
		return 0;
	sfs_mutex_lock(&vol->agent.request);
	if (vol->agent.state != VOL_READY) {
		sfs_numbers_keep(NUMBERS + NUMBERS_EACH * sfs.nvolumes);
		r = sfs_hello_first(vol, proof_fd);
		vol->agent.full = r == -ENOSPC;
		if (r == 0 && !(vol->agent.features & SFS_FEATURE_QUIET) && sfs_service_start() < 0)
			r = -ENOMEM; /* without it nobody would answer revocations */
		if (r == 0) {
			store_release(&vol->agent.state, VOL_READY);
			sfs_service_wake(NULL); /* the thread has another event socket to listen to */
		} else if (r != -EAGAIN && r != SFS_NOT_OF_VOLUME)
			vol->agent.state = VOL_LOST;
		sfs.unmet = unmet();
	}
	sfs_mutex_unlock(&vol->agent.request);
	if (r < 0 && r != -EAGAIN && r != -ENOSPC && r != SFS_NOT_OF_VOLUME && vol->mode != SFS_POSIX)
		sfs_hello_complain(vol, r);
	return r;
}

void sfs_volume_await(struct sfs_volume *vol, int proof_fd)
{
	while (load_acquire(&vol->agent.state) == VOL_UNKNOWN && sfs_volume_connect(vol, proof_fd) == -EAGAIN) {
		/* Another thread may close it meanwhile: then it is a pause. */
		struct pollfd answer = {vol->agent.hello_fd, POLLIN, 0};
		const struct timespec t = {0, PAUSE_NS};

		sys_call5(SYS_ppoll, (long)&answer, 1, (long)&t, 0, 8);
		sfs_check_fork(); /* in a handler */
	}
}

/* In a child of fork: the connection and the log are the parent's. The maps are gone already (MADV_DONTFORK). */
void sfs_volume_forget(struct sfs_volume *vol)
{
	const int fds[] = {vol->agent.request_fd, vol->agent.event_fd, vol->agent.hello_fd, vol->log.fd};

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			sfs_private_close(fds[i]);
	sfs_pool_drop(&vol->pool, false);
	vol->agent.request_fd = vol->agent.event_fd = vol->agent.hello_fd = vol->pool.copies_fd = -1;
	vol->agent.wait_since = 0;
	sfs_log_none(&vol->log);
	vol->claims = NULL;
	sfs_asks_forget(vol);
	vol->agent.gone = vol->agent.peeked = false;
	vol->live = 0;
	vol->pool.region_blocks = 0;
	vol->dirty = vol->agent.away = false;
	memset(&vol->agent.request, 0, sizeof(vol->agent.request));
	memset(&vol->log.checkpoint, 0, sizeof(vol->log.checkpoint));
	memset(&vol->pool.lock, 0, sizeof(vol->pool.lock));
	memset(&vol->pool.lease, 0, sizeof(vol->pool.lease));
	memset(&vol->agent.conn, 0, sizeof(vol->agent.conn));
	vol->agent.state = VOL_UNKNOWN;
	sfs.unmet = true;
}

/*
 * The agent went away: come back with the same log and tell the new agent what this process holds, trying so many times.
 * request lock held.
 */
static int resume(struct sfs_volume *vol, int tries)
{
	int r = -ECONNREFUSED;

	sfs_mutex_lock(&vol->agent.conn);
	if (vol->agent.request_fd >= 0)
		sfs_private_close(vol->agent.request_fd);
	if (vol->agent.event_fd >= 0)
		sfs_private_close(vol->agent.event_fd);
	vol->agent.request_fd = vol->agent.event_fd = -1;
	sfs_mutex_unlock(&vol->agent.conn);
	sfs_asks_end(vol);
	sfs_held_turns_end(vol);
	while (tries-- > 0) {
		r = sfs_hello(vol, vol->log.fd, vol->log.id);
		if (r == 0 || r == -ESTALE || r == -EPROTONOSUPPORT || tries == 0)
			break;
		sys_nap(RECONNECT_PAUSE_NS);
	}
	if (r == -EPROTONOSUPPORT)
		sfs_hello_complain(vol, r);
	if (r < 0)
		return r;
	r = sfs_held_reclaim(vol);
	if (r < 0)
		return r;
	sfs_service_wake(NULL);
	return 0;
}

/*
 * The agent does not know our log any more: it took this process for dead, and has replayed and removed the log. What had been
 * recorded until then is in the files, and others may have changed them since, so our staged blocks must not follow. What was
 * written after that is gone: every call on such a file says EIO until it is closed, and standard error says it at once. Then the
 * process begins anew, with another log. Service thread, no lock held.
 */
static void volume_lost(struct sfs_volume *vol)
{
	char text[SFS_PATH_MAX + 512];
	const unsigned files = sfs_held_lost(vol);
	size_t n = 0;

	sfs_text_add(text, &n, sizeof(text), "libsplit: the agent has recovered ");
	sfs_text_add(text, &n, sizeof(text), vol->dir);
	sfs_text_add(text, &n, sizeof(text), " as if this process were dead; the last writes to ");
	sfs_text_number(text, &n, sizeof(text), files);
	sfs_text_add(text, &n, sizeof(text), " of its files may be lost, and calls on them fail until they are closed\n");
	sys_write(2, text, n);

	sfs_mutex_lock(&vol->agent.request);
	sfs_mutex_lock(&vol->pool.lock);
	sfs_pool_drop(&vol->pool, true);
	sfs_mutex_unlock(&vol->pool.lock);
	/* The old log stays mapped: a thread may be counting in it. */
	vol->agent.wait_since = 0;
	store_release(&vol->agent.state, VOL_UNKNOWN);
	sfs.unmet = true;
	sfs_private_close(vol->log.fd);
	sfs_log_none(&vol->log);
	vol->pool.copies_fd = -1;
	vol->dirty = vol->agent.away = false;
	sfs_mutex_unlock(&vol->agent.request);
}

/*
 * Connection number `lost` has ended. A request may have found that out as well and have made another: closing that one would be our
 * end to the agent, which knows this process by it.
 */
void sfs_agent_reconnect(struct sfs_volume *vol, uint32_t lost)
{
	int r;

	sfs_mutex_lock(&vol->agent.request);
	if (vol->agent.request_fd >= 0 && vol->agent.connection != lost) {
		sfs_mutex_unlock(&vol->agent.request);
		return;
	}
	r = resume(vol, 1);
	if (r == 0)
		vol->agent.away = false;
	else if (r == -ESTALE)
		vol->agent.away = true; /* nothing is staged from now on */
	sfs_mutex_unlock(&vol->agent.request);
	if (r == -ESTALE)
		volume_lost(vol);
}

/*
 * One request and its reply, across a restart of the agent. fds: see sfs_msg_recv(). *waiting becomes false when it is our turn. -EAGAIN: nobody
 * would answer what the agent asks of us from now on.
 */
static int request(struct sfs_volume *vol, struct sfs_msg *m, int fd, int *fds, int nfds, bool *waiting)
{
	const struct sfs_msg ask = *m;
	int r;

	if (unlikely(sfs_service_start() < 0))
		return -EAGAIN;
	sfs_mutex_lock(&vol->agent.request);
	if (waiting)
		store_release(waiting, false);
	for (int try = 0;; try++) {
		sfs_mutex_lock(&vol->agent.conn);
		r = vol->agent.request_fd >= 0 ? sfs_msg_send(vol->agent.request_fd, vol->agent.version, &ask, fd) : -ENOTCONN;
		sfs_mutex_unlock(&vol->agent.conn);
		if (r == 0)
			r = sfs_msg_recv(vol->agent.request_fd, vol->agent.version, m, fds, nfds);
		if (r == 0 || try == 1)
			break;
		/* Once it is away calls do without it at once, but for one look whether it is back. */
		r = resume(vol, vol->agent.away ? 1 : RECONNECT_TRIES);
		vol->agent.away = r < 0;
		if (r < 0)
			break;
	}
	sfs_mutex_unlock(&vol->agent.request);
	return r < 0 ? r : m->status;
}

/*
 * Lease a staging file: its number, length in bytes and descriptor. -ENOSPC when the pool is empty. `wanted`: bytes that are about to be
 * staged; it may have fewer.
 */
static int agent_chunk(struct sfs_volume *vol, uint64_t wanted, enum sfs_lease_for use, uint32_t *id, uint64_t *len, int *fd)
{
	struct sfs_msg m = {.type = SFS_MSG_CHUNK,
			    .a = wanted,
			    .b = use == SFS_LEASE_ANY ? 0 : wanted,
			    .c = use == SFS_LEASE_OVER ? SFS_CHUNK_OVER : 0};
	int fds[1], r = request(vol, &m, -1, fds, 1, NULL);

	if (r < 0)
		return r;
	if (fds[0] < 0) { /* another thread of the program has taken the number that there was for it */
		sfs_agent_give_back(&vol->pool, (uint32_t)m.a);
		return -ENOSPC;
	}
	*fd = fds[0];
	*id = (uint32_t)m.a;
	*len = m.b;
	return 0;
}

/*
 * Another thread's lease serves as well. -ENOSPC: the pool is empty, or this process has as many as it may.
 */
int sfs_chunk_lease(struct sfs_volume *vol, uint64_t blocks, enum sfs_lease_for use)
{
	uint64_t len = 0;
	uint32_t id = 0;
	int fd = -1, r = 0;

	sfs_mutex_lock(&vol->pool.lease);
	if (!sfs_pool_room(&vol->pool, blocks))
		r = sfs_number_kept() ? agent_chunk(vol, blocks * SFS_BLOCK, use, &id, &len, &fd) : -ENOSPC;
	if (r == 0 && fd >= 0) {
		r = sfs_pool_add(&vol->pool, id, len, fd);
		if (r < 0) {
			sfs_private_close(fd);
			sfs_agent_give_back(&vol->pool, id);
		}
	}
	sfs_mutex_unlock(&vol->pool.lease);
	return r;
}

/* The service thread may be waiting for longer than a program without the library that has the file open is to wait for what is staged now. */
static void granted(struct sfs_volume *vol, ino_t ino)
{
	if (unlikely(sfs_says_outside(vol, sfs_owners_index(ino))))
		sfs_service_wake(NULL);
}

static unsigned parent(const struct sfs_volume *vol)
{
	return sfs.parent && (vol->agent.features & SFS_FEATURE_LEFT) ? SFS_ACQ_PARENT : 0;
}

int sfs_agent_acquire(struct sfs_volume *vol, struct sfs_grant *grant, ino_t ino, uint32_t gen, int fd, unsigned flags)
{
	struct sfs_msg m = {.type = SFS_MSG_ACQUIRE, .a = ino, .b = gen, .c = flags | parent(vol)};
	int r;

	store_release(&grant->acquiring, true);
	r = request(vol, &m, fd, NULL, 0, &grant->acquiring);
	/* -EINVAL: fd is another file's by now, another thread has seen to that. */
	if (r == -EINVAL || r == -EAGAIN || (r < 0 && __atomic_load_n(&vol->agent.away, __ATOMIC_RELAXED)))
		sfs_grant_set(grant, GRANT_UNTOLD);
	else if (r < 0)
		sfs_grant_set(grant, GRANT_SHARED);
	else if (m.b == SFS_ACQ_QUEUED)
		sfs_grant_set(grant, GRANT_QUEUED);
	else if (m.a != SFS_DELEG_EXCLUSIVE)
		sfs_grant_set(grant, GRANT_SHARED);
	else
		sfs_grant_set(grant, m.b == SFS_ACQ_AT_ONCE ? GRANT_ONCE : GRANT_EXCLUSIVE);
	granted(vol, ino);
	return r == 0 && grant->state == GRANT_QUEUED ? SFS_TURN : r;
}

bool sfs_agent_try(struct sfs_volume *vol, struct sfs_grant *grant, ino_t ino, uint32_t gen, int fd)
{
	struct sfs_msg m = {.type = SFS_MSG_ACQUIRE, .a = ino, .b = gen, .c = SFS_ACQ_TRY | parent(vol)};
	const int r = request(vol, &m, fd, NULL, 0, NULL);

	if (r == 0 && m.a == SFS_DELEG_EXCLUSIVE)
		sfs_grant_set(grant, GRANT_EXCLUSIVE);
	else if (grant->state != GRANT_QUEUED) /* another thread's place in the queue stays */
		sfs_grant_set(grant, GRANT_NONE);
	granted(vol, ino);
	return grant->state == GRANT_EXCLUSIVE;
}

int sfs_agent_release(struct sfs_volume *vol, struct sfs_grant *grant, ino_t ino, uint32_t gen)
{
	const struct sfs_msg m = {.type = SFS_MSG_RELEASE, .a = ino, .b = gen};

	sfs_grant_set(grant, GRANT_NONE);
	return notify(vol, &m);
}

void sfs_agent_watch(struct sfs_volume *vol, struct sfs_grant *grant, ino_t ino, uint32_t gen, int fd)
{
	struct sfs_msg m = {.type = SFS_MSG_WATCH, .a = ino, .b = gen};

	if (vol->watches && request(vol, &m, fd, NULL, 0, NULL) == 0 && m.a == 1)
		sfs_grant_set(grant, GRANT_WATCHED);
}

int sfs_agent_reclaim(struct sfs_volume *vol, ino_t ino, uint32_t gen, int fd, bool watched)
{
	struct sfs_msg m = {.type = SFS_MSG_ACQUIRE, .a = ino, .b = gen, .c = SFS_ACQ_RECLAIM | (watched ? SFS_ACQ_WATCH : 0)};
	int r = sfs_msg_send(vol->agent.request_fd, vol->agent.version, &m, fd);

	return r == 0 ? sfs_msg_recv(vol->agent.request_fd, vol->agent.version, &m, NULL, 0) : r;
}

/*
 * Service thread: the next event, -EAGAIN when there is none. What an agent asked that is gone counts no more: the next one may have
 * recovered our log.
 */
int sfs_agent_event(struct sfs_volume *vol, struct sfs_msg *msg)
{
	struct pollfd p = {vol->agent.event_fd, POLLIN, 0};
	const struct timespec now = {0, 0};
	long r = sys_call5(SYS_ppoll, (long)&p, 1, (long)&now, 0, 8);

	if (r <= 0)
		return -EAGAIN;
	return p.revents & POLLHUP ? -ECONNRESET : sfs_msg_recv(vol->agent.event_fd, vol->agent.version, msg, NULL, 0);
}

int sfs_agent_tell(struct sfs_volume *vol, const struct sfs_msg *m)
{
	int r;

	sfs_mutex_lock(&vol->agent.conn);
	r = vol->agent.event_fd >= 0 ? sfs_msg_send(vol->agent.event_fd, vol->agent.version, m, -1) : -ENOTCONN;
	sfs_mutex_unlock(&vol->agent.conn);
	return r < 0 ? -ENOTCONN : 0;
}

int sfs_agent_answer(struct sfs_volume *vol, const struct sfs_msg *msg)
{
	return sfs_msg_send(vol->agent.event_fd, vol->agent.version, msg, -1);
}
