/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's questions about who opens which file (outsider.c says what for), and the thread that reads them. It answers those about
 * opens of our own, so that the loop and the worker may open any file, and of clients, which ask for the file themselves; the others
 * go to the loop through a pipe, with those that a client's program makes by itself, as the library does not see them.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/internal.h"

#ifndef FAN_REPORT_TID
#define FAN_REPORT_TID 0x00000100
#endif

/* ---- the thread ---- */

/* The descriptor stays: the next question may not have its number before that counts. */
static void respond(const struct outsiders *o, int fd, bool allow)
{
	const struct fanotify_response r = {.fd = fd, .response = allow ? FAN_ALLOW : FAN_DENY};

	/* It fails when the process was killed meanwhile, or when we stop, which lets everybody go on. */
	if (write(o->opens_fd, &r, sizeof(r)) < 0)
		errno = 0;
	gate_answered(o, fd);
}

void listener_answer(const struct outsiders *o, int fd, bool allow)
{
	respond(o, fd, allow);
	close(fd);
}

/*
 * Those that wait in the pipe, which stay there behind each other as before: the loop is to know who has the file open.
 */
static void let_all_go(const struct outsiders *o, int waiting)
{
	struct question q;

	for (int n = waiting / (int)sizeof(q); n > 0 && read(o->questions[0], &q, sizeof(q)) == (ssize_t)sizeof(q); n--) {
		if (!q.answered)
			respond(o, q.fd, true);
		q.answered = true;
		if (write(o->questions[1], &q, sizeof(q)) != (ssize_t)sizeof(q))
			close(q.fd);
	}
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
	const uint64_t now = o->handed ? agent_now() : 0;
	int waiting = 0;

	if (!o->handed || ioctl(o->questions[0], FIONREAD, &waiting) < 0 || waiting == 0) {
		o->handed = false;
		p->since = 0;
		return -1;
	}
	if (p->since != 0 && taken == p->taken && now - p->since >= OUTSIDER_WAIT_MS) {
		let_all_go(o, waiting);
		p->since = 0;
		return OUTSIDER_WAIT_MS / 4;
	}
	if (p->since == 0 || taken != p->taken)
		*p = (struct progress){taken, now};
	return OUTSIDER_WAIT_MS / 4;
}

/* Whom a question is for. */
enum asked { ASKED_NOBODY, ASKED_LOOP, ASKED_LOOK, ASKED_LATER };

/* Of a client's open that its library sees the loop need not know. */
static enum asked ask_loop(struct agent *a, const struct question *q, const struct sfs_call *call)
{
	return processes_sees(&a->outsiders, q, call) ? ASKED_NOBODY : ASKED_LOOP;
}

/* The kernel asks about the file only because it asks about all of them. */
static enum asked ask_enforcer(struct agent *a, const struct question *q, const struct sfs_call *call)
{
	if (outsider_writes(q->tid, call) && !(q->client && processes_known_code(&a->outsiders, q->pid, call->pc)))
		return ASKED_LOOK;
	return ask_loop(a, q, call);
}

/* A thread whose turn has not come since the kernel asked does not stand in its call yet. waits: that it does may be waited for. */
static enum asked ask_about_call(struct agent *a, const struct question *q, bool waits)
{
	const bool enforces = enforce_marked(a);
	struct sfs_call call;
	struct stat st;

	/* Older kernels ask about pipes too. */
	if (enforces && (fstat(q->fd, &st) < 0 || !S_ISREG(st.st_mode)))
		return ASKED_NOBODY;
	sfs_process_call(q->tid, &call, 0);
	if (call.nr == SFS_CALL_RUNNING && waits) {
		sched_yield();
		sfs_process_call(q->tid, &call, 0);
	}
	if (call.nr == SFS_CALL_RUNNING && waits)
		return ASKED_LATER;
	return enforces ? ask_enforcer(a, q, &call) : ask_loop(a, q, &call);
}

/* Nobody has to be asked about what the agent opens itself, nor, of files that are marked, about what a library sees. */
static enum asked whom_to_ask(struct agent *a, const struct fanotify_event_metadata *m, struct question *q)
{
	struct outsiders *o = &a->outsiders;
	struct stat st;
	bool seen;

	*q = (struct question){m->fd, m->pid, m->pid, true, false};
	seen = processes_who_asks(o, q);
	if (q->pid == a->pid)
		return ASKED_NOBODY;
	if (__atomic_load_n(&o->early, __ATOMIC_ACQUIRE))
		return fstat(q->fd, &st) < 0 || !S_ISREG(st.st_mode) ? ASKED_NOBODY : ASKED_LOOK;
	if (seen && !enforce_marked(a))
		return agent_now() < o->strange_until ? ASKED_LOOP : ASKED_NOBODY;
	return ask_about_call(a, q, o->nlate < OUTSIDER_LATE);
}

static void pass_to(struct agent *a, enum asked whom, const struct question *q)
{
	const int to[] = {-1, a->outsiders.questions[1], a->enforcer.questions[1]};
	struct outsiders *o = &a->outsiders;

	if (whom == ASKED_LATER) {
		o->late[o->nlate++] = (struct late){*q, agent_now()};
		return;
	}
	o->handed |= whom == ASKED_LOOP;
	if (whom == ASKED_LOOK)
		__atomic_store_n(&o->looked, true, __ATOMIC_RELEASE);
	if (whom == ASKED_NOBODY || write(to[whom], q, sizeof(*q)) != (ssize_t)sizeof(*q))
		listener_answer(o, q->fd, true);
}

/* Returns how long to wait before the next look, ms, or -1. */
static int look_at_late(struct agent *a)
{
	struct outsiders *o = &a->outsiders;
	const uint32_t n = o->nlate;

	o->nlate = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct late l = o->late[i];
		const enum asked whom = ask_about_call(a, &l.q, agent_now() - l.since < OUTSIDER_LATE_MS);

		if (whom == ASKED_LATER)
			o->late[o->nlate++] = l;
		else
			pass_to(a, whom, &l.q);
	}
	return o->nlate ? 1 : -1;
}

void listener_ask_look(struct agent *a, const struct question *q)
{
	pass_to(a, ASKED_LOOK, q);
}

/* Some of what the kernel asks. False: nothing more for now. */
static bool read_some(struct agent *a)
{
	struct outsiders *o = &a->outsiders;
	_Alignas(struct fanotify_event_metadata) char buf[4096];
	const struct fanotify_event_metadata *m = (void *)buf;
	/* One at a time where another agent may have to answer: what is read and not noted yet is lost with us. */
	ssize_t n = read(o->opens_fd, buf, o->gate ? sizeof(*m) : sizeof(buf));
	struct question q;

	if (n <= 0)
		return false;
	for (; FAN_EVENT_OK(m, n); m = FAN_EVENT_NEXT(m, n)) {
		if (m->fd < 0)
			continue;
		gate_note(o, m->fd, m->pid);
		pass_to(a, whom_to_ask(a, m, &q), &q);
	}
	return o->gate;
}

/* Looks after what waits. Returns how long to wait before the next time, ms, or -1. */
static int patience(struct agent *a, struct progress *loop)
{
	struct outsiders *o = &a->outsiders;
	const bool looked = __atomic_load_n(&o->looked, __ATOMIC_ACQUIRE);

	return agent_sooner(look_at_late(a), agent_sooner(let_go_when_stuck(o, loop), looked ? enforce_let_go(a) : -1));
}

static void *listen_thread(void *arg)
{
	struct agent *a = arg;
	struct outsiders *o = &a->outsiders;
	struct pollfd p[2] = {{o->opens_fd, POLLIN, 0}, {o->stop_fd, POLLIN, 0}};
	struct progress loop = {0};

	while (poll(p, 2, patience(a, &loop)) >= 0 || errno == EINTR) {
		if (p[1].revents)
			return NULL;
		for (int i = 0; i < 64 && read_some(a); i++)
			;
	}
	return NULL;
}

/* ---- start and end ---- */

/* With the same flags the supervisor of the node's agents makes a group for one agent after the other (csi-driver/internal/agent). */
static int own_group(void)
{
	return fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC | FAN_NONBLOCK | FAN_UNLIMITED_QUEUE | FAN_UNLIMITED_MARKS |
				     FAN_REPORT_TID,
			     /* O_NONBLOCK: a pipe, of which the kernel should not ask, must not hold us up. */
			     O_RDONLY | O_CLOEXEC | O_LARGEFILE | O_NONBLOCK);
}

int listener_start(struct agent *a)
{
	struct outsiders *o = &a->outsiders;
	int err = gate_open(a);

	if (err)
		return err;
	if (pipe2(a->enforcer.questions, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	if (!o->gate)
		o->opens_fd = own_group();
	/* By process, not by thread: the last thread is gone when its files are closed. */
	if (o->opens_fd >= 0)
		o->closes_fd =
			fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK | FAN_UNLIMITED_QUEUE | FAN_UNLIMITED_MARKS,
				      /* Nor must a lease, which a descriptor that comes with a close would have to wait for. */
				      O_RDONLY | O_CLOEXEC | O_LARGEFILE | O_NONBLOCK);
	if (o->gate && o->closes_fd < 0)
		return -errno;
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
	o->looked_src = (struct source){SRC_LOOKED, NULL};
	o->early = true;
	err = agent_watch(a, o->questions[0], EPOLLIN, &o->questions_src);
	if (!err)
		err = agent_watch(a, o->closes_fd, EPOLLIN, &o->closes_src);
	if (!err)
		err = looker_start(&o->looker);
	if (!err)
		err = agent_watch(a, o->looker.out, EPOLLIN, &o->looked_src);
	if (!err)
		err = looker_start(&o->before.looker);
	if (!err)
		err = agent_watch(a, o->before.looker.out, EPOLLIN, &o->looked_src);
	if (!err)
		err = -pthread_create(&o->thread, NULL, listen_thread, a);
	o->started = !err;
	return err;
}

void listener_decide(struct agent *a)
{
	__atomic_store_n(&a->outsiders.early, false, __ATOMIC_RELEASE);
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
	looker_stop(&o->looker);
	looker_stop(&o->before.looker);
	drop_fd(&o->questions[0]);
	drop_fd(&o->questions[1]);
	gate_close(o);
}
