/* SPDX-License-Identifier: Apache-2.0 */
#include "crash/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/crc32c.h"
#include "crash/record.h"
#include "harness.h"
#include "layout.h"
#include "proto.h"
#include "relink/relink.h"
#include "volume/fsprobe.h"
#include "volume/store.h"

#define LOG_ID	 1u
#define INODES	 16
#define FIRST_ID 10u

uint8_t agent_boot;

static struct {
	struct sfs_root root;
	struct sfs_leasefile lease;
	uint32_t next_chunk, given;
	struct {
		uint64_t ino;
		uint32_t gen;
		int64_t index;
	} inode[INODES];
	struct sfs_msg reply;
	int fds[2], nfds;
	bool pending;
} agent;

static const uint8_t uuid[16] = "crash explorer!";

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

static void path_or_die(int err, const char *what)
{
	if (err < 0)
		FAIL("make %s: %s", what, strerror(-err));
}

void agent_open_root(struct sfs_root *r)
{
	memset(r, 0, sizeof(*r));
	strcpy(r->path, "/v");
	memcpy(r->uuid, uuid, sizeof(uuid));
	r->fd = kern_open(AT_FDCWD, "/v", O_RDONLY | O_DIRECTORY, 0);
	r->ctl = kern_open(r->fd, SFS_CONTROL_DIR, O_RDONLY | O_DIRECTORY, 0);
	r->log = kern_open(r->ctl, "log", O_RDONLY | O_DIRECTORY, 0);
	r->pool = kern_open(r->ctl, "pool", O_RDONLY | O_DIRECTORY, 0);
	r->lock = -1;
	r->dev = KERN_DEV;
	r->dax = kern.dax;
	r->dedicated = true;
	CHECK(r->log >= 0 && r->pool >= 0);
}

void agent_make_volume(void)
{
	static struct sfs_volume_header h;
	struct sfs_why why;
	int fd;

	path_or_die(kern_mkdir(AT_FDCWD, "/v/" SFS_CONTROL_DIR, 0700), "the control directory");
	path_or_die(kern_mkdir(AT_FDCWD, "/v/" SFS_CONTROL_DIR "/log", 0700), "log");
	path_or_die(kern_mkdir(AT_FDCWD, "/v/" SFS_CONTROL_DIR "/pool", 0700), "pool");
	h = (struct sfs_volume_header){.magic = SFS_VOLUME_MAGIC, .format = SFS_FORMAT};
	memcpy(h.uuid, uuid, sizeof(uuid));
	h.crc = crc32c(0, &h, sizeof(h));
	fd = kern_open(AT_FDCWD, "/v/" SFS_CONTROL_DIR "/volume", O_RDWR | O_CREAT, 0600);
	CHECK(fd >= 0 && kern_pwrite(kern_fd_ino(fd), &h, sizeof(h), 0) == sizeof(h));
	kern_call(SYS_close, fd, 0, 0, 0, 0, 0, NULL);
	agent_boot = 1;
	agent_open_root(&agent.root);
	for (uint32_t i = 0; i < AGENT_CHUNKS; i++)
		if (sfs_chunk_create(&agent.root, FIRST_ID + i, AGENT_CHUNK_BYTES, &why))
			FAIL("%s", why.text);
	fd = sfs_log_create(&agent.root, LOG_ID, AGENT_SLOTS, &why);
	if (fd < 0)
		FAIL("%s", why.text);
}

void agent_start(void)
{
	memset(&agent, 0, sizeof(agent));
	agent_open_root(&agent.root);
	agent.next_chunk = FIRST_ID;
	agent.lease.fd = -1;
}

void agent_stop(void)
{
	if (agent.lease.fd >= 0)
		sfs_lease_close(&agent.lease);
	agent.lease.fd = -1;
}

static void hello(struct sfs_msg *m)
{
	static const enum relink_provider providers[] = {RELINK_EXT4, RELINK_REFLINK, RELINK_XFS_EXCHANGE, RELINK_COPY};
	const struct sfs_lease head = {.held = 1, .mode = (uint8_t)m->a, .comm = "explored"};
	int err = sfs_lease_create(&agent.root, LOG_ID, &head, &agent.lease);

	path_or_die(err, "the lease");
	m->a = LOG_ID;
	m->b = SFS_HELLO_DEDICATED | (kern.dax ? SFS_HELLO_DAX : 0);
	m->c = AGENT_CHUNK_BYTES;
	m->d = providers[kern.fs];
	agent.fds[0] = sfs_log_open(&agent.root, LOG_ID, O_RDWR);
	agent.fds[1] = kern_fd_new(KERN_FD_EVENT, 0, O_RDWR);
	agent.nfds = 2;
}

static void chunk(struct sfs_msg *m)
{
	struct sfs_why why;

	if (agent.given >= AGENT_CHUNKS + 2) {
		m->status = -ENOSPC;
		return;
	}
	if (agent.given >= AGENT_CHUNKS && sfs_chunk_create(&agent.root, agent.next_chunk, AGENT_CHUNK_BYTES, &why))
		FAIL("%s", why.text);
	agent.given++;
	path_or_die(sfs_lease_add_chunk(&agent.lease, agent.next_chunk), "an entry of the lease");
	agent.fds[0] = sfs_chunk_open(&agent.root, agent.next_chunk);
	agent.nfds = 1;
	m->a = agent.next_chunk++;
	m->b = AGENT_CHUNK_BYTES;
}

/* As the agent does it: out of sight, out of the lease, gone. */
static void give_back(uint32_t id)
{
	char from[32], to[32];

	snprintf(from, sizeof(from), "%06u", id);
	snprintf(to, sizeof(to), "%06u.tmp", id);
	path_or_die(kern_rename(agent.root.pool, from, agent.root.pool, to, 0), "room for a staging file");
	path_or_die(sfs_lease_del_chunk(&agent.lease, id), "an entry of the lease");
	path_or_die(kern_unlink(agent.root.pool, to, 0), "room for a staging file");
}

static void acquire(struct sfs_msg *m, int fd)
{
	const struct kern_fd *f = kern_fd_get(fd);
	int free_at = -1;

	for (int i = 0; i < INODES; i++) {
		if (agent.inode[i].ino == m->a && agent.inode[i].gen == m->b)
			free_at = INODES;
		else if (free_at < 0 && !agent.inode[i].ino)
			free_at = i;
	}
	CHECK(free_at >= 0);
	if (free_at < INODES && f && (f->flags & O_ACCMODE) != O_RDONLY) {
		agent.inode[free_at].ino = m->a;
		agent.inode[free_at].gen = (uint32_t)m->b;
		agent.inode[free_at].index = sfs_lease_add_inode(&agent.lease, m->a, (uint32_t)m->b);
		path_or_die((int)agent.inode[free_at].index, "an entry of the lease");
	}
	m->a = SFS_DELEG_EXCLUSIVE;
}

static void release(const struct sfs_msg *m)
{
	for (int i = 0; i < INODES; i++) {
		if (agent.inode[i].ino != m->a || agent.inode[i].gen != m->b)
			continue;
		path_or_die(sfs_lease_del_inode(&agent.lease, (uint32_t)agent.inode[i].index), "an entry of the lease");
		agent.inode[i].ino = 0;
	}
}

long agent_sendmsg(int fd, const struct msghdr *h)
{
	const enum cpu before = record_cpu_now();
	struct sfs_msg m;
	int passed = -1;

	(void)fd;
	CHECK_EQ(h->msg_iov->iov_len, sizeof(m));
	memcpy(&m, h->msg_iov->iov_base, sizeof(m));
	if (h->msg_controllen)
		memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(h)), sizeof(int));
	m.status = 0;
	agent.nfds = 0;
	agent.pending = true;
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
		break;
	case SFS_MSG_RETURN:
		give_back((uint32_t)m.a);
		agent.pending = false;
		break;
	case SFS_MSG_RELEASE:
		release(&m);
		agent.pending = false;
		break;
	default:
		FAIL("message %u", m.type);
	}
	record_cpu(before);
	agent.reply = m;
	return sizeof(m);
}

bool agent_asks(int fd)
{
	(void)fd;
	return false;
}

long agent_recvmsg(int fd, struct msghdr *h)
{
	struct cmsghdr *c;

	(void)fd;
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
