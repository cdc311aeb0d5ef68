/* SPDX-License-Identifier: Apache-2.0 */
#include "crash/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "crash/record.h"
#include "crash/workload.h"
#include "harness.h"
#include "format/layout.h"
#include "format/proto.h"
#include "recover/recover.h"
#include "relink/relink.h"
#include "control/fsprobe.h"
#include "control/store.h"

#define INODES 16

uint8_t agent_boot;

static struct {
	struct sfs_root root;
	uint32_t next_chunk, leased;
	struct client {
		bool dead;
		struct sfs_leasefile lease;
		struct {
			uint64_t ino;
			uint32_t gen;
			int64_t index; /* -1: not in the lease */
			enum sfs_delegation deleg;
		} inode[INODES];
	} client[PROCESSES];
	struct sfs_msg reply;
	int fds[2], nfds;
	bool pending;
	struct sfs_msg question; /* to a client's service thread */
	bool asking, answered;
	bool alone;
} agent;

int __wrap_sfs_boot_id(uint8_t id[16]);
int __wrap_sfs_boot_id(uint8_t id[16])
{
	memset(id, 'b', 16);
	id[0] = mutant.kind == MUT_BOOT_IGNORED ? 1 : agent_boot;
	return 0;
}

enum sfs_dax __wrap_sfs_probe_dax_file(int fd);
enum sfs_dax __wrap_sfs_probe_dax_file(int fd)
{
	(void)fd;
	return kern.dax ? SFS_DAX_SYNC : SFS_DAX_NONE;
}

uint64_t __wrap_sfs_process_start(int pid);
uint64_t __wrap_sfs_process_start(int pid)
{
	(void)pid;
	return 0; /* the client is dead when anybody asks */
}

void agent_start(bool alone)
{
	memset(&agent, 0, sizeof(agent));
	agent.alone = alone;
	agent_open_root(&agent.root);
	agent.next_chunk = AGENT_FIRST_CHUNK;
	for (int i = 0; i < PROCESSES; i++)
		agent.client[i].lease.fd = -1;
}

uint32_t agent_chunks_end(void)
{
	return agent.next_chunk;
}

void agent_stop(void)
{
	for (int i = 0; i < PROCESSES; i++) {
		if (agent.client[i].lease.fd >= 0)
			sfs_lease_close(&agent.client[i].lease);
		agent.client[i].lease.fd = -1;
	}
}

/* Whoever's call it is. */
static struct client *client(void)
{
	return &agent.client[process_now()];
}

static void hello(struct sfs_msg *m)
{
	static const enum relink_provider providers[] = {RELINK_EXT4, RELINK_REFLINK, RELINK_XFS_EXCHANGE, RELINK_COPY};
	const struct sfs_lease head = {.held = 1, .mode = (uint8_t)m->a, .comm = "explored"};
	const uint32_t id = 1 + (uint32_t)process_now();
	struct sfs_why why;

	if (id > 1) {
		const int fd = sfs_log_create(&agent.root, id, AGENT_SLOTS, 0, &why);

		if (fd < 0)
			FAIL("%s", why.text);
		kern_call(SYS_close, fd, 0, 0, 0, 0, 0, NULL);
	}
	agent_path_or_die(sfs_lease_create(&agent.root, id, &head, &client()->lease), "the lease");
	m->a = id;
	m->b = SFS_HELLO_DEDICATED | (kern.dax ? SFS_HELLO_DAX : 0) |
	       (uint64_t)(SFS_FEATURE_WATCH | SFS_FEATURE_FILES | (agent.alone ? SFS_FEATURE_OUTSIDE : 0))
		       << SFS_FEATURES_SHIFT;
	m->c = AGENT_CHUNK_BYTES;
	m->d = providers[kern.fs];
	agent.fds[0] = sfs_log_open(&agent.root, id, O_RDWR);
	agent.fds[1] = kern_fd_new(KERN_FD_EVENT, 0, O_RDWR);
	agent.nfds = 2;
}

static void chunk(struct sfs_msg *m)
{
	struct sfs_why why;

	if (agent.leased >= AGENT_CHUNKS + 2) {
		m->status = -ENOSPC;
		return;
	}
	/* The first are there before it begins. */
	if (agent.next_chunk >= AGENT_FIRST_CHUNK + AGENT_CHUNKS &&
	    sfs_chunk_create(&agent.root, agent.next_chunk, AGENT_CHUNK_BYTES, &why))
		FAIL("%s", why.text);
	agent.leased++;
	agent_path_or_die(sfs_lease_add_chunk(&client()->lease, agent.next_chunk), "an entry of the lease");
	agent.fds[0] = sfs_chunk_open(&agent.root, agent.next_chunk);
	agent.nfds = 1;
	m->a = agent.next_chunk++;
	m->b = AGENT_CHUNK_BYTES;
}

/* As the agent does it: out of sight, out of the lease, gone. */
static void give_back(uint32_t id)
{
	char hidden[32];

	sfs_number_name(hidden, id, ".tmp");
	agent_path_or_die(sfs_chunk_hide(&agent.root, id), "room for a staging file");
	agent_path_or_die(sfs_lease_del_chunk(&client()->lease, id), "an entry of the lease");
	agent_path_or_die(kern_unlink(agent.root.pool, hidden, 0), "room for a staging file");
	agent.leased--;
}

static int find_inode(const struct client *c, uint64_t ino, uint32_t gen)
{
	for (int i = 0; i < INODES; i++)
		if (c->inode[i].ino == ino && c->inode[i].gen == gen)
			return i;
	return -1;
}

/* REVOKE: the service thread of the process that has the file gives up what it may not keep. */
static void ask_back(int process, int i, enum sfs_delegation to)
{
	struct client *c = &agent.client[process];

	agent.question = (struct sfs_msg){.version = SFS_PROTO_OLDEST,
					  .type = SFS_MSG_REVOKE,
					  .a = c->inode[i].ino,
					  .b = c->inode[i].gen,
					  .c = to,
					  .d = 1};
	agent.asking = true;
	agent.answered = false;
	for (int tries = 0; !agent.answered; tries++) {
		CHECK(tries < 4);
		process_serve(process, false);
	}
	/* It may have closed the file instead. */
	if (c->inode[i].ino)
		c->inode[i].deleg = to;
}

void agent_process_died(int which)
{
	agent.client[which].dead = true;
}

/* Its log goes into the files, and away. */
static void recover_dead(int which)
{
	const struct sfs_recover_how how = {.durable = kern.dax};
	struct client *c = &agent.client[which];
	const uint32_t id = 1 + (uint32_t)which;
	struct sfs_recovery sum = {0};
	struct sfs_why why;

	if (sfs_recover_log(&agent.root, id, &c->lease, &how, &sum, &why) ||
	    sfs_recover_discard(&agent.root, id, &c->lease, &why))
		FAIL("%s", why.text);
	sfs_lease_close(&c->lease);
	memset(c, 0, sizeof(*c));
	c->lease.fd = -1;
}

/* The rules of src/agent/granting.c, where nobody has to wait for anybody but the one who has it. */
static void acquire(struct sfs_msg *m, int fd)
{
	const struct kern_fd *f = kern_fd_get(fd);
	const uint32_t gen = (uint32_t)m->b;
	const int me = process_now(), other = 1 - me;
	const bool alone = m->c & SFS_ACQ_EXCLUSIVE;
	int i = find_inode(client(), m->a, gen), theirs = find_inode(&agent.client[other], m->a, gen);

	if (theirs >= 0 && agent.client[other].dead) {
		recover_dead(other);
		theirs = -1;
	}
	if (theirs >= 0 && agent.client[other].inode[theirs].deleg > (alone ? SFS_DELEG_NONE : SFS_DELEG_SHARED)) {
		ask_back(other, theirs, alone ? SFS_DELEG_NONE : SFS_DELEG_SHARED);
		theirs = find_inode(&agent.client[other], m->a, gen);
	}
	if (i < 0) {
		i = find_inode(client(), 0, 0);
		CHECK(i >= 0);
		client()->inode[i].ino = m->a;
		client()->inode[i].gen = gen;
		client()->inode[i].index = -1;
	}
	if (client()->inode[i].index < 0 && f && (f->flags & O_ACCMODE) != O_RDONLY) {
		client()->inode[i].index = sfs_lease_add_inode(&client()->lease, m->a, gen);
		agent_path_or_die((int)client()->inode[i].index, "an entry of the lease");
	}
	client()->inode[i].deleg = alone || theirs < 0 ? SFS_DELEG_EXCLUSIVE : SFS_DELEG_SHARED;
	m->a = client()->inode[i].deleg;
}

static void release(const struct sfs_msg *m)
{
	const int i = find_inode(client(), m->a, (uint32_t)m->b);

	if (i < 0)
		return;
	if (client()->inode[i].index >= 0)
		agent_path_or_die(sfs_lease_del_inode(&client()->lease, (uint32_t)client()->inode[i].index),
				  "an entry of the lease");
	memset(&client()->inode[i], 0, sizeof(client()->inode[i]));
}

long agent_sendmsg(int fd, const struct msghdr *h)
{
	const enum cpu before = record_cpu_now();
	struct sfs_msg m;
	int passed = -1;

	(void)fd;
	CHECK_EQ(h->msg_iov->iov_len, sizeof(m));
	memcpy(&m, h->msg_iov->iov_base, sizeof(m));
	if (m.type == SFS_MSG_REVOKED) {
		CHECK(m.a == agent.question.a && m.b == agent.question.b);
		agent.answered = true;
		return sizeof(m);
	}
	if (h->msg_controllen)
		memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(h)), sizeof(int));
	m.status = 0;
	record_cpu(CPU_AGENT);
	switch (m.type) {
	case SFS_MSG_HELLO:
		hello(&m);
		break;
	case SFS_MSG_CHUNK:
		chunk(&m);
		break;
	case SFS_MSG_ACQUIRE:
		acquire(&m, passed);
		agent.nfds = 0;
		break;
	case SFS_MSG_WATCH:
		m.a = 1; /* there is nobody without the library */
		agent.nfds = 0;
		break;
	case SFS_MSG_RETURN:
		give_back((uint32_t)m.a);
		break;
	case SFS_MSG_RELEASE:
		release(&m);
		break;
	default:
		FAIL("message %u", m.type);
	}
	record_cpu(before);
	/* A question may have been answered meanwhile, with requests of its own; this is the last word. */
	agent.pending = m.type != SFS_MSG_RETURN && m.type != SFS_MSG_RELEASE;
	if (m.status < 0)
		agent.nfds = 0;
	agent.reply = m;
	return sizeof(m);
}

bool agent_asks(int fd)
{
	return agent.asking && kern_fd_get(fd) && kern_fd_get(fd)->kind == KERN_FD_EVENT;
}

bool agent_readable(int fd)
{
	return agent_asks(fd) || (agent.pending && kern_fd_get(fd) && kern_fd_get(fd)->kind == KERN_FD_SOCKET);
}

long agent_recvmsg(int fd, struct msghdr *h)
{
	struct cmsghdr *c;

	if (agent_asks(fd)) {
		agent.asking = false;
		memcpy(h->msg_iov->iov_base, &agent.question, sizeof(agent.question));
		h->msg_controllen = 0;
		return sizeof(agent.question);
	}
	if (!agent.pending)
		return -EAGAIN;
	agent.pending = false;
	memcpy(h->msg_iov->iov_base, &agent.reply, sizeof(agent.reply));
	if (!agent.nfds) {
		h->msg_controllen = 0;
		return sizeof(agent.reply);
	}
	c = CMSG_FIRSTHDR(h);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN((size_t)agent.nfds * sizeof(int));
	memcpy(CMSG_DATA(c), agent.fds, (size_t)agent.nfds * sizeof(int));
	return sizeof(agent.reply);
}
