/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's questions about who opens which file (outsider.c says what for), and the thread that reads them. It answers those about
 * opens of our own, so that the loop and the worker may open any file, and of clients, which ask for the file themselves; the others
 * go to the loop through a pipe.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent/internal.h"

#ifndef FAN_REPORT_TID
#define FAN_REPORT_TID 0x00000100
#endif

/* ---- who ---- */

static struct client **bucket(struct outsiders *o, int pid)
{
	return &o->clients[(unsigned)pid % OUTSIDER_BUCKETS];
}

void listener_add_client(struct agent *a, struct client *c)
{
	struct outsiders *o = &a->outsiders;
	struct client **p = bucket(o, c->pid);

	if (c->pid <= 0)
		return;
	pthread_mutex_lock(&o->lock);
	c->next_of_pid = *p;
	*p = c;
	pthread_mutex_unlock(&o->lock);
}

void listener_del_client(struct agent *a, struct client *c)
{
	struct outsiders *o = &a->outsiders;
	struct client **p = bucket(o, c->pid);

	pthread_mutex_lock(&o->lock);
	while (*p && *p != c)
		p = &(*p)->next_of_pid;
	if (*p)
		*p = c->next_of_pid;
	pthread_mutex_unlock(&o->lock);
}

bool listener_is_client(struct outsiders *o, int pid)
{
	bool found = false;

	pthread_mutex_lock(&o->lock);
	for (const struct client *c = pid > 0 ? *bucket(o, pid) : NULL; c && !found; c = c->next_of_pid) {
		struct pollfd alive = {c->sock, POLLRDHUP, 0};

		found = c->pid == pid && (c->sock < 0 || poll(&alive, 1, 0) == 0);
	}
	pthread_mutex_unlock(&o->lock);
	return found;
}

/* ---- the thread ---- */

void listener_answer(const struct outsiders *o, int fd)
{
	const struct fanotify_response r = {.fd = fd, .response = FAN_ALLOW};

	/* It fails when the process was killed meanwhile, or when we stop, which lets everybody go on. */
	if (write(o->opens_fd, &r, sizeof(r)) < 0)
		errno = 0;
	close(fd);
}

/* What the thread has seen of the loop. */
struct progress {
	uint32_t taken;
	uint64_t since; /* ms: questions have been waiting, and none was taken; 0: none wait */
};

/*
 * The loop does not take our questions: it stands in a call on a disk that does not answer. Nobody is to wait for that who only
 * opens a file. Returns how long to wait before the next look, ms, or -1.
 */
static int let_go_when_stuck(struct outsiders *o, struct progress *p)
{
	const uint32_t taken = __atomic_load_n(&o->taken, __ATOMIC_RELAXED);
	const uint64_t now = agent_now();
	struct question q;
	int waiting = 0;

	if (ioctl(o->questions[0], FIONREAD, &waiting) < 0 || waiting == 0) {
		p->since = 0;
		return -1;
	}
	if (p->since != 0 && taken == p->taken && now - p->since >= OUTSIDER_WAIT_MS) {
		while (read(o->questions[0], &q, sizeof(q)) == (ssize_t)sizeof(q))
			listener_answer(o, q.fd);
		p->since = 0;
		return -1;
	}
	if (p->since == 0 || taken != p->taken)
		*p = (struct progress){taken, now};
	return OUTSIDER_WAIT_MS / 4;
}

/* Has an outsider made this event? One of the agent's own, or of a client's, nobody has to be asked about. */
static bool of_outsider(struct outsiders *o, const struct fanotify_event_metadata *m, struct question *q)
{
	*q = (struct question){m->fd, m->pid, m->pid};
	/* The number of a first thread is its process's, which spares most a look into /proc. */
	if (listener_is_client(o, q->tid))
		return false;
	q->pid = (int)sfs_process_number(q->tid, "Tgid");
	return q->pid != getpid() && (q->pid == q->tid || !listener_is_client(o, q->pid));
}

static void *listen_thread(void *arg)
{
	struct outsiders *o = arg;
	struct pollfd p[2] = {{o->opens_fd, POLLIN, 0}, {o->stop_fd, POLLIN, 0}};
	_Alignas(struct fanotify_event_metadata) char buf[4096];
	struct progress loop = {0};

	while (poll(p, 2, let_go_when_stuck(o, &loop)) >= 0 || errno == EINTR) {
		const struct fanotify_event_metadata *m = (void *)buf;
		struct question q;
		ssize_t n;

		if (p[1].revents)
			return NULL;
		n = read(o->opens_fd, buf, sizeof(buf));
		for (; n > 0 && FAN_EVENT_OK(m, n); m = FAN_EVENT_NEXT(m, n)) {
			if (m->fd >= 0 &&
			    (!of_outsider(o, m, &q) || write(o->questions[1], &q, sizeof(q)) != (ssize_t)sizeof(q)))
				listener_answer(o, m->fd);
		}
	}
	return NULL;
}

/* ---- start and end ---- */

int listener_start(struct agent *a)
{
	struct outsiders *o = &a->outsiders;
	int err;

	o->opens_fd = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC | FAN_NONBLOCK | FAN_UNLIMITED_QUEUE | FAN_UNLIMITED_MARKS |
					    FAN_REPORT_TID,
				    O_RDONLY | O_CLOEXEC | O_LARGEFILE);
	/* By process, not by thread: the last thread is gone when its files are closed. */
	if (o->opens_fd >= 0)
		o->closes_fd =
			fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK | FAN_UNLIMITED_QUEUE | FAN_UNLIMITED_MARKS,
				      O_RDONLY | O_CLOEXEC | O_LARGEFILE);
	if (o->opens_fd < 0 || o->closes_fd < 0) {
		if (errno != EPERM)
			agent_log(a,
				  "fanotify: %s: programs without the library see what is written only after the usual delay",
				  strerror(errno));
		drop_fd(&o->opens_fd);
		return 0;
	}
	o->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (o->stop_fd < 0 || pipe2(o->questions, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	o->questions_src = (struct source){SRC_OPENS, NULL};
	o->closes_src = (struct source){SRC_CLOSES, NULL};
	err = agent_watch(a, o->questions[0], EPOLLIN, &o->questions_src);
	if (!err)
		err = agent_watch(a, o->closes_fd, EPOLLIN, &o->closes_src);
	if (!err)
		err = -pthread_create(&o->thread, NULL, listen_thread, o);
	o->started = !err;
	return err;
}

void listener_stop(struct agent *a)
{
	struct outsiders *o = &a->outsiders;
	const uint64_t one = 1;

	if (o->started && write(o->stop_fd, &one, sizeof(one)) == (ssize_t)sizeof(one))
		pthread_join(o->thread, NULL);
	o->started = false;
	drop_fd(&o->opens_fd);
	drop_fd(&o->closes_fd);
	drop_fd(&o->stop_fd);
	drop_fd(&o->questions[0]);
	drop_fd(&o->questions[1]);
}
