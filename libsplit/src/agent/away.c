/* SPDX-License-Identifier: Apache-2.0 */
/* Clients of the agent before us: they have a log and a lease, and come back, or have ended. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#include "agent/internal.h"
#include "base/sys.h"

static int load_one(struct agent *a, uint32_t id, struct sfs_why *why)
{
	struct sfs_leasefile lease;
	struct client *c;
	int err = sfs_lease_load(&a->root, id, &lease, why);

	if (err)
		return err;
	c = client_new(a, C_AWAY, lease.head.pid, lease.head.uid);
	if (!c) {
		sfs_lease_close(&lease);
		return sfs_fail(why, -ENOMEM, "out of memory");
	}
	c->lease = lease;
	c->log_fd = sfs_log_open(&a->root, id, O_RDWR);
	if (c->log_fd < 0) {
		err = sfs_fail(why, c->log_fd, "open log %u of %s: %s", id, a->root.path, strerror(-c->log_fd));
		client_gone(a, c);
		return err;
	}
	c->log_id = id;
	c->log_slots = logs_slots(a, c);
	logs_count(a, c, c->log_slots, 1);
	c->start = c->lease.head.start;
	c->mode = (enum sfs_mode)c->lease.head.mode;
	memcpy(c->comm, c->lease.head.comm, sizeof(c->comm));
	owners_count_away(a, c, true);
	chunks_known(a, c);
	chunks_count(a, c, 1);
	if (c->pid > 0) {
		processes_add(a, c);
		processes_knows(&a->outsiders, c);
		c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
		if (c->pidfd >= 0)
			fcntl(c->pidfd, F_SETFD, FD_CLOEXEC);
	}
	/* The process may have ended since it was found alive, or between the two looks at it. */
	if (!sfs_lease_alive(&c->lease.head, c->log_fd) || (c->pidfd >= 0 && agent_watch(a, c->pidfd, EPOLLIN, &c->pidfd_src)))
		client_drop(a, c, NULL);
	return 0;
}

int client_load_away(struct agent *a, struct sfs_why *why)
{
	struct sfs_numbers logs, leases;
	int err = sfs_log_list(&a->root, &logs, &leases, why);

	if (err)
		return err;
	for (uint32_t i = 0; i < leases.n && !err; i++)
		err = load_one(a, leases.v[i], why);
	sfs_numbers_free(&logs);
	sfs_numbers_free(&leases);
	if (!err && client_count(a, C_AWAY))
		a->grace_until = agent_now() + RESUME_SECONDS * 1000;
	return err;
}

/*
 * Has a client of the agent before us its log still? Its process may be another program by now. What /proc says of its memory is not asked: for that one
 * may wait as long as somebody holds it. Without a process to watch, of one that is not quiet, not coming back is all we can see.
 */
bool client_still_there(const struct client *c)
{
	const bool lives = c->pidfd >= 0 || (c->lease.head.quiet && sfs_process_start(c->pid) == c->start);

	return lives && (c->lease.head.memory || !sys_may_lease(c->log_fd, F_WRLCK));
}
