/* SPDX-License-Identifier: Apache-2.0 */
#include "control/blocked.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "blocked"

int sfs_blocked_write(const struct sfs_root *r, const struct sfs_blocked_list *l)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);
	int err;

	if (!f)
		return -errno;
	fprintf(f, "total %" PRIu64 "\n", l->total);
	for (uint32_t i = 0; i < l->n; i++)
		fprintf(f, "%d %d %" PRIu64 " %" PRIu64 "\n", l->v[i].pid, l->v[i].held_by, l->v[i].ino, l->v[i].since);
	err = fclose(f) == 0 ? sfs_root_note(r, NAME, text) : -ENOMEM;
	free(text);
	return err;
}

void sfs_blocked_read(const struct sfs_root *r, struct sfs_blocked_list *l)
{
	const int fd = openat(r->ctl, NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;

	memset(l, 0, sizeof(*l));
	if (!f) {
		if (fd >= 0)
			close(fd);
		return;
	}
	if (fscanf(f, "total %" SCNu64, &l->total) == 1) {
		struct sfs_blocked *b = l->v;

		while (l->n < SFS_BLOCKED_MAX &&
		       fscanf(f, "%d %d %" SCNu64 " %" SCNu64, &b->pid, &b->held_by, &b->ino, &b->since) == 4) {
			l->n++;
			b++;
		}
	}
	fclose(f);
}
