/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent in a thread of the test, so that the core is tested in one process, also under sanitizers: it leases a log and staging
 * files and grants every delegation. The real agent has its own tests.
 */
#ifndef SFS_TEST_CORE_AGENT_H
#define SFS_TEST_CORE_AGENT_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "calls/calls.h"
#include "format/layout.h"
#include "format/proto.h"
#include "relink/relink.h"

struct core_agent {
	char root[256];	  /* the volume */
	char agents[300]; /* the sockets */
	uint32_t slots;
	uint64_t chunk_bytes;
	uint32_t chunks_left; /* CHUNK answers -ENOSPC when 0 */
	uint32_t next_chunk;
	int listen_fd;
	int events;		    /* our end of the event socket */
	struct sfs_versions speaks; /* 0 to 0: version 1, and knows of no ranges */
	uint32_t version, hellos;
	uint8_t *log;
	pthread_t thread;
};

/* A process has one configuration: without arguments the test runs itself once for each mode, named by argv[1]. True: it has. */
static inline bool core_agent_modes(int argc, char **argv)
{
	static const char *const modes[] = {"posix", "sync", "strict"};

	for (int m = 0; argc < 2 && m < 3; m++) {
		char cmd[600];

		snprintf(cmd, sizeof(cmd), "'%s' %s", argv[0], modes[m]);
		CHECK_EQ(system(cmd), 0);
	}
	return argc < 2;
}

static inline void core_agent_send(int sock, const struct sfs_msg *m, const int *fds, int nfds)
{
	struct iovec iov = {(void *)m, sizeof(*m)};
	char buf[CMSG_SPACE(2 * sizeof(int))] = {0};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};

	if (nfds) {
		h.msg_control = buf;
		h.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, (size_t)nfds * sizeof(int));
	}
	if (sendmsg(sock, &h, MSG_NOSIGNAL) != sizeof(*m))
		abort();
}

static inline int core_agent_file(struct core_agent *a, const char *kind, uint32_t n, uint64_t bytes)
{
	char path[400];
	int fd;

	snprintf(path, sizeof(path), "%s/%s-%u", a->agents, kind, n);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || posix_fallocate(fd, 0, (off_t)bytes) != 0)
		abort();
	return fd;
}

/* HELLO: which version is spoken from now on. False: none, and that is the answer. */
static inline bool core_agent_meet(struct core_agent *a, struct sfs_msg *m)
{
	a->hellos++;
	a->version = 1;
	if (a->speaks.newest > 1) {
		a->version = m->d < a->speaks.newest ? (uint32_t)m->d : a->speaks.newest;
		if (a->version < a->speaks.oldest || a->version < m->version) {
			m->status = -EPROTONOSUPPORT;
			m->a = a->speaks.oldest;
			m->b = a->speaks.newest;
			return false;
		}
	} else if (m->version != 1) {
		m->status = -EPROTONOSUPPORT;
		m->a = m->b = 0;
		return false;
	}
	m->version = (uint16_t)a->version;
	return true;
}

static inline void *core_agent_main(void *arg)
{
	struct core_agent *a = arg;
	const int sock = accept(a->listen_fd, NULL, NULL);

	for (;;) {
		struct sfs_msg m;
		struct iovec iov = {&m, sizeof(m)};
		char buf[CMSG_SPACE(sizeof(int))];
		struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = buf, .msg_controllen = sizeof(buf)};
		int fds[2];

		if (recvmsg(sock, &h, 0) != sizeof(m))
			return NULL;
		if (h.msg_controllen > 0) {
			int fd;

			memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&h)), sizeof(int));
			close(fd);
		}
		m.status = 0;
		if (m.type == SFS_MSG_HELLO && !core_agent_meet(a, &m)) {
			core_agent_send(sock, &m, NULL, 0);
			close(sock);
			return NULL;
		}
		if (m.version != a->version)
			abort();
		switch (m.type) {
		case SFS_MSG_HELLO: {
			const uint64_t bytes = SFS_LOG_RECORDS_OFFSET + (uint64_t)a->slots * sizeof(struct sfs_record);
			struct sfs_log_header *head;
			int pair[2];

			if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
				abort();
			fds[0] = core_agent_file(a, "log", 1, bytes);
			fds[1] = pair[0];
			a->events = pair[1];
			a->log = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
			head = (struct sfs_log_header *)a->log;
			head->magic = SFS_LOG_MAGIC;
			head->format = SFS_FORMAT;
			head->log_id = 1;
			head->slots = a->slots;
			head->epoch = 1;
			m.a = 1;
			m.b = SFS_HELLO_DEDICATED | (uint64_t)(SFS_FEATURE_WATCH | SFS_FEATURE_FILES) << SFS_FEATURES_SHIFT;
			m.c = a->chunk_bytes;
			m.d = RELINK_COPY;
			core_agent_send(sock, &m, fds, 2);
			close(fds[0]);
			close(fds[1]);
			break;
		}
		case SFS_MSG_CHUNK:
			if (a->chunks_left == 0) {
				m.status = -ENOSPC;
				core_agent_send(sock, &m, NULL, 0);
				break;
			}
			a->chunks_left--;
			m.a = ++a->next_chunk;
			m.b = a->chunk_bytes;
			fds[0] = core_agent_file(a, "chunk", a->next_chunk, a->chunk_bytes);
			core_agent_send(sock, &m, fds, 1);
			close(fds[0]);
			break;
		case SFS_MSG_RETURN:
			a->chunks_left++;
			break;
		case SFS_MSG_ACQUIRE:
			m.a = SFS_DELEG_EXCLUSIVE;
			core_agent_send(sock, &m, NULL, 0);
			break;
		case SFS_MSG_WATCH:
			m.a = 1;
			core_agent_send(sock, &m, NULL, 0);
			break;
		case SFS_MSG_RELEASE:
			break;
		default:
			abort();
		}
	}
}

/* A volume in a new temporary directory, its agent, and the core configured for it. */
static inline void core_agent_start(struct core_agent *a, const char *mode)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	char config[700];
	struct stat st;
	char *envp[3] = {config, "SPLITFS_VISIBILITY_MS=1000000", NULL};

	if (!a->slots)
		a->slots = 4096;
	if (!a->chunk_bytes)
		a->chunk_bytes = 2 << 20;
	if (!a->chunks_left)
		a->chunks_left = 16;
	snprintf(a->root, sizeof(a->root), "%s/splitfs-test-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (!mkdtemp(a->root) || stat(a->root, &st) < 0)
		abort();
	snprintf(a->agents, sizeof(a->agents), "%s/agents", a->root);
	mkdir(a->agents, 0700);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%.80s/%u-%u.sock", a->agents, major(st.st_dev), minor(st.st_dev));
	a->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (bind(a->listen_fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(a->listen_fd, 8) < 0 ||
	    pthread_create(&a->thread, NULL, core_agent_main, a) != 0)
		abort();
	snprintf(config, sizeof(config), "SPLITFS_CONFIG=%s:%s:%s", mode, a->root, a->agents);
	sfs_init(envp);
}

static inline void core_agent_remove(struct core_agent *a)
{
	char cmd[300];

	snprintf(cmd, sizeof(cmd), "rm -r '%s'", a->root);
	if (system(cmd) != 0)
		abort();
}

#endif
