/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To whom a process with the library leaves a file that it has open for writing: its next program, or a child's first one. Its library says so by
 * an open (SFS_OPEN_LEFT, SFS_OPEN_SPAWNED), about which the kernel asks us while somebody may stage for the file. Of a client it is seen besides, also
 * where nobody may, by the end of its connection: execve has closed that. Whoever has the file then counts as a program without
 * the library (openers.c) until it is seen that it is one with it (closes.c).
 */
#include <fcntl.h>
#include <sys/syscall.h>

#include "agent/openers.h"

/* What is more is left to the look soon after the grant (before.c). */
#define CHILDREN 256
#define LOOKS	 256 /* threads and descriptors at most: the loop takes a millisecond for so many */

/* To whom it is left. Also to a client, which may execute another program without having asked about the file. */
static struct opener heir(int pid)
{
	return (struct opener){.pid = pid, .tid = pid, .writes = true, .has = true, .leaves = true, .call.pc = NOWHERE};
}

bool left_said(const struct sfs_call *call)
{
	return call->nr == SYS_openat && (call->arg[3] == SFS_OPEN_LEFT || call->arg[3] == SFS_OPEN_SPAWNED) && call->pc != 0 &&
	       !(call->arg[2] & (O_CREAT | O_TMPFILE | O_ACCMODE));
}

bool left_to(const struct agent *a, const struct dnode *d, struct opener *who)
{
	struct sfs_sought file = {d->ino, SFS_OPENED_NOT};
	int children[CHILDREN];
	uint32_t looks = LOOKS, n;

	if (who->pid <= 0)
		return false; /* nobody would see its end */
	if (who->call.arg[3] == SFS_OPEN_LEFT)
		return true;
	n = sfs_thread_children(who->pid, who->tid, children, CHILDREN);
	if (n == 0)
		return false;
	*who = heir(children[n - 1]);
	return sfs_process_opened_any(who->pid, a->root.dev, &file, 1, &looks);
}

static bool writes(enum sfs_opened has)
{
	return has != SFS_OPENED_NOT && has != SFS_OPENED_READ;
}

/*
 * The processes that it has made, all but the last of whom count at once; that one is *who. False: none of them has
 * it.
 */
static bool any_child(struct agent *a, struct dnode *d, int pid, struct opener *who)
{
	struct sfs_sought file = {d->ino, SFS_OPENED_NOT};
	uint32_t looks = LOOKS, n;
	int children[CHILDREN];
	bool found = false;

	n = sfs_process_children(pid, children, CHILDREN, &looks);
	for (uint32_t i = 0; i < n; i++) {
		if (!sfs_process_opened_any(children[i], a->root.dev, &file, 1, &looks) || !writes(file.has))
			continue;
		if (found)
			openers_add(a, d, who);
		*who = heir(children[i]);
		found = true;
	}
	return found;
}

void left_shown(struct agent *a, struct client *c, const struct sfs_msg *m, int *fd)
{
	const struct sfs_msg done = {.type = SFS_MSG_LEFT};
	const int pid = c->pid;
	struct opener who = heir(pid);
	bool to = pid > 0; /* else nobody would see its end */
	struct dnode *d;

	if (right_shown(a, *fd) != RIGHT_WRITE) {
		client_reply_error(a, c, SFS_MSG_LEFT, -EACCES, "not an open file of it");
		return;
	}
	d = outsider_of(a, *fd);
	drop_fd(fd);
	if (d && to && m->a == SFS_OPEN_SPAWNED)
		to = any_child(a, d, pid, &who);
	else if (m->b)
		who.call.pc = m->b;
	if (d && to)
		outsider_leaves(a, d, &who, c);
	else if (client_reply(a, c, &done, NULL, 0) == 0)
		client_drop(a, c, NULL);
	if (d && m->a == SFS_OPEN_SPAWNED)
		openers_has_left(a, d, pid);
	else if (d && !to)
		dnode_put(a, d); /* it may have been made for the question */
}

/* One with the library counts until that is seen, too: its memory is not looked at here, where others would wait for who holds it. */
static void look_at_child(struct agent *a, struct dnode *d, int pid, uint32_t *looks)
{
	const struct opener who = heir(pid);
	struct sfs_sought file = {d->ino, SFS_OPENED_NOT};

	if (sfs_process_opened_any(pid, a->root.dev, &file, 1, looks) && writes(file.has))
		openers_add(a, d, &who);
}

void left_to_children(struct agent *a, const struct hold *h)
{
	struct dnode *d = h->dnode;
	uint32_t n = 1, looks = LOOKS;
	int pids[CHILDREN];

	if (d->marked || h->client->pid <= 0)
		return;
	outsider_mark(a, d, &h->target);
	if (!d->marked)
		return;
	pids[0] = h->client->pid;
	for (uint32_t i = 0; i < n && n < CHILDREN && looks > 0; i++) {
		n += sfs_process_children(pids[i], pids + n, CHILDREN - n, &looks);
		if (i > 0)
			look_at_child(a, d, pids[i], &looks);
	}
}

static void look(struct agent *a, const struct client *c, struct hold *const *holds, struct sfs_sought *files, uint32_t n,
		 uint32_t *looks)
{
	const struct opener who = heir(c->pid);

	if (n == 0 || !sfs_process_opened_any(c->pid, a->root.dev, files, n, looks))
		return;
	for (uint32_t i = 0; i < n; i++) {
		struct dnode *d = holds[i]->dnode;

		if (!writes(files[i].has))
			continue;
		outsider_mark(a, d, &holds[i]->target);
		if (!d->marked)
			continue;
		openers_add(a, d, &who);
		outsider_step_down(a, d, true); /* who has been granted it beside this client */
	}
}

/* Has it executed another program? One that ends has none any more. */
static bool goes_on(const struct client *c)
{
	uint64_t image;
	char comm[16];

	return c->pid > 0 && sfs_process_start_comm(c->pid, comm, &image) == c->start && image != 0 && image != c->image;
}

void left_by(struct agent *a, const struct client *c)
{
	struct hold *holds[LOOKER_FILES];
	struct sfs_sought files[LOOKER_FILES];
	uint32_t n = 0, looks = LOOKS;

	if (a->outsiders.opens_fd < 0 || !c->holds || !goes_on(c))
		return;
	for (struct hold *h = c->holds; h; h = h->client_next) {
		if (!h->open || h->lease_index < 0)
			continue;
		holds[n] = h;
		files[n++].ino = h->dnode->ino;
		if (n == LOOKER_FILES) {
			look(a, c, holds, files, n, &looks);
			n = 0;
		}
	}
	look(a, c, holds, files, n, &looks);
}
