/* SPDX-License-Identifier: Apache-2.0 */
#include "lease/hello.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/vfs.h>

#include "base/code.h"
#include "base/sys.h"
#include "base/text.h"
#include "fds/own.h"
#include "lease/ask.h"
#include "lease/message.h"
#include "pm/pm.h"

#define TMPFS_TYPE 0x01021994
#define ANSWER_MS  20  /* an agent that is there answers sooner */
#define AGAIN_MS   500 /* one that has not answered in time before */
#define LISTENS_TIMES                                                                                                          \
	15 /* one whose socket is there is about to come, or has much to do: it is waited for so many times as long */
#define HELLO_FDS 3

/* ---- versions ---- */

/*
 * What the answer to HELLO or PEEK says of versions. 0, or a negative errno value, or SFS_NOT_OF_VOLUME: the agent's EACCES, as the kernel's says
 * that there is no agent for us.
 */
static int meet(struct sfs_volume *vol, const struct sfs_msg *m)
{
	if (m->status == -EPROTONOSUPPORT) {
		vol->agent.theirs = sfs_versions_of(m->a ? m->a : m->version, m->b);
		__atomic_store_n(&vol->agent.unmet_until, sys_now_s() + 1, __ATOMIC_RELAXED);
		return -EPROTONOSUPPORT;
	}
	if (m->version < SFS_PROTO_OLDEST || m->version > SFS_PROTO_NEWEST)
		return -EPROTO;
	__atomic_store_n(&vol->agent.unmet_until, 0, __ATOMIC_RELAXED);
	return m->status == -EACCES ? SFS_NOT_OF_VOLUME : m->status;
}

static void close_all(int sock, const int fds[HELLO_FDS])
{
	for (int i = 0; i < HELLO_FDS; i++)
		if (fds[i] >= 0)
			sfs_private_close(fds[i]);
	sfs_private_close(sock);
}

static int64_t now_ms(void)
{
	return sys_now_ns() / 1000000;
}

/* Is there an answer within that time? */
static bool answered(int sock, long ms)
{
	struct pollfd p = {sock, POLLIN, 0};
	const struct timespec t = {ms / 1000, ms % 1000 * 1000000};

	return sys_call5(SYS_ppoll, (long)&p, 1, (long)&t, 0, 8) == 1;
}

/* Is it an error of an agent that is not there? */
static bool away(int err)
{
	return err == -ECONNREFUSED || err == -ENOENT || err == -ECONNRESET || err == -EPIPE;
}

/* One message on a fresh connection, which is returned, or a negative errno value. */
static int say(struct sfs_volume *vol, struct sfs_msg *m, int proof_fd)
{
	int sock, r;

	if (unlikely(sys_now_s() < __atomic_load_n(&vol->agent.unmet_until, __ATOMIC_RELAXED)))
		return -EPROTONOSUPPORT;
	m->d = SFS_PROTO_NEWEST;
	sock = sfs_dial(vol);
	if (sock < 0)
		return sock;
	r = sfs_msg_send(sock, SFS_PROTO_OLDEST, m, proof_fd);
	if (r < 0) {
		sfs_private_close(sock);
		return r;
	}
	return sock;
}

/* Its answer. 0, or a negative errno value, without any descriptor then, nor the connection. */
static int hear(struct sfs_volume *vol, int sock, struct sfs_msg *m, int fds[HELLO_FDS])
{
	int r = sfs_msg_recv(sock, 0, m, fds, HELLO_FDS);

	if (r == 0)
		r = meet(vol, m);
	if (r < 0)
		close_all(sock, fds);
	return r;
}

int sfs_hello_peek(struct sfs_volume *vol, int proof_fd)
{
	struct sfs_msg m = {.type = SFS_MSG_PEEK};
	int fds[HELLO_FDS] = {-1, -1, -1}, sock = say(vol, &m, proof_fd), r;

	if (sock < 0)
		return away(sock) ? -EAGAIN : sock;
	for (const int64_t since = now_ms(); !answered(sock, ANSWER_MS);) {
		/* It is stopped, or recovers: who has waited for it once does not wait so long again. */
		if (vol->agent.silent || now_ms() - since >= (int64_t)sfs.agent_wait_ms) {
			sfs_private_close(sock);
			vol->agent.silent = true;
			return -ETIMEDOUT;
		}
	}
	vol->agent.silent = false;
	r = hear(vol, sock, &m, fds);
	if (r < 0)
		return r == -ECONNRESET ? -EAGAIN : r;
	r = fds[0];
	fds[0] = -1;
	close_all(sock, fds);
	return r;
}

/* ---- HELLO ---- */

/* The log that came with the answer. */
static int take_log(struct sfs_volume *vol, const struct sfs_msg *m, int fd)
{
	const int r = sfs_log_map(&vol->log, fd, vol->dax, vol->mode);
	struct sfs_log_header *h;
	uint32_t rights;

	if (r < 0)
		return r;
	h = (struct sfs_log_header *)vol->log.map;
	vol->log.id = (uint32_t)m->a;
	rights = sfs_protect_open();
	h->protection = sfs.protection;
	sfs_protect_close(rights);
	store_release(&vol->claims, &h->claims);
	return 0;
}

/* What the answer says of the volume. */
static void learn(struct sfs_volume *vol, const struct sfs_msg *m, int proof_fd)
{
	struct statfs sf;

	vol->dedicated = m->b & SFS_HELLO_DEDICATED;
	vol->watches = m->b >> SFS_FEATURES_SHIFT & SFS_FEATURE_WATCH;
	vol->pool.dax = vol->dax;
	vol->pool.chunk_bytes = m->c;
	vol->pool.give_back = sfs_agent_give_back;
	vol->pool.tmpfs = sys_call2(SYS_fstatfs, proof_fd, (long)&sf) == 0 && sf.f_type == TMPFS_TYPE;
	vol->provider = m->d ? (enum relink_provider)m->d : RELINK_COPY;
	vol->pool.copies_fd = vol->provider == RELINK_COPY ? vol->log.fd : -1;
}

static int say_hello(struct sfs_volume *vol, int proof_fd, uint32_t resume)
{
	struct sfs_msg m = {.type = SFS_MSG_HELLO,
			    .a = vol->mode,
			    .b = resume,
			    .c = SFS_FEATURES,
			    .code = {(uintptr_t)__ehdr_start, (uintptr_t)etext}};

	return say(vol, &m, proof_fd);
}

/* The answer to HELLO: from now on the agent knows us. */
static int hear_hello(struct sfs_volume *vol, int sock, int proof_fd, uint32_t resume)
{
	int fds[HELLO_FDS] = {-1, -1, -1}, r;
	uint64_t features;
	struct sfs_msg m;

	r = hear(vol, sock, &m, fds);
	if (r < 0)
		return r;
	features = m.b >> SFS_FEATURES_SHIFT;
	vol->dax = m.b & SFS_HELLO_DAX;
	if (vol->dax)
		pm_join(m.b & SFS_HELLO_CACHES);
	if (fds[0] < 0 || fds[1] < 0)
		r = -EPROTO;
	else if (!resume)
		r = take_log(vol, &m, fds[0]);
	if (r < 0) {
		close_all(sock, fds);
		return r;
	}
	if (resume)
		sfs_private_close(fds[0]);
	sfs_owners_map(vol, fds[2]);
	if (!(features & SFS_FEATURE_OWNERS))
		store_release(&vol->owners, (const uint64_t *)NULL); /* an agent that keeps none: every file is asked for */
	if ((features & SFS_FEATURE_OWNERS) && !vol->owners)
		features &= ~(uint64_t)SFS_FEATURE_OUTSIDE; /* it can't be mapped */
	learn(vol, &m, proof_fd);
	sfs_mutex_lock(&vol->agent.conn);
	vol->agent.event_fd = fds[1];
	vol->agent.request_fd = sock;
	vol->agent.version = m.version;
	vol->agent.features = features;
	store_release(&vol->agent.connection, vol->agent.connection + 1);
	sfs_mutex_unlock(&vol->agent.conn);
	return 0;
}

int sfs_hello(struct sfs_volume *vol, int proof_fd, uint32_t resume)
{
	const int sock = say_hello(vol, proof_fd, resume);

	return sock < 0 ? sock : hear_hello(vol, sock, proof_fd, resume);
}

/* ---- the first one ---- */

/* May an agent still come? listens: its socket does. */
static bool waits(struct sfs_volume *vol, bool listens)
{
	if (vol->agent.state != VOL_UNKNOWN)
		return false;
	if (!vol->agent.wait_since)
		vol->agent.wait_since = now_ms();
	return now_ms() - vol->agent.wait_since < (int64_t)sfs.agent_wait_ms * (listens ? LISTENS_TIMES : 1);
}

int sfs_hello_first(struct sfs_volume *vol, int proof_fd)
{
	int sock = vol->agent.hello_fd, r;

	if (sock < 0)
		sock = say_hello(vol, proof_fd, 0);
	vol->agent.hello_fd = -1;
	if (sock == -EAGAIN)
		return waits(vol, true) ? sock : -ETIMEDOUT;
	if (sock < 0)
		return away(sock) && vol->mode != SFS_POSIX && waits(vol, false) ? -EAGAIN : sock;
	if (answered(sock, vol->agent.state == VOL_UNKNOWN ? ANSWER_MS : AGAIN_MS)) {
		r = hear_hello(vol, sock, proof_fd, 0);
		/* It waited in the socket of an agent that has ended. */
		return away(r) && waits(vol, true) ? -EAGAIN : r;
	}
	if (waits(vol, true)) {
		vol->agent.hello_fd = sock;
		return -EAGAIN;
	}
	sfs_private_close(sock);
	return -ETIMEDOUT;
}

/* ---- what the user is told ---- */

#define TEXT_SIZE (SFS_PATH_MAX * 2 + 512)

static void add(char *text, size_t *n, const char *s)
{
	sfs_text_add(text, n, TEXT_SIZE, s);
}

static void add_versions(char *text, size_t *n, struct sfs_versions v)
{
	sfs_text_number(text, n, TEXT_SIZE, v.oldest);
	if (v.newest != v.oldest) {
		add(text, n, " to ");
		sfs_text_number(text, n, TEXT_SIZE, v.newest);
	}
}

static void say_versions(const struct sfs_volume *vol, char *text, size_t *n)
{
	add(text, n, "libsplit: the agent for ");
	add(text, n, vol->dir);
	add(text, n, " speaks version ");
	add_versions(text, n, vol->agent.theirs);
	add(text, n, " of the protocol and this library ");
	add_versions(text, n, sfs_versions_of(SFS_PROTO_OLDEST, SFS_PROTO_NEWEST));
	add(text, n,
	    vol->agent.theirs.oldest > SFS_PROTO_NEWEST ? ", which is too old: start the pod anew"
							: ", which is too new: update SplitFS on the node");
}

/*
 * An error that SELinux makes: the socket's name or connecting denied, or (-EPROTO) a descriptor that should have come with
 * the answer. Only the node's log of denials knows; the program's own label, user:role:type:level, says that there is one.
 */
static void say_label(int err, char *text, size_t *n)
{
	char label[256];
	unsigned colons = 0;
	ssize_t got = 0;
	int fd;

	if (err != -EACCES && err != -EPROTO)
		return;
	fd = sys_openat(AT_FDCWD, "/proc/self/attr/current", O_RDONLY | O_CLOEXEC, 0);
	if (fd >= 0) {
		got = sys_read(fd, label, sizeof(label) - 1);
		sys_close(fd);
	}
	while (got > 0 && (label[got - 1] == '\n' || label[got - 1] == '\0'))
		got--;
	label[got > 0 ? got : 0] = '\0';
	for (const char *c = label; *c; c++) {
		if (*c == ' ') /* AppArmor's: a profile and its mode */
			return;
		colons += *c == ':';
	}
	if (colons < 2)
		return;
	add(text, n, ": SELinux may deny it to ");
	add(text, n, label);
	add(text, n, ", which the node's audit log says");
}

void sfs_hello_complain(struct sfs_volume *vol, int err)
{
	char text[TEXT_SIZE];
	size_t n = 0;

	if (vol->agent.complained)
		return;
	vol->agent.complained = true;
	if (err == -EPROTONOSUPPORT) {
		say_versions(vol, text, &n);
	} else {
		add(text, &n, "libsplit: no agent for ");
		add(text, &n, vol->dir);
		add(text, &n, " in ");
		add(text, &n, vol->agents);
		add(text, &n, " (error ");
		sfs_text_number(text, &n, sizeof(text), (unsigned)-err);
		say_label(err, text, &n);
		add(text, &n, ")");
	}
	add(text, &n,
	    vol->mode == SFS_STRICT ? ": opening files for writing fails, because strict mode can't be kept without it\n"
				    : ": files are served by the kernel, more slowly\n");
	sys_write(2, text, n);
}
