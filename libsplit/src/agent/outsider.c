/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs without the library that open a file which a client may have staged: static ones, Go, `kubectl exec ... cat`; and what the
 * library of a client does not see, as the program makes the call by itself, or the dynamic linker does. The kernel asks us before
 * such an open succeeds (fanotify, FAN_OPEN_PERM): the client brings what is staged into the file first. So who opens a file sees
 * everything that was written to it. Who has it open from then on is kept in openers.c.
 *
 * Marked are the inodes that somebody may stage for; others cost nothing. Descriptors that such a program had before a client asked for
 * the file are looked for (before.c). What is not seen: those that it inherits later; stat and truncate by path. Without the right to ask
 * the kernel (CAP_SYS_ADMIN) nothing is seen, and outsiders see the bytes after the usual delay.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/internal.h"
#include "format/identity.h"

#define LEFT_MAX (HOLDS_MAX / 16) /* files of which nobody need have anything */

/* An open that has not been answered yet, or a file that is left to somebody. */
struct opening {
	struct opening *next;
	int fd;		     /* the kernel's, of the file */
	struct client *says; /* or who says that it leaves the file to somebody; else NULL */
	struct opener who;
	uint64_t since; /* ms */
};

/* ---- marks ---- */

int outsider_ask(const struct agent *a, int group, unsigned how, uint64_t mask, const struct target *t)
{
	const struct shown *shown = &a->shown;
	char path[32];
	bool mine;
	int fd, err;

	/* The kernel takes a descriptor that is open for reading or writing as it is, and any other one by its name only. */
	if (shown->fd >= 0 && shown->ino == t->ino && shown->gen == t->gen)
		return fanotify_mark(group, how, mask, shown->fd, NULL) < 0 ? -errno : 0;
	fd = target_open(a, t, &mine);
	if (fd < 0)
		return fd;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	err = fanotify_mark(group, how, mask, AT_FDCWD, path) < 0 ? -errno : 0;
	if (mine)
		close(fd);
	return err;
}

/* The file was deleted, and the marks with it: ENOENT or ESTALE, or ENOMEM while its number is being given to another file. */
void outsider_ask_no_more(struct agent *a, const struct dnode *d, int group, uint64_t mask)
{
	const int err = outsider_ask(a, group, FAN_MARK_REMOVE, mask, &d->way);

	if (err && err != -ENOENT && err != -ESTALE && err != -ENOMEM)
		agent_log(a, "end the watch of inode %llu: %s", (unsigned long long)d->ino, strerror(-err));
}

void outsider_mark(struct agent *a, struct dnode *d, const struct target *way)
{
	int err;

	if (d->marked || a->outsiders.opens_fd < 0 || target_copy(&d->way, way))
		return;
	err = outsider_ask(a, a->outsiders.opens_fd, FAN_MARK_ADD, FAN_OPEN_PERM, &d->way);
	if (err) {
		agent_log(a, "watch inode %llu: %s", (unsigned long long)d->ino, strerror(-err));
		target_close(&d->way);
		return;
	}
	d->marked = true;
}

void outsider_granted(struct agent *a, const struct hold *h)
{
	outsider_mark(a, h->dnode, &h->target);
	before_granted(a, h->dnode);
}

void outsider_unmark(struct agent *a, struct dnode *d)
{
	if (!d->marked)
		return;
	openers_forget(a, d);
	before_forget(a, d);
	if (a->outsiders.opens_fd >= 0)
		outsider_ask_no_more(a, d, a->outsiders.opens_fd, FAN_OPEN_PERM);
	target_close(&d->way);
	d->marked = false;
}

/* With a question comes a descriptor, for which the kernel would break the lease. */
void outsider_rest(struct agent *a, struct dnode *d)
{
	if (!d->marked || openers_any(d) || d->opening)
		return;
	for (const struct hold *h = d->holds; h; h = h->dnode_next)
		if (h->deleg == SFS_DELEG_EXCLUSIVE)
			return;
	outsider_unmark(a, d);
}

/* ---- opens ---- */

static void answer_left(struct agent *a, struct client *c)
{
	const struct sfs_msg m = {.type = SFS_MSG_LEFT};

	c->leaves = NULL;
	if (client_reply(a, c, &m, NULL, 0) == 0)
		client_drop(a, c, NULL);
}

static void let_go(struct agent *a, struct dnode *d)
{
	struct opening *o = d->opening;

	d->opening = o->next;
	openers_add(a, d, &o->who); /* first: what is staged after its open is shown to it (openers.c) */
	if (o->says)
		answer_left(a, o->says);
	else
		listener_answer(&a->outsiders, o->fd, true);
	free(o);
	a->outsiders.nopening--;
}

static bool any_writes(const struct dnode *d)
{
	const struct opening *o = d->opening;

	while (o && !o->who.writes)
		o = o->next;
	return o;
}

bool outsider_step_down(struct agent *a, struct dnode *d, bool writes)
{
	bool busy = false;

	for (struct hold *h = d->holds; h; h = h->dnode_next) {
		/* Who can't write has nothing staged, and minds only what is written (watch.c). */
		if (!h->open || (!writes && h->counted == COUNTED_OTHER))
			continue;
		if (h->client->state == C_DYING) {
			busy = true; /* its data is not in the file yet */
		} else if (h->deleg == SFS_DELEG_EXCLUSIVE) {
			deleg_step_down(a, h, SFS_DELEG_NONE);
			busy = true;
		}
	}
	return busy;
}

bool outsider_settle(struct agent *a, struct dnode *d)
{
	const bool busy = d->opening && (outsider_step_down(a, d, any_writes(d)) || deleg_away_has(a, d->ino));

	while (!busy && d->opening)
		let_go(a, d);
	return !busy;
}

/* A debugger: while it holds a client still, that client can't answer, and must not be waited for in the debugger's own call. */
static bool traces(const struct dnode *d, int pid)
{
	for (const struct hold *h = d->holds; h && pid > 0; h = h->dnode_next)
		if (h->deleg == SFS_DELEG_EXCLUSIVE && sfs_process_number(h->client->pid, "TracerPid") == pid)
			return true;
	return false;
}

/* What the kernel's descriptor is open on. */
static bool identity(int fd, struct target *t)
{
	struct stat st;

	*t = (struct target){.fd = -1};
	if (fstat(fd, &st) < 0 || sfs_generation(fd, &t->gen) < 0)
		return false;
	t->ino = st.st_ino;
	return true;
}

struct dnode *outsider_dnode(const struct agent *a, int fd)
{
	struct target t;

	return identity(fd, &t) ? deleg_find(a, t.ino, t.gen) : NULL;
}

static void answer(const struct agent *a, const struct question *q)
{
	if (q->answered)
		close(q->fd);
	else
		listener_answer(&a->outsiders, q->fd, true);
}

/* A client of the agent before us may have it, and has not come back yet. Or nobody does, and that agent has marked it. */
static struct dnode *unmarked(struct agent *a, const struct question *q, struct dnode *d, struct target *way)
{
	if (deleg_away_has(a, way->ino)) {
		d = dnode_get(a, way->ino, way->gen);
		target_keep(a, way, q->fd);
		if (d)
			outsider_mark(a, d, way);
		target_close(way);
		if (d && !d->marked) {
			dnode_put(a, d);
			d = NULL;
		}
	} else if (!d && agent_now() < a->outsiders.strange_until) {
		fanotify_mark(a->outsiders.opens_fd, FAN_MARK_REMOVE, FAN_OPEN_PERM, q->fd, NULL);
	}
	return d;
}

/* It waits until nobody has anything of the file staged. False: it is not to be waited for. */
static bool wait_for(struct agent *a, struct dnode *d, const struct opening *open)
{
	struct opening *o = !traces(d, open->who.pid) ? calloc(1, sizeof(*o)) : NULL, **last;

	if (!o) {
		openers_add(a, d, &open->who);
		outsider_step_down(a, d, open->who.writes);
		return false;
	}
	*o = *open;
	o->since = agent_now();
	for (last = &d->opening; *last; last = &(*last)->next)
		;
	*last = o;
	a->outsiders.nopening++;
	outsider_settle(a, d);
	return true;
}

struct dnode *outsider_of(struct agent *a, int fd)
{
	struct target way;
	struct dnode *d = identity(fd, &way) ? deleg_find(a, way.ino, way.gen) : NULL;

	if (d && d->marked)
		return d;
	if (!way.ino || a->outsiders.opens_fd < 0 || a->ndnodes >= LEFT_MAX)
		return NULL;
	if (!d)
		d = dnode_get(a, way.ino, way.gen);
	target_keep(a, &way, fd);
	if (d)
		outsider_mark(a, d, &way);
	target_close(&way);
	if (!d || d->marked)
		return d;
	dnode_put(a, d);
	return NULL;
}

void outsider_leaves(struct agent *a, struct dnode *d, const struct opener *who, struct client *c)
{
	c->leaves = d;
	client_set_state(a, c, C_WAIT_LEFT);
	c->deadline = 0; /* outsider_timeouts() has another one */
	if (!wait_for(a, d, &(struct opening){.fd = -1, .says = c, .who = *who}))
		answer_left(a, c);
}

void outsider_left(struct agent *a, struct client *c)
{
	struct dnode *d = c->leaves;
	struct opening **p = &d->opening, *o;

	c->leaves = NULL;
	while (*p && (*p)->says != c)
		p = &(*p)->next;
	o = *p;
	if (!o)
		return;
	*p = o->next;
	openers_add(a, d, &o->who);
	free(o);
	a->outsiders.nopening--;
	deleg_process(a, d);
}

static void opened(struct agent *a, struct question *q)
{
	struct opener who = {.pid = q->pid, .tid = q->tid};
	struct target way;
	const bool known = identity(q->fd, &way);
	struct dnode *d = known ? deleg_find(a, way.ino, way.gen) : NULL;
	bool spawned;

	/* It may have become one since the kernel asked, or those of the agent before us were not known yet. */
	q->client = q->client || processes_is_client(&a->outsiders, q->pid);
	who.client = q->client;
	if (known && (!d || !d->marked))
		d = unmarked(a, q, d, &way);
	if (q->answered)
		who.call.nr = SFS_CALL_RUNNING; /* what it does by now is something else */
	else
		sfs_process_call(q->tid, &who.call, 0);
	who.leaves = !q->answered && left_said(&who.call);
	spawned = who.leaves && who.call.arg[3] == SFS_OPEN_SPAWNED;
	if (!d || !d->marked || (!q->answered && processes_sees(&a->outsiders, q, &who.call)) ||
	    (who.leaves && !left_to(a, d, &who))) {
		answer(a, q);
		if (d && spawned)
			openers_has_left(a, d, q->pid);
		else if (d)
			dnode_put(a, d); /* it may have been made for the question */
		return;
	}
	who.writes = who.leaves || outsider_writes(q->tid, &who.call);
	who.alone = !q->answered && sfs_process_number(q->pid, "Threads") == 1;
	if (!q->answered) {
		if (!wait_for(a, d, &(struct opening){.fd = q->fd, .who = who}))
			answer(a, q);
		if (spawned)
			openers_has_left(a, d, q->pid);
		return;
	}
	openers_add(a, d, &who);
	outsider_step_down(a, d, who.writes); /* and it is not waited for */
	answer(a, q);
}

void outsider_opens(struct agent *a)
{
	struct question q[16];
	ssize_t n;

	openers_closes(a); /* what comes after them is of opens that we let go now (openers.c) */
	n = read(a->outsiders.questions[0], q, sizeof(q));
	__atomic_fetch_add(&a->outsiders.taken, 1, __ATOMIC_RELAXED);
	for (ssize_t i = 0; i < n / (ssize_t)sizeof(q[0]); i++)
		opened(a, &q[i]);
}

void outsider_timeouts(struct agent *a, uint64_t now)
{
	if (!a->outsiders.nopening)
		return;
	for (uint32_t i = 0; i < a->table_size; i++) {
		for (struct dnode *d = a->table[i]; d; d = d->next) {
			outsider_settle(a, d);
			while (d->opening && now - d->opening->since >= OUTSIDER_WAIT_MS) {
				agent_log(
					a,
					"process %d, without the library, waits no more for what inode %llu lacks after %d ms",
					d->opening->who.pid, (unsigned long long)d->ino, OUTSIDER_WAIT_MS);
				let_go(a, d);
			}
		}
	}
}
