/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes: the configuration, and the client's side of the conversation with the agent (proto.h). */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>

#include "base/crc32c.h"
#include "base/sys.h"
#include "core/map.h"
#include "core/message.h"
#include "core/reopen.h"
#include "core/text.h"
#include "pm/pm.h"

#define TMPFS_TYPE	   0x01021994
#define RECONNECT_TRIES	   30
#define RECONNECT_PAUSE_NS 100000000l
#define HELLO_PAUSE_MS	   10

static bool take(char *dst, size_t size, const char *from, const char *to)
{
	size_t n = (size_t)(to - from);

	if (n == 0 || n >= size)
		return false;
	memcpy(dst, from, n);
	dst[n] = 0;
	return true;
}

static bool word(const char *from, const char *to, const char *w)
{
	return strlen(w) == (size_t)(to - from) && memcmp(from, w, strlen(w)) == 0;
}

static const char *find(const char *s, char c)
{
	while (*s && *s != c && *s != ';')
		s++;
	return s;
}

static struct sfs_log_stats no_counters; /* before there is a log */

/* SPLITFS_CONFIG: MODE:DIR:AGENTSDIR joined by ';'. An entry that does not parse is a volume that stays the kernel's. */
void sfs_volumes_parse(const char *config)
{
	const char *s = config;

	while (*s && sfs.nvolumes < SFS_VOLUMES_MAX) {
		struct sfs_volume *vol = &sfs.volumes[sfs.nvolumes];
		const char *a = find(s, ':'), *b = *a == ':' ? find(a + 1, ':') : a, *end = find(s, ';');
		bool ok = *a == ':' && *b == ':' && take(vol->dir, sizeof(vol->dir), a + 1, b) &&
			  take(vol->agents, sizeof(vol->agents), b + 1, end);

		if (ok && word(s, a, "posix"))
			vol->mode = SFS_POSIX;
		else if (ok && word(s, a, "sync"))
			vol->mode = SFS_SYNC;
		else if (ok && word(s, a, "strict"))
			vol->mode = SFS_STRICT;
		else
			ok = false;
		if (ok) {
			vol->request_fd = vol->event_fd = vol->log_fd = -1;
			vol->counters = &no_counters;
			sfs.nvolumes++;
		}
		s = *end ? end + 1 : end;
	}
}

/* The volume on device dev. A mount path that can't be looked at yet is looked at again next time. */
struct sfs_volume *sfs_volume_of(dev_t dev)
{
	for (int i = 0; i < sfs.nvolumes; i++) {
		struct sfs_volume *vol = &sfs.volumes[i];
		struct stat st;

		if (vol->dev == 0 && sys_fstatat(AT_FDCWD, vol->dir, &st, 0) == 0)
			vol->dev = st.st_dev;
		if (vol->dev != 0 && vol->dev == dev)
			return vol;
	}
	return NULL;
}

/* ---- connecting ---- */

static int log_map(struct sfs_volume *vol, int fd)
{
	struct stat st;
	struct sfs_log_header *h;
	int r = sys_fstat(fd, &st);
	void *p;

	if (r < 0)
		return r;
	if (st.st_size < (off_t)(SFS_LOG_RECORDS_OFFSET + (SFS_LOG_HEADROOM + 1) * sizeof(struct sfs_record)))
		return -EPROTO;
	p = sfs_map_file(vol, (uint64_t)st.st_size, PROT_READ | PROT_WRITE, fd);
	if (sys_is_err(p))
		return (int)(long)p;
	h = p;
	if (h->magic != SFS_LOG_MAGIC || h->format != SFS_FORMAT || h->slots <= SFS_LOG_HEADROOM ||
	    SFS_LOG_RECORDS_OFFSET + (uint64_t)h->slots * sizeof(struct sfs_record) > (uint64_t)st.st_size) {
		sys_munmap(p, (size_t)st.st_size);
		return -EPROTO;
	}
	/* A child of fork gets a log of its own. */
	sys_madvise(p, (size_t)st.st_size, MADV_DONTFORK);
	/* Read ahead would fill pages with zeros that nobody stores to, and make recovery look at them. */
	sys_madvise(p, (size_t)st.st_size, MADV_RANDOM);
	vol->log = p;
	vol->log_len = (size_t)st.st_size;
	vol->log_fd = fd;
	vol->records = (struct sfs_record *)(vol->log + SFS_LOG_RECORDS_OFFSET);
	vol->counters = (struct sfs_log_stats *)(vol->log + SFS_BLOCK);
	vol->seed = h->seed;
	vol->slots = h->slots;
	vol->epoch = h->epoch;
	store_release(&vol->tail, 0);
	return 0;
}

/* HELLO on a fresh connection; resume is the log this process already holds, or 0. */
static int hello(struct sfs_volume *vol, int proof_fd, uint32_t resume)
{
	struct sfs_msg m = {.version = SFS_PROTO_VERSION, .type = SFS_MSG_HELLO, .a = vol->mode, .b = resume};
	struct statfs sf;
	int fds[2], sock = sfs_dial(vol), r;

	if (sock < 0)
		return sock;
	r = sfs_msg_send(sock, &m, proof_fd);
	if (r == 0)
		r = sfs_msg_recv(sock, &m, fds, 2);
	if (r == 0 && m.status < 0) {
		r = m.status;
	} else if (r == 0 && (fds[0] < 0 || fds[1] < 0)) {
		r = -EPROTO;
	}
	if (r < 0) {
		sfs_private_close(sock);
		return r;
	}
	vol->dax = m.b & SFS_HELLO_DAX;
	if (resume) {
		sfs_private_close(fds[0]);
	} else {
		r = log_map(vol, fds[0]);
		if (r < 0) {
			sfs_private_close(fds[0]);
			sfs_private_close(fds[1]);
			sfs_private_close(sock);
			return r;
		}
		vol->log_id = (uint32_t)m.a;
	}
	vol->dedicated = m.b & SFS_HELLO_DEDICATED;
	vol->tmpfs = sys_call2(SYS_fstatfs, proof_fd, (long)&sf) == 0 && sf.f_type == TMPFS_TYPE;
	vol->provider = m.d ? (enum relink_provider)m.d : RELINK_COPY;
	if (vol->provider == RELINK_EXT4)
		sfs_reopen_enable();
	sfs_mutex_lock(&vol->conn);
	vol->event_fd = fds[1];
	vol->request_fd = sock;
	store_release(&vol->connection, vol->connection + 1);
	sfs_mutex_unlock(&vol->conn);
	return 0;
}

/* One line on standard error, once per volume: the mode's guarantee is at stake and the user has to know. */
static void complain(struct sfs_volume *vol, int err)
{
	char text[SFS_PATH_MAX * 2 + 256];
	size_t n = 0;

	if (vol->complained)
		return;
	vol->complained = true;
	sfs_text_add(text, &n, sizeof(text), "libsplit: no agent for ");
	sfs_text_add(text, &n, sizeof(text), vol->dir);
	sfs_text_add(text, &n, sizeof(text), " in ");
	sfs_text_add(text, &n, sizeof(text), vol->agents);
	sfs_text_add(text, &n, sizeof(text), " (error ");
	sfs_text_number(text, &n, sizeof(text), (unsigned)-err);
	sfs_text_add(text, &n, sizeof(text),
		     vol->mode == SFS_STRICT
			     ? "): opening files for writing fails, because strict mode can't be kept without it\n"
			     : "): files are served by the kernel, more slowly\n");
	sys_write(2, text, n);
}

/* Is it an error of an agent that is not there? */
static bool away(int err)
{
	return err == -ECONNREFUSED || err == -ENOENT || err == -ECONNRESET || err == -EPIPE;
}

/* HELLO to an agent that may be about to come back: not known yet whether there is one. request lock held. */
static int first_hello(struct sfs_volume *vol, int proof_fd)
{
	const bool waits = vol->state == VOL_UNKNOWN && vol->mode != SFS_POSIX;
	int r = hello(vol, proof_fd, 0);

	for (uint32_t ms = 0; waits && ms < sfs.agent_wait_ms && away(r); ms += HELLO_PAUSE_MS) {
		sys_nap(HELLO_PAUSE_MS * 1000000l);
		r = hello(vol, proof_fd, 0);
	}
	return r;
}

/*
 * Get a log and the event socket. proof_fd: any open file of the volume. Once lost, every further open tries again.
 * Returns 0 when the volume is ready, or a negative errno value.
 */
int sfs_volume_connect(struct sfs_volume *vol, int proof_fd)
{
	int r = 0;

	if (likely(load_acquire(&vol->state) == VOL_READY))
		return 0;
	sfs_mutex_lock(&vol->request);
	if (vol->state != VOL_READY) {
		pm_init(); /* here and not at start: asking the processor costs microseconds in a virtual machine */
		r = first_hello(vol, proof_fd);
		if (r == 0)
			r = sfs_service_start(); /* without it nobody would answer revocations */
		if (r == 0) {
			store_release(&vol->state, VOL_READY);
			sfs_service_wake(NULL); /* the thread has another event socket to listen to */
		} else
			vol->state = VOL_LOST;
	}
	sfs_mutex_unlock(&vol->request);
	if (r < 0 && vol->mode != SFS_POSIX)
		complain(vol, r);
	return r;
}

/* In a child of fork: the connection and the log are the parent's. The maps are gone already (MADV_DONTFORK). */
void sfs_volume_forget(struct sfs_volume *vol)
{
	const int fds[3] = {vol->request_fd, vol->event_fd, vol->log_fd};

	for (int i = 0; i < 3; i++)
		if (fds[i] >= 0)
			sfs_private_close(fds[i]);
	for (uint32_t i = 0; i < vol->nchunks; i++)
		if (vol->chunks[i].fd >= 0)
			sfs_private_close(vol->chunks[i].fd);
	vol->nchunks = vol->current = 0;
	vol->request_fd = vol->event_fd = vol->log_fd = -1;
	vol->counters = &no_counters;
	vol->log = NULL;
	vol->records = NULL;
	vol->live = 0;
	vol->region_blocks = 0;
	vol->dirty = vol->away = false;
	memset(&vol->request, 0, sizeof(vol->request));
	memset(&vol->checkpoint, 0, sizeof(vol->checkpoint));
	memset(&vol->stage, 0, sizeof(vol->stage));
	memset(&vol->lease, 0, sizeof(vol->lease));
	memset(&vol->conn, 0, sizeof(vol->conn));
	vol->state = VOL_UNKNOWN;
}

/*
 * The agent went away: come back with the same log and tell the new agent what this process holds, trying so many times.
 * request lock held.
 */
static int resume(struct sfs_volume *vol, int tries)
{
	int r = -ECONNREFUSED;

	sfs_mutex_lock(&vol->conn);
	if (vol->request_fd >= 0)
		sfs_private_close(vol->request_fd);
	if (vol->event_fd >= 0)
		sfs_private_close(vol->event_fd);
	vol->request_fd = vol->event_fd = -1;
	sfs_mutex_unlock(&vol->conn);
	while (tries-- > 0) {
		r = hello(vol, vol->log_fd, vol->log_id);
		if (r == 0 || r == -ESTALE || tries == 0)
			break;
		sys_nap(RECONNECT_PAUSE_NS);
	}
	if (r < 0)
		return r;
	sfs_mutex_lock(&sfs.lock); /* nobody waits for a request with it */
	for (int i = 0; r == 0 && i < SFS_HASH; i++) {
		for (struct sfs_inode *in = sfs.hash[i]; in; in = in->next) {
			struct sfs_msg m = {.version = SFS_PROTO_VERSION,
					    .type = SFS_MSG_ACQUIRE,
					    .a = in->ino,
					    .b = in->gen,
					    .c = SFS_ACQ_RECLAIM};

			if (in->vol != vol || !in->ready || in->deleg == SFS_DELEG_NONE)
				continue;
			r = sfs_msg_send(vol->request_fd, &m, in->fd);
			if (r == 0)
				r = sfs_msg_recv(vol->request_fd, &m, NULL, 0);
			if (r < 0)
				break;
		}
	}
	sfs_mutex_unlock(&sfs.lock);
	if (r < 0)
		return r;
	sfs_service_wake(NULL);
	return 0;
}

/* What of an inode was staged is the agent's affair now: see sfs_volume_lost(). *arg counts those that had something. */
static int lose_one(struct sfs_inode *in, void *arg)
{
	sfs_rwlock_wrlock(&in->lock);
	if (in->live || in->staged > 0) {
		in->lost = true;
		++*(unsigned *)arg;
	}
	if (in->staged > 0)
		memset(&in->table[in->first], 0, (in->last - in->first) * sizeof(sfs_block));
	in->staged = in->first = in->last = 0;
	sfs_log_drop_slots(in);
	sfs_stage_retired(in);
	in->deleg = SFS_DELEG_NONE;
	in->ready = false;
	sfs_rwlock_wrunlock(&in->lock);
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
	unsigned files = 0;
	size_t n = 0;

	sfs_inodes_each(vol, lose_one, &files);
	sfs_text_add(text, &n, sizeof(text), "libsplit: the agent has recovered ");
	sfs_text_add(text, &n, sizeof(text), vol->dir);
	sfs_text_add(text, &n, sizeof(text), " as if this process were dead; the last writes to ");
	sfs_text_number(text, &n, sizeof(text), files);
	sfs_text_add(text, &n, sizeof(text), " of its files may be lost, and calls on them fail until they are closed\n");
	sys_write(2, text, n);

	sfs_mutex_lock(&vol->request);
	sfs_mutex_lock(&vol->stage);
	for (uint32_t i = 0; i < vol->nchunks; i++) {
		if (vol->chunks[i].fd < 0)
			continue;
		sys_munmap(vol->chunks[i].base, (uint64_t)vol->chunks[i].blocks * SFS_BLOCK);
		sfs_private_close(vol->chunks[i].fd);
		vol->chunks[i] = (struct sfs_chunk){.fd = -1};
	}
	vol->nchunks = vol->current = 0;
	sfs_mutex_unlock(&vol->stage);
	/* The old log stays mapped: a thread may be counting in it. */
	vol->counters = &no_counters;
	store_release(&vol->state, VOL_UNKNOWN);
	sfs_private_close(vol->log_fd);
	vol->log_fd = -1;
	vol->dirty = vol->away = false;
	sfs_mutex_unlock(&vol->request);
}

/*
 * Connection number `lost` has ended. A request may have found that out as well and have made another: closing that one would be our
 * end to the agent, which knows this process by it.
 */
void sfs_agent_reconnect(struct sfs_volume *vol, uint32_t lost)
{
	int r;

	sfs_mutex_lock(&vol->request);
	if (vol->request_fd >= 0 && vol->connection != lost) {
		sfs_mutex_unlock(&vol->request);
		return;
	}
	r = resume(vol, 1);
	if (r == 0)
		vol->away = false;
	else if (r == -ESTALE)
		vol->away = true; /* nothing is staged from now on */
	sfs_mutex_unlock(&vol->request);
	if (r == -ESTALE)
		volume_lost(vol);
}

/* One request and its reply, across a restart of the agent. fds: see sfs_msg_recv(). *waiting becomes false
 * when it is our turn. */
static int request(struct sfs_volume *vol, struct sfs_msg *m, int fd, int *fds, int nfds, bool *waiting)
{
	const struct sfs_msg ask = *m;
	int r;

	sfs_mutex_lock(&vol->request);
	if (waiting)
		store_release(waiting, false);
	for (int try = 0;; try++) {
		sfs_mutex_lock(&vol->conn);
		r = vol->request_fd >= 0 ? sfs_msg_send(vol->request_fd, &ask, fd) : -ENOTCONN;
		sfs_mutex_unlock(&vol->conn);
		if (r == 0)
			r = sfs_msg_recv(vol->request_fd, m, fds, nfds);
		if (r == 0 || try == 1)
			break;
		/* Once it is away calls do without it at once, but for one look whether it is back. */
		r = resume(vol, vol->away ? 1 : RECONNECT_TRIES);
		vol->away = r < 0;
		if (r < 0)
			break;
	}
	sfs_mutex_unlock(&vol->request);
	return r < 0 ? r : m->status;
}

/* A message without a reply. Does not wait for a request that is under way. */
static int notify(struct sfs_volume *vol, const struct sfs_msg *m)
{
	int r;

	sfs_mutex_lock(&vol->conn);
	r = vol->request_fd >= 0 ? sfs_msg_send(vol->request_fd, m, -1) : -ENOTCONN;
	sfs_mutex_unlock(&vol->conn);
	return r;
}

/*
 * Lease a staging file: its number, length in bytes and descriptor. -ENOSPC when the pool is empty. `wanted`: bytes that are about to be
 * staged; it may have fewer.
 */
int sfs_agent_chunk(struct sfs_volume *vol, uint64_t wanted, uint32_t *id, uint64_t *len, int *fd)
{
	struct sfs_msg m = {.version = SFS_PROTO_VERSION, .type = SFS_MSG_CHUNK, .a = wanted};
	int fds[1], r = request(vol, &m, -1, fds, 1, NULL);

	if (r < 0)
		return r;
	if (fds[0] < 0)
		return -EPROTO;
	*fd = fds[0];
	*id = (uint32_t)m.a;
	*len = m.b;
	return 0;
}

int sfs_agent_return(struct sfs_volume *vol, uint32_t id)
{
	const struct sfs_msg m = {.version = SFS_PROTO_VERSION, .type = SFS_MSG_RETURN, .a = id};

	return notify(vol, &m);
}

/* Sets in->deleg. Without an agent the inode is SHARED: the kernel serves it. */
int sfs_agent_acquire(struct sfs_volume *vol, struct sfs_inode *in, int fd, unsigned flags)
{
	struct sfs_msg m = {.version = SFS_PROTO_VERSION, .type = SFS_MSG_ACQUIRE, .a = in->ino, .b = in->gen, .c = flags};
	int r;

	store_release(&in->acquiring, true);
	r = request(vol, &m, fd, NULL, 0, &in->acquiring);
	in->deleg = r == 0 && m.a == SFS_DELEG_EXCLUSIVE ? SFS_DELEG_EXCLUSIVE : SFS_DELEG_SHARED;
	in->at_once = in->deleg == SFS_DELEG_EXCLUSIVE && m.b == SFS_ACQ_AT_ONCE;
	in->untold = r < 0 && __atomic_load_n(&vol->away, __ATOMIC_RELAXED);
	return r;
}

int sfs_agent_release(struct sfs_volume *vol, struct sfs_inode *in)
{
	const struct sfs_msg m = {.version = SFS_PROTO_VERSION, .type = SFS_MSG_RELEASE, .a = in->ino, .b = in->gen};

	in->deleg = SFS_DELEG_NONE;
	return notify(vol, &m);
}

/*
 * Service thread: the next event, -EAGAIN when there is none. What an agent asked that is gone counts no more: the next one may have
 * recovered our log.
 */
int sfs_agent_event(struct sfs_volume *vol, struct sfs_msg *msg)
{
	struct pollfd p = {vol->event_fd, POLLIN, 0};
	const struct timespec now = {0, 0};
	long r = sys_call5(SYS_ppoll, (long)&p, 1, (long)&now, 0, 8);

	if (r <= 0)
		return -EAGAIN;
	return p.revents & POLLHUP ? -ECONNRESET : sfs_msg_recv(vol->event_fd, msg, NULL, 0);
}

int sfs_agent_answer(struct sfs_volume *vol, const struct sfs_msg *msg)
{
	return sfs_msg_send(vol->event_fd, msg, -1);
}
