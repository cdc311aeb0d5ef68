/* SPDX-License-Identifier: Apache-2.0 */
/* An agent in a process of its own, and clients that are played: they speak the protocol without the library. */
#ifndef TEST_PLAYED_H
#define TEST_PLAYED_H

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "../recover/world.h"
#include "agent/agent.h"
#include "format/proto.h"
#include "relink/relink.h"

struct played_agent {
	pid_t pid;
	char dir[64];
	char sock[SFS_SOCKET_PATH];
};

struct played {
	int sock, event, log_fd;
	uint32_t log;
	uint64_t flags, chunk_bytes, provider;
};

#define PLAYED_LIBRARY 4096
static void *played_library;

/* As those of clients have it, so that the agent does not take this process for one without between two of its connections (agent/before.c). */
static inline void played_map_library(void)
{
	char dir[] = "/tmp/sfs-played.XXXXXX", path[64];
	int fd;

	if (played_library)
		return;
	CHECK(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/libsplit.so", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0700);
	CHECK(fd >= 0 && ftruncate(fd, PLAYED_LIBRARY) == 0);
	played_library = mmap(NULL, PLAYED_LIBRARY, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	CHECK(played_library != MAP_FAILED && unlink(path) == 0 && rmdir(dir) == 0 && close(fd) == 0);
}

static inline void agent_start_with(struct played_agent *a, struct world *w, const struct sfs_agent_config *base)
{
	struct sfs_agent_config c = *base;
	struct sfs_why why = {0};
	char ready[6];
	int p[2];

	played_map_library();
	if (!a->dir[0]) {
		snprintf(a->dir, sizeof(a->dir), "/tmp/sfs-agents.XXXXXX");
		CHECK(mkdtemp(a->dir));
	}
	CHECK_EQ(pipe(p), 0);
	fflush(NULL);
	a->pid = fork();
	CHECK(a->pid >= 0);
	if (a->pid == 0) {
		int err;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* Descriptors of the test are not the agent's. */
		for (int fd = 3; fd < 1024; fd++)
			if (fd != p[1])
				close(fd);
		c.root = w->dir;
		c.agents_dir = a->dir;
		c.ready_fd = p[1];
		err = sfs_agent_run(&c, &why);
		if (err)
			fprintf(stderr, "agent: %s\n", why.text);
		exit(err ? 1 : 0);
	}
	close(p[1]);
	CHECK_EQ(read(p[0], ready, 6), 6);
	CHECK_MEM(ready, "ready\n", 6);
	close(p[0]);
	CHECK_EQ(sfs_agent_socket_path(a->sock, a->dir, major(w->root.dev), minor(w->root.dev), &why), 0);
}

static inline void agent_start(struct played_agent *a, struct world *w)
{
	const struct sfs_agent_config c = {.pool_bytes = 8u << 20, .chunk_bytes = WORLD_CHUNK, .log_bytes = 64 << 10};

	agent_start_with(a, w, &c);
}

static inline void agent_stop(struct played_agent *a, int sig)
{
	int status;

	kill(a->pid, sig);
	CHECK_EQ(waitpid(a->pid, &status, 0), a->pid);
	if (sig == SIGTERM && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
		FAIL("the agent ended with status 0x%x", status);
}

static inline void agent_end(struct played_agent *a)
{
	agent_stop(a, SIGTERM);
	CHECK_EQ(rmdir(a->dir), 0);
}

static inline int played_connect(const struct played_agent *a)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	CHECK(sock >= 0);
	memcpy(addr.sun_path, a->sock, sizeof(addr.sun_path));
	if (connect(sock, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
		close(sock);
		return -errno;
	}
	return sock;
}

static inline int played_send(int sock, const void *msg, size_t n, const int *fds, int nfds)
{
	struct iovec iov = {(void *)msg, n};
	char buf[CMSG_SPACE(64 * sizeof(int))] __attribute__((aligned(8)));
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};

	if (nfds) {
		struct cmsghdr *cm;

		memset(buf, 0, sizeof(buf));
		h.msg_control = buf;
		h.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
		cm = CMSG_FIRSTHDR(&h);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
		memcpy(CMSG_DATA(cm), fds, (size_t)nfds * sizeof(int));
	}
	return sendmsg(sock, &h, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* Waits up to timeout_ms. 1 message, 0 end of connection, -EAGAIN nothing. */
static inline int played_recv(int sock, struct sfs_msg *m, int *fds, int nfds, int timeout_ms)
{
	struct iovec iov = {m, sizeof(*m)};
	char buf[CMSG_SPACE(4 * sizeof(int))] __attribute__((aligned(8)));
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = buf, .msg_controllen = sizeof(buf)};
	struct pollfd p = {sock, POLLIN, 0};
	ssize_t n;

	for (int i = 0; i < nfds; i++)
		fds[i] = -1;
	if (poll(&p, 1, timeout_ms) <= 0)
		return -EAGAIN;
	n = recvmsg(sock, &h, MSG_CMSG_CLOEXEC);
	if (n <= 0)
		return n == 0 || errno == ECONNRESET ? 0 : -errno;
	CHECK_EQ(n, sizeof(*m));
	for (struct cmsghdr *cm = CMSG_FIRSTHDR(&h); cm; cm = CMSG_NXTHDR(&h, cm)) {
		const int got = (int)((cm->cmsg_len - CMSG_LEN(0)) / sizeof(int));

		if (got > nfds)
			FAIL("%d descriptors instead of %d", got, nfds);
		for (int i = 0; i < got; i++)
			memcpy(&fds[i], CMSG_DATA(cm) + (size_t)i * sizeof(int), sizeof(int));
	}
	return 1;
}

#define PATIENCE 10000 /* ms; a reply that is due takes far less */

/* HELLO; returns the reply's status. */
static inline int played_hello_knows(struct played *c, const struct played_agent *a, enum sfs_mode mode, uint32_t resume,
				     int proof, uint64_t features)
{
	struct sfs_msg m = {.version = SFS_PROTO_OLDEST, .type = SFS_MSG_HELLO, .a = mode, .b = resume, .c = features};
	int fds[3];

	c->sock = played_connect(a);
	if (c->sock < 0)
		return c->sock;
	CHECK_EQ(played_send(c->sock, &m, sizeof(m), &proof, proof >= 0), 0);
	CHECK_EQ(played_recv(c->sock, &m, fds, 3, PATIENCE), 1);
	CHECK_EQ(m.type, SFS_MSG_HELLO);
	if (m.status < 0) {
		CHECK(m.text[0]);
		close(c->sock);
		return m.status;
	}
	CHECK(fds[0] >= 0 && fds[1] >= 0);
	if (fds[2] >= 0)
		close(fds[2]); /* the table */
	c->log_fd = fds[0];
	c->event = fds[1];
	c->log = (uint32_t)m.a;
	c->flags = m.b;
	c->chunk_bytes = m.c;
	c->provider = m.d;
	return 0;
}

static inline int played_hello(struct played *c, const struct played_agent *a, enum sfs_mode mode, uint32_t resume, int proof)
{
	return played_hello_knows(c, a, mode, resume, proof, 0);
}

/* For HELLO: a file of the volume that we may write. */
static inline int played_proof(const struct world *w)
{
	const int fd = open(w->dir, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	return fd;
}

static inline void played_close(struct played *c)
{
	close(c->sock);
	close(c->event);
	close(c->log_fd);
}

/* Lease a staging file for so many bytes: its descriptor, or the error. */
static inline int played_chunk_for(struct played *c, uint64_t wanted, uint32_t *id, uint64_t *bytes)
{
	struct sfs_msg m = {.version = SFS_PROTO_OLDEST, .type = SFS_MSG_CHUNK, .a = wanted};
	int fd;

	CHECK_EQ(played_send(c->sock, &m, sizeof(m), NULL, 0), 0);
	CHECK_EQ(played_recv(c->sock, &m, &fd, 1, PATIENCE), 1);
	CHECK_EQ(m.type, SFS_MSG_CHUNK);
	if (m.status < 0)
		return m.status;
	CHECK(fd >= 0);
	*bytes = m.b;
	*id = (uint32_t)m.a;
	return fd;
}

/* A full-size one. */
static inline int played_chunk(struct played *c, uint32_t *id)
{
	uint64_t bytes = c->chunk_bytes;
	const int fd = played_chunk_for(c, 0, id, &bytes);

	CHECK_EQ(bytes, c->chunk_bytes);
	return fd;
}

/* How many whole staging files of this size the pool has, leased ones included. */
static inline int pool_files(const struct world *w, uint64_t bytes)
{
	struct sfs_numbers l;
	struct sfs_why why = {0};
	int n = 0;

	CHECK_EQ(sfs_chunk_list(&w->root, &l, false, &why), 0);
	for (uint32_t i = 0; i < l.n; i++)
		n += sfs_chunk_whole(&w->root, l.v[i], bytes);
	sfs_numbers_free(&l);
	return n;
}

static inline void played_notify(struct played *c, uint16_t type, uint64_t x, uint64_t y)
{
	const struct sfs_msg m = {.version = SFS_PROTO_OLDEST, .type = type, .a = x, .b = y};

	CHECK_EQ(played_send(c->sock, &m, sizeof(m), NULL, 0), 0);
}

static inline void played_ask(struct played *c, const struct world_file *f, int fd, uint64_t flags)
{
	const struct sfs_msg m = {.version = SFS_PROTO_OLDEST, .type = SFS_MSG_ACQUIRE, .a = f->ino, .b = f->gen, .c = flags};

	CHECK_EQ(played_send(c->sock, &m, sizeof(m), &fd, 1), 0);
}

/* The answer to an ACQUIRE: the delegation, a negative error, or -EAGAIN when there is none within timeout_ms. */
static inline int played_answer(struct played *c, int timeout_ms)
{
	struct sfs_msg m;
	int r = played_recv(c->sock, &m, NULL, 0, timeout_ms);

	if (r == -EAGAIN)
		return r;
	CHECK_EQ(r, 1);
	CHECK_EQ(m.type, SFS_MSG_ACQUIRE);
	return m.status < 0 ? m.status : (int)m.a;
}

static inline int played_acquire(struct played *c, const struct world_file *f, uint64_t flags)
{
	played_ask(c, f, f->fd, flags);
	return played_answer(c, PATIENCE);
}

/* The REVOKE that is due; -1 when none comes within timeout_ms. */
static inline int played_revoke(struct played *c, const struct world_file *f, int timeout_ms, struct sfs_msg *m)
{
	if (played_recv(c->event, m, NULL, 0, timeout_ms) != 1)
		return -1;
	CHECK_EQ(m->type, SFS_MSG_REVOKE);
	CHECK_EQ(m->a, f->ino);
	CHECK_EQ(m->b, f->gen);
	return (int)m->c;
}

static inline void played_revoked(struct played *c, const struct sfs_msg *revoke, bool echo)
{
	struct sfs_msg m = {.version = SFS_PROTO_OLDEST,
			    .type = SFS_MSG_REVOKED,
			    .a = revoke->a,
			    .b = revoke->b,
			    .c = revoke->c,
			    .d = echo ? revoke->d : 0};

	CHECK_EQ(played_send(c->event, &m, sizeof(m), NULL, 0), 0);
}

/* Store the record of one write into the log. */
static inline void played_record(struct world *w, struct played *c, const struct world_file *f, uint32_t slot, uint32_t chunk,
				 uint64_t off, uint32_t len, uint64_t stage_off)
{
	struct world_log l = {.id = c->log, .chunk = chunk};
	struct sfs_record r;

	CHECK_EQ(pread(c->log_fd, &l.epoch, sizeof(l.epoch), offsetof(struct sfs_log_header, epoch)), sizeof(l.epoch));
	r = world_record(&l, f, off, len, stage_off, off + len);
	world_seal(w, &l, &r, slot);
	CHECK_EQ(pwrite(c->log_fd, &r, sizeof(r), SFS_LOG_RECORDS_OFFSET + (off_t)slot * 64), 64);
}

/* Wait until cond holds; time only bounds how long a broken agent may take. */
#define EVENTUALLY(cond)                                                                                                       \
	do {                                                                                                                   \
		int tries_ = 0;                                                                                                \
		while (!(cond)) {                                                                                              \
			if (++tries_ > PATIENCE / 5)                                                                           \
				FAIL("never true: %s", #cond);                                                                 \
			usleep(5000);                                                                                          \
		}                                                                                                              \
	} while (0)

static inline int agent_fds(const struct played_agent *a)
{
	char path[64];
	struct dirent *e;
	int n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)a->pid);
	d = opendir(path);
	CHECK(d);
	while ((e = readdir(d)))
		n++;
	closedir(d);
	return n;
}

/* It is to give the file up, and does. */
static inline void played_give_up(struct played *c, const struct world_file *f)
{
	struct sfs_msg m;

	CHECK_EQ(played_revoke(c, f, PATIENCE, &m), SFS_DELEG_NONE);
	played_revoked(c, &m, true);
}

/* It has the file to itself, when the agent has found out that nobody else has it. */
static inline void played_alone(struct played *c, const struct world_file *f)
{
	if (played_acquire(c, f, 0) == SFS_DELEG_EXCLUSIVE)
		return;
	played_give_up(c, f);
	CHECK_EQ(played_acquire(c, f, 0), SFS_DELEG_EXCLUSIVE);
}

#endif
