/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that speak other versions of the protocol than the agent: one of version 1 sees the bytes it always saw, one whose range meets the
 * agent's is spoken to in the newest version that both know, and any other is told why it can't be served and keeps what it has staged.
 */
#include <sys/mman.h>

#include "played.h"
#include "control/versions.h"

static struct played_agent a;
static struct world w;

/* HELLO (or PEEK) with that range; the reply is in *m. */
static int greet(uint16_t type, uint16_t oldest, uint64_t newest, int proof, struct sfs_msg *m, int fds[3])
{
	const int sock = played_connect(&a);

	CHECK(sock >= 0);
	*m = (struct sfs_msg){.version = oldest, .type = type, .a = type == SFS_MSG_HELLO ? SFS_STRICT : 0, .d = newest};
	CHECK_EQ(played_send(sock, m, sizeof(*m), &proof, 1), 0);
	CHECK_EQ(played_recv(sock, m, fds, 3, PATIENCE), 1);
	CHECK_EQ(m->type, type);
	return sock;
}

static void close_all(const int *fds, int n)
{
	for (int i = 0; i < n; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* What a library that knows of no ranges sends, byte by byte, and what it expects. */
static void version_one(const struct world_file *f)
{
	unsigned char hello[64] = {1, 0, 1, 0, 0, 0, 0, 0, SFS_STRICT}, reply[64];
	const unsigned char head[8] = {1, 0, 1, 0, 0, 0, 0, 0};
	struct sfs_msg m;
	int fds[3];

	const int sock = played_connect(&a);
	CHECK(sock >= 0);
	CHECK_EQ(played_send(sock, hello, sizeof(hello), &f->fd, 1), 0);
	CHECK_EQ(played_recv(sock, &m, fds, 3, PATIENCE), 1);
	memcpy(reply, &m, sizeof(reply));
	CHECK_MEM(reply, head, sizeof(head));
	CHECK(m.a >= 1);
	CHECK_EQ(m.b >> SFS_FEATURES_SHIFT, 0);
	CHECK(fds[0] >= 0 && fds[1] >= 0 && fds[2] < 0);
	CHECK_EQ(m.text[0], 0);
	m = (struct sfs_msg){.version = 1, .type = SFS_MSG_CHUNK};
	CHECK_EQ(played_send(sock, &m, sizeof(m), NULL, 0), 0);
	CHECK_EQ(played_recv(sock, &m, fds + 2, 1, PATIENCE), 1);
	CHECK_EQ(m.version, 1);
	CHECK_EQ(m.type, SFS_MSG_CHUNK);
	CHECK_EQ(m.status, 0);
	close_all(fds, 3);
	close(sock);
}

/* Ranges that meet in `met`: all that follows is in that version. */
static void met(const struct world_file *f, uint16_t oldest, uint64_t newest, uint16_t version)
{
	struct sfs_msg m;
	int fds[3], sock = greet(SFS_MSG_HELLO, oldest, newest, f->fd, &m, fds), event = fds[1];

	CHECK_EQ(m.status, 0);
	CHECK_EQ(m.version, version);
	close(fds[0]);
	m = (struct sfs_msg){.version = version, .type = SFS_MSG_ACQUIRE, .a = f->ino, .b = f->gen};
	CHECK_EQ(played_send(sock, &m, sizeof(m), &f->fd, 1), 0);
	CHECK_EQ(played_recv(sock, &m, fds, 1, PATIENCE), 1);
	CHECK_EQ(m.version, version);
	CHECK_EQ(m.a, SFS_DELEG_EXCLUSIVE);
	/* The event socket speaks it, too. */
	m = (struct sfs_msg){.version = version, .type = SFS_MSG_LOOK, .a = f->ino + 1, .d = 7};
	CHECK_EQ(played_send(event, &m, sizeof(m), NULL, 0), 0);
	CHECK_EQ(played_recv(event, &m, NULL, 0, PATIENCE), 1);
	CHECK_EQ(m.version, version);
	CHECK_EQ(m.type, SFS_MSG_LOOKED);
	/* A message of another version is nobody's who has said HELLO so. */
	m = (struct sfs_msg){.version = (uint16_t)(version + 1), .type = SFS_MSG_CHUNK};
	CHECK_EQ(played_send(sock, &m, sizeof(m), NULL, 0), 0);
	CHECK_EQ(played_recv(sock, &m, NULL, 0, PATIENCE), 0);
	close(event);
	close(sock);
}

static void peeks(const struct world_file *f)
{
	struct sfs_msg m;
	int fds[3];

	close(greet(SFS_MSG_PEEK, 1, 0, f->fd, &m, fds));
	CHECK(m.status == 0 && m.version == 1 && fds[0] >= 0);
	close_all(fds, 3);
	close(greet(SFS_MSG_PEEK, 2, 9, f->fd, &m, fds));
	CHECK(m.status == 0 && m.version == SFS_PROTO_NEWEST && fds[0] >= 0);
	close_all(fds, 3);
	close(greet(SFS_MSG_PEEK, SFS_PROTO_NEWEST + 1, 9, f->fd, &m, fds));
	CHECK_EQ(m.status, -EPROTONOSUPPORT);
}

/* It is answered in a version that it reads, with the agent's range, and `splitfs status` has it. */
static void unmet(const struct world_file *f, uint64_t times, uint16_t oldest, uint64_t newest)
{
	struct sfs_refused seen;
	struct sfs_msg m;
	int fds[3], sock = greet(SFS_MSG_HELLO, oldest, newest, f->fd, &m, fds);

	CHECK_EQ(m.status, -EPROTONOSUPPORT);
	CHECK_EQ(m.version, oldest);
	CHECK_EQ(m.a, SFS_PROTO_OLDEST);
	CHECK_EQ(m.b, SFS_PROTO_NEWEST);
	CHECK(m.text[0]);
	CHECK(fds[0] < 0);
	CHECK_EQ(played_recv(sock, &m, NULL, 0, PATIENCE), 0);
	close(sock);
	sfs_refused_read(&w.root, &seen);
	CHECK_EQ(seen.agent.oldest, SFS_PROTO_OLDEST);
	CHECK_EQ(seen.agent.newest, SFS_PROTO_NEWEST);
	CHECK_EQ(seen.total, times);
	CHECK_EQ(seen.pid, getpid());
	CHECK_EQ(seen.client.oldest, oldest);
	CHECK_EQ(seen.client.newest, newest ? newest : oldest);
}

/* A client that stages an append, and whose next agent does not speak its version. */
static void stages(const struct world_file *f, int from_parent, int to_parent)
{
	struct played c;
	struct sfs_msg m;
	uint32_t chunk;
	char buf[500], byte;
	int fd;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CHECK_EQ(played_hello(&c, &a, SFS_STRICT, 0, f->fd), 0);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, c.log_fd, 0) != MAP_FAILED);
	CHECK_EQ(played_acquire(&c, f, 0), SFS_DELEG_EXCLUSIVE);
	fd = played_chunk(&c, &chunk);
	CHECK(fd >= 0);
	memset(buf, 'n', sizeof(buf));
	CHECK_EQ(pwrite(fd, buf, sizeof(buf), 100), sizeof(buf));
	played_record(&w, &c, f, 0, chunk, 100, sizeof(buf), 100);
	CHECK_EQ(write(to_parent, "s", 1), 1);
	CHECK_EQ(read(from_parent, &byte, 1), 1); /* the agent is another one */
	close(c.sock);
	close(c.event);
	c.sock = played_connect(&a);
	CHECK(c.sock >= 0);
	m = (struct sfs_msg){.version = 8, .type = SFS_MSG_HELLO, .a = SFS_STRICT, .b = c.log, .d = 9};
	CHECK_EQ(played_send(c.sock, &m, sizeof(m), &c.log_fd, 1), 0);
	CHECK_EQ(played_recv(c.sock, &m, NULL, 0, PATIENCE), 1);
	CHECK_EQ(m.status, -EPROTONOSUPPORT);
	CHECK_EQ(write(to_parent, "r", 1), 1);
	pause();
}

/* What it has recorded is its own until it ends, and then it is in the file. */
static void replaced(const struct world_file *f)
{
	int down[2], up[2], status;
	struct played thief;
	char byte;
	pid_t pid;

	CHECK_EQ(pipe(down), 0);
	CHECK_EQ(pipe(up), 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		stages(f, down[0], up[1]);
	CHECK_EQ(read(up[0], &byte, 1), 1);
	agent_stop(&a, SIGKILL);
	agent_start(&a, &w);
	CHECK_EQ(write(down[1], "g", 1), 1);
	CHECK_EQ(read(up[0], &byte, 1), 1);
	CHECK_EQ(played_hello(&thief, &a, SFS_STRICT, 0, f->fd), 0);
	played_ask(&thief, f, f->fd, 0);
	CHECK_EQ(played_answer(&thief, 4000), -EAGAIN); /* longer than clients are expected to take to come back */
	world_expect(f, 100, 0, 100, 'o');
	kill(pid, SIGKILL);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(played_answer(&thief, PATIENCE), SFS_DELEG_EXCLUSIVE);
	world_expect(f, 600, 100, 600, 'n');
	played_close(&thief);
}

int main(void)
{
	struct world_file f;

	world_new(&w);
	f = world_file(&w, "f", 'o', 100);
	agent_start(&a, &w);
	version_one(&f);
	met(&f, 1, 1, 1);
	met(&f, 1, 2, 2);
	met(&f, 1, 3, 2);
	met(&f, 2, 0, 2);
	met(&f, 2, UINT32_MAX, 2);
	peeks(&f); /* one is refused */
	unmet(&f, 2, 3, 0);
	unmet(&f, 3, 3, 4);
	unmet(&f, 4, UINT16_MAX, 0);
	replaced(&f);
	agent_end(&a);
	world_end(&w);
	return 0;
}
