/* SPDX-License-Identifier: Apache-2.0 */
#include "control/unserved.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "unserved"

static const char *const policies[] = {"allow", "durable", "refuse"};
static const char *const states[] = {"off", "on", "cannot"};

static int find(const char *const *names, int n, const char *name)
{
	int i = 0;

	while (i < n && strcmp(names[i], name) != 0)
		i++;
	return i < n ? i : -1;
}

bool sfs_unserved_parse(const char *name, enum sfs_unserved *u)
{
	const int i = find(policies, 3, name);

	if (i >= 0)
		*u = (enum sfs_unserved)i;
	return i >= 0;
}

const char *sfs_unserved_name(enum sfs_unserved u)
{
	return policies[u];
}

const char *sfs_enforcement_name(enum sfs_enforcement e)
{
	return states[e];
}

int sfs_unserved_write(const struct sfs_root *r, const struct sfs_unserved_list *l)
{
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);
	int err;

	if (!f)
		return -errno;
	fprintf(f, "%s %" PRIu64 " %" PRIu64 "\n", states[l->state], l->refused, l->durable);
	for (uint32_t i = 0; i < l->n; i++) {
		const struct sfs_unserved_one *o = &l->v[i];

		/* Texts have no control characters (sfs_printable). */
		fprintf(f, "%d %s %" PRIu64 " %" PRIu64 " %s\t%s\t%s\n", o->pid, policies[o->did], o->opens, o->when, o->pod,
			o->program, o->path);
	}
	err = fclose(f) == 0 ? sfs_root_note(r, NAME, text) : -ENOMEM;
	free(text);
	return err;
}

static bool get_one(FILE *f, struct sfs_unserved_one *o)
{
	char did[16];

	return fscanf(f, "%d %15s %" SCNu64 " %" SCNu64 " %63[^\t]\t%255[^\t]\t%255[^\n]", &o->pid, did, &o->opens, &o->when,
		      o->pod, o->program, o->path) == 7 &&
	       sfs_unserved_parse(did, &o->did);
}

void sfs_unserved_read(const struct sfs_root *r, struct sfs_unserved_list *l)
{
	const int fd = openat(r->ctl, NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
	char state[16];
	int s;

	memset(l, 0, sizeof(*l));
	if (!f) {
		if (fd >= 0)
			close(fd);
		return;
	}
	if (fscanf(f, "%15s %" SCNu64 " %" SCNu64, state, &l->refused, &l->durable) == 3 && (s = find(states, 3, state)) >= 0) {
		l->state = (enum sfs_enforcement)s;
		while (l->n < SFS_UNSERVED_MAX && get_one(f, &l->v[l->n]))
			l->n++;
	}
	fclose(f);
}
