/* SPDX-License-Identifier: Apache-2.0 */
/* New connections: who it is, and whether there is a place. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/internal.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

static int peer_pidfd(int sock, int pid)
{
	socklen_t len = sizeof(int);
	int fd;

	/* Exact where the kernel has it (6.5): no other process can have got the number meanwhile. */
	if (getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &fd, &len) == 0)
		return fd;
	if (pid <= 0)
		return -1;
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd >= 0)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
	return fd;
}

static bool dead(int pidfd)
{
	struct pollfd p = {pidfd, POLLIN, 0};

	return poll(&p, 1, 0) > 0;
}

/* Is there a place for one more of this tenant? Whoever has connected and says nothing makes room, where there is none. */
static bool admit(struct agent *a, const struct client *c)
{
	struct tenant *t = c->tenant;
	struct client *silent;

	/* It is counted already. */
	if (!tenant_may(t->clients - 1, a->nclients - 1, a->places, 1)) {
		tenant_refused(a, t, t->clients - 1, a->nclients - 1, "clients");
		return false;
	}
	if (tenant_may(t->strangers - 1, a->nstrangers - 1, STRANGERS_MAX, 1))
		return true;
	silent = tenant_overdrawn(t) ? NULL : tenant_silent(a, t);
	if (!silent || silent == c) {
		tenant_refused(a, t, t->strangers - 1, a->nstrangers - 1, "connections without HELLO");
		return false;
	}
	client_drop(a, silent, NULL);
	return true;
}

static void accept_one(struct agent *a, int sock)
{
	const uint64_t since = tenant_clock();
	struct ucred cred = {0};
	socklen_t len = sizeof(cred);
	struct client *c;

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0) {
		wire_close(&sock);
		return;
	}
	c = client_new(a, C_STRANGER, cred.pid, cred.uid);
	if (!c) {
		wire_close(&sock);
		return;
	}
	c->sock = sock;
	c->deadline = agent_now() + HELLO_SECONDS * 1000;
	if (!admit(a, c)) {
		client_drop(a, c, NULL);
		tenant_charge(c->tenant, since);
		return;
	}
	c->start = sfs_process_start_comm(c->pid, c->comm, &c->image);
	processes_add(a, c);
	/* It lives: what was read of its process before was its own. */
	c->pidfd = peer_pidfd(sock, c->pid);
	if (c->pidfd >= 0 && (dead(c->pidfd) || agent_watch(a, c->pidfd, EPOLLIN, &c->pidfd_src))) {
		client_drop(a, c, NULL);
	} else if (agent_watch(a, sock, EPOLLIN | EPOLLRDHUP, &c->request_src)) {
		client_drop(a, c, "out of memory");
	} else if (!tenant_overdrawn(c->tenant) && !client_silent(c)) {
		client_request(a, c); /* most have said HELLO by now: many that start at once are no strangers for long */
	}
	tenant_charge(c->tenant, since);
}

void client_accept(struct agent *a)
{
	for (int i = 0; i < ACCEPTS_MAX; i++) {
		const int sock = accept4(a->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (sock >= 0) {
			accept_one(a, sock);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			agent_log(a, "can't accept a connection: %s", strerror(errno));
			agent_rewatch(a, a->listen_fd, 0, &a->listen_src);
			a->accept_again = agent_now() + 100;
		}
		return;
	}
}
