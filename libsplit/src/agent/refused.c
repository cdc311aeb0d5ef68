/* SPDX-License-Identifier: Apache-2.0 */
/* What was done with programs without the library: the list of it, in memory and as a file. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/internal.h"

#define WRITE_MS 200 /* so long what was done is collected before the list is written */

static bool same(const struct sfs_unserved_one *a, const struct sfs_unserved_one *b)
{
	return a->pid == b->pid && a->did == b->did && strcmp(a->program, b->program) == 0;
}

/* To the end of the list, in place of what it has of the same process, or else of the oldest. */
static void list_add(struct sfs_unserved_list *l, struct sfs_unserved_one *one)
{
	uint32_t i = 0;

	while (i < l->n && !same(&l->v[i], one))
		i++;
	if (i < l->n)
		one->opens += l->v[i].opens;
	else if (l->n < SFS_UNSERVED_MAX)
		l->n++;
	else
		i = 0;
	memmove(&l->v[i], &l->v[i + 1], (l->n - 1 - i) * sizeof(l->v[0]));
	l->v[l->n - 1] = *one;
}

void refused_file(int fd, char name[SFS_UNSERVED_PATH])
{
	char path[32], target[PATH_MAX];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, target, sizeof(target) - 1);
	target[n > 0 ? n : 0] = 0;
	/* What stands for a file that nobody knows any more (gate.c) is none of the volume's. */
	sfs_printable(name, SFS_UNSERVED_PATH, n > 0 && strncmp(target, "/memfd:", 7) != 0 ? target : "?");
}

void refused_note(struct agent *a, const struct question *q, enum sfs_unserved did, const char *pod)
{
	struct enforcer *e = &a->enforcer;
	struct sfs_unserved_one one = {.pid = q->pid, .did = did, .opens = 1, .when = (uint64_t)time(NULL)};
	const uint64_t now = agent_now();

	sfs_process_program(q->pid, one.program, sizeof(one.program));
	refused_file(q->fd, one.path);
	snprintf(one.pod, sizeof(one.pod), "%s", *pod ? pod : "-");
	pthread_mutex_lock(&e->lock);
	list_add(&e->list, &one);
	if (did == UNSERVED_REFUSE)
		e->list.refused++;
	else
		e->list.durable++;
	if (!e->changed)
		e->changed = now;
	pthread_mutex_unlock(&e->lock);
	/* Not agent_log(), which is the loop's. The list has all of them; here it is enough to see that there are some. */
	if (e->logged && now - e->logged < 1000)
		return;
	e->logged = now;
	fprintf(stderr, "splitfs agent %s: process %d (%s), without the library, %s %s\n", a->root.path, q->pid, one.program,
		did == UNSERVED_REFUSE ? "may not write to" : "writes synchronously to", one.path);
}

int refused_write(struct agent *a, bool now)
{
	struct enforcer *e = &a->enforcer;
	struct sfs_unserved_list list;
	uint64_t age;
	int err;

	pthread_mutex_lock(&e->lock);
	age = e->changed ? agent_now() - e->changed : 0;
	list = e->list;
	if (e->changed && (now || age >= WRITE_MS))
		e->changed = 0;
	else if (!now) {
		const int left = e->changed ? (int)(WRITE_MS - age) : -1;

		pthread_mutex_unlock(&e->lock);
		return left;
	}
	pthread_mutex_unlock(&e->lock);
	err = sfs_unserved_write(&a->root, &list);
	if (err)
		fprintf(stderr, "splitfs agent %s: write the list of refused programs: %s\n", a->root.path, strerror(-err));
	return -1;
}
