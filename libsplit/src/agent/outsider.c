/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs without the library that open a file which a client may have staged: static ones, Go, `kubectl exec ... cat`. The kernel
 * asks us before such an open succeeds (fanotify, FAN_OPEN_PERM): the client brings what is staged into the file first. So who
 * opens a file sees everything that was written to it, and who opens it for writing has the kernel's view to write to: while that
 * lasts nobody is granted EXCLUSIVE, as with two clients (delegation.c).
 *
 * Marked are the inodes that somebody may stage for; others cost nothing. What is not seen: descriptors that such a program had
 * before a client asked for the file, or inherits; stat and truncate by path. Without the right to ask the kernel (CAP_SYS_ADMIN)
 * nothing is seen, and outsiders see the bytes after the usual delay.
 *
 * One thread reads the questions. It answers those about opens of our own, so that the loop and the worker may open any file, and of
 * clients, which ask for the file themselves; the others go to the loop through a pipe.
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
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/internal.h"
#include "identity.h"

#ifndef FAN_REPORT_TID
#define FAN_REPORT_TID 0x00000100
#endif

/* An open that has not been answered yet. */
struct opening {
	struct opening *next;
	int fd; /* the kernel's, of the file */
	int pid;
	bool writes;
	uint64_t since; /* ms */
};

/* A process without the library that has an inode open for writing. */
struct outsider {
	struct outsider *next;
	int pid; /* 0: one that can't be seen from here */
	uint32_t opens;
};

/* What the thread passes on. */
struct question {
	int fd, tid, pid;
};

/* ---- who ---- */

static int process_of(int tid)
{
	char path[48], line[128];
	int pid = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", tid);
	f = tid > 0 ? fopen(path, "re") : NULL;
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "Tgid: %d", &pid) == 1)
			break;
	fclose(f);
	return pid;
}

static struct peer **bucket(struct outsiders *o, int pid)
{
	return &o->peers[(unsigned)pid % OUTSIDER_BUCKETS];
}

void outsider_add_peer(struct agent *a, struct peer *p, int pid, int sock)
{
	struct outsiders *o = &a->outsiders;

	if (pid <= 0)
		return;
	*p = (struct peer){*bucket(o, pid), pid, sock};
	pthread_mutex_lock(&o->lock);
	*bucket(o, pid) = p;
	pthread_mutex_unlock(&o->lock);
}

void outsider_del_peer(struct agent *a, struct peer *p)
{
	struct outsiders *o = &a->outsiders;
	struct peer **q = bucket(o, p->pid);

	if (p->pid <= 0)
		return;
	pthread_mutex_lock(&o->lock);
	while (*q && *q != p)
		q = &(*q)->next;
	if (*q)
		*q = p->next;
	pthread_mutex_unlock(&o->lock);
	p->pid = 0;
}

/* Is it a client's? One that has executed another program is none any more, also when the loop has not got round to it. */
static bool is_client(struct outsiders *o, int pid)
{
	bool found = false;

	pthread_mutex_lock(&o->lock);
	for (const struct peer *p = pid > 0 ? *bucket(o, pid) : NULL; p && !found; p = p->next) {
		struct pollfd alive = {p->sock, POLLRDHUP, 0};

		found = p->pid == pid && (p->sock < 0 || poll(&alive, 1, 0) == 0);
	}
	pthread_mutex_unlock(&o->lock);
	return found;
}

/* ---- the thread ---- */

static void answer(int fan, int fd)
{
	const struct fanotify_response r = {.fd = fd, .response = FAN_ALLOW};

	/* It fails when the process was killed meanwhile, or when we stop, which lets everybody go on. */
	if (write(fan, &r, sizeof(r)) < 0)
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
			answer(o->opens_fd, q.fd);
		p->since = 0;
		return -1;
	}
	if (p->since == 0 || taken != p->taken)
		*p = (struct progress){taken, now};
	return OUTSIDER_WAIT_MS / 4;
}

static void *listen_thread(void *arg)
{
	struct outsiders *o = arg;
	struct pollfd p[2] = {{o->opens_fd, POLLIN, 0}, {o->stop_fd, POLLIN, 0}};
	_Alignas(struct fanotify_event_metadata) char buf[4096];
	struct progress loop = {0};

	while (poll(p, 2, let_go_when_stuck(o, &loop)) >= 0 || errno == EINTR) {
		const struct fanotify_event_metadata *m = (void *)buf;
		ssize_t n;

		if (p[1].revents)
			return NULL;
		n = read(o->opens_fd, buf, sizeof(buf));
		for (; n > 0 && FAN_EVENT_OK(m, n); m = FAN_EVENT_NEXT(m, n)) {
			struct question q = {m->fd, m->pid, m->pid};

			if (m->fd < 0)
				continue;
			if (!is_client(o, q.tid))
				q.pid = process_of(q.tid);
			if (q.pid == getpid() || is_client(o, q.pid) ||
			    write(o->questions[1], &q, sizeof(q)) != (ssize_t)sizeof(q))
				answer(o->opens_fd, m->fd);
		}
	}
	return NULL;
}

/* ---- start and end ---- */

int outsider_start(struct agent *a)
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
				  "the kernel does not ask before programs without the library open a file (fanotify: %s): "
				  "they see "
				  "what is written after the usual delay",
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

/* The kernel lets everybody go on whose question was not answered. */
void outsider_stop(struct agent *a)
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

/* ---- marks ---- */

static int mark(const struct agent *a, int group, unsigned how, uint64_t mask, const struct target *t)
{
	char path[32];
	int fd = t->fd, err;

	if (t->handle)
		fd = open_by_handle_at(a->root.fd, t->handle, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	err = fanotify_mark(group, how, mask, AT_FDCWD, path) < 0 ? -errno : 0;
	if (t->handle)
		close(fd);
	return err;
}

void outsider_mark(struct agent *a, struct dnode *d, const struct target *way, int fd)
{
	int err;

	if (d->marked || a->outsiders.opens_fd < 0 || target_copy(&d->way, way))
		return;
	if (fd >= 0)
		err = fanotify_mark(a->outsiders.opens_fd, FAN_MARK_ADD, FAN_OPEN_PERM, fd, NULL) < 0 ? -errno : 0;
	else
		err = mark(a, a->outsiders.opens_fd, FAN_MARK_ADD, FAN_OPEN_PERM, &d->way);
	if (err) {
		agent_log(a, "watch inode %llu: %s", (unsigned long long)d->ino, strerror(-err));
		target_close(&d->way);
		return;
	}
	d->marked = true;
}

/* ENOENT: the file was deleted, and the marks with it. */
static void unmark(struct agent *a, const struct dnode *d, int group, uint64_t mask)
{
	const int err = mark(a, group, FAN_MARK_REMOVE, mask, &d->way);

	if (err && err != -ENOENT && err != -ESTALE)
		agent_log(a, "end the watch of inode %llu: %s", (unsigned long long)d->ino, strerror(-err));
}

static void forget_writers(struct agent *a, struct dnode *d)
{
	if (d->outsiders && a->outsiders.closes_fd >= 0)
		unmark(a, d, a->outsiders.closes_fd, FAN_CLOSE_WRITE);
	while (d->outsiders) {
		struct outsider *w = d->outsiders;

		d->outsiders = w->next;
		free(w);
	}
}

void outsider_unmark(struct agent *a, struct dnode *d)
{
	if (!d->marked)
		return;
	forget_writers(a, d);
	if (a->outsiders.opens_fd >= 0)
		unmark(a, d, a->outsiders.opens_fd, FAN_OPEN_PERM);
	target_close(&d->way);
	d->marked = false;
}

/* ---- how ---- */

/*
 * Does the thread open for writing? It stands in that call until we answer, so the kernel shows the call's arguments. What is not
 * one of the usual calls of this machine (a 32-bit program, io_uring) may write.
 */
static bool opens_to_write(int tid)
{
	unsigned long arg[3] = {0};
	char path[48];
	long nr = -1;
	FILE *f;
	int n;

	snprintf(path, sizeof(path), "/proc/%d/syscall", tid);
	f = tid > 0 ? fopen(path, "re") : NULL;
	if (!f)
		return true;
	n = fscanf(f, "%ld 0x%lx 0x%lx 0x%lx", &nr, &arg[0], &arg[1], &arg[2]);
	fclose(f);
	if (n != 4)
		return true;
	if (nr == SYS_openat || nr == SYS_open_by_handle_at)
		return ((int)arg[2] & O_ACCMODE) != O_RDONLY || ((int)arg[2] & O_TRUNC);
#ifdef SYS_open
	if (nr == SYS_open)
		return ((int)arg[1] & O_ACCMODE) != O_RDONLY || ((int)arg[1] & O_TRUNC);
#endif
	return nr != SYS_execve && nr != SYS_execveat;
}

/* ---- opens ---- */

static void add_writer(struct agent *a, struct dnode *d, int pid)
{
	struct outsider *w = d->outsiders;

	while (w && w->pid != pid)
		w = w->next;
	if (!w) {
		w = calloc(1, sizeof(*w));
		if (!w)
			return;
		/* Where its end can't be seen it stays as long as clients have the file. */
		if (!d->outsiders && mark(a, a->outsiders.closes_fd, FAN_MARK_ADD, FAN_CLOSE_WRITE, &d->way))
			pid = 0;
		w->pid = pid;
		w->next = d->outsiders;
		d->outsiders = w;
	}
	w->opens++;
}

static void let_go(struct agent *a, struct dnode *d)
{
	struct opening *o = d->opening;

	d->opening = o->next;
	if (o->writes)
		add_writer(a, d, o->pid);
	answer(a->outsiders.opens_fd, o->fd);
	free(o);
	a->outsiders.nopening--;
}

bool outsider_settle(struct agent *a, struct dnode *d)
{
	bool busy = false;

	if (!d->opening)
		return true;
	for (struct hold *h = d->holds; h; h = h->dnode_next) {
		if (!h->open)
			continue;
		if (h->client->state == C_DYING) {
			busy = true; /* its data is not in the file yet */
		} else if (h->deleg == SFS_DELEG_EXCLUSIVE) {
			deleg_step_down(a, h, SFS_DELEG_NONE);
			busy = true;
		}
	}
	while (!busy && d->opening)
		let_go(a, d);
	return !busy;
}

static void opened(struct agent *a, const struct question *q)
{
	struct opening *o, **last;
	struct dnode *d;
	struct stat st;
	uint32_t gen;

	d = fstat(q->fd, &st) == 0 && sfs_generation(q->fd, &gen) == 0 ? deleg_find(a, st.st_ino, gen) : NULL;
	o = d && d->marked ? calloc(1, sizeof(*o)) : NULL;
	if (!o) {
		answer(a->outsiders.opens_fd, q->fd);
		return;
	}
	*o = (struct opening){.fd = q->fd, .pid = q->pid, .writes = opens_to_write(q->tid), .since = agent_now()};
	for (last = &d->opening; *last; last = &(*last)->next)
		;
	*last = o;
	a->outsiders.nopening++;
	outsider_settle(a, d);
}

void outsider_opens(struct agent *a)
{
	struct question q[16];
	const ssize_t n = read(a->outsiders.questions[0], q, sizeof(q));

	__atomic_fetch_add(&a->outsiders.taken, 1, __ATOMIC_RELAXED);
	for (ssize_t i = 0; i < n / (ssize_t)sizeof(q[0]); i++)
		opened(a, &q[i]);
}

/* ---- closes ---- */

static void drop_writer(struct agent *a, struct dnode *d, int pid)
{
	struct outsider **p = &d->outsiders, *w;

	while ((w = *p) != NULL) {
		const char state = w->pid > 0 && w->pid != pid ? sfs_process_state(w->pid) : 'R';

		/* Where another has closed it, a child of one that is gone had it last. */
		if ((pid > 0 && w->pid == pid && --w->opens == 0) || state == 'Z' || state == 'X' || state == '?') {
			*p = w->next;
			free(w);
		} else {
			p = &w->next;
		}
	}
	if (d->outsiders)
		return;
	unmark(a, d, a->outsiders.closes_fd, FAN_CLOSE_WRITE);
	deleg_alone_again(a, d);
}

void outsider_closes(struct agent *a)
{
	_Alignas(struct fanotify_event_metadata) char buf[4096];
	const struct fanotify_event_metadata *m = (void *)buf;
	ssize_t n = read(a->outsiders.closes_fd, buf, sizeof(buf));

	for (; n > 0 && FAN_EVENT_OK(m, n); m = FAN_EVENT_NEXT(m, n)) {
		struct stat st;
		struct dnode *d;
		uint32_t gen;

		if (m->fd < 0)
			continue;
		d = fstat(m->fd, &st) == 0 && sfs_generation(m->fd, &gen) == 0 ? deleg_find(a, st.st_ino, gen) : NULL;
		close(m->fd);
		if (d && d->outsiders && !is_client(&a->outsiders, m->pid))
			drop_writer(a, d, m->pid);
	}
}

void outsider_is_client(struct agent *a, struct dnode *d, int pid)
{
	struct outsider *w = d->outsiders;

	while (w && w->pid != pid)
		w = w->next;
	if (w && pid > 0) {
		w->opens = 1;
		drop_writer(a, d, pid);
	}
}

void outsider_timeouts(struct agent *a, uint64_t now)
{
	if (!a->outsiders.nopening)
		return;
	for (uint32_t i = 0; i < a->table_size; i++) {
		for (struct dnode *d = a->table[i]; d; d = d->next) {
			while (d->opening && now - d->opening->since >= OUTSIDER_WAIT_MS) {
				agent_log(a,
					  "process %d, without the library, opens inode %llu before everything is in it: who "
					  "has it did "
					  "not bring it in within %d ms",
					  d->opening->pid, (unsigned long long)d->ino, OUTSIDER_WAIT_MS);
				let_go(a, d);
			}
		}
	}
}
