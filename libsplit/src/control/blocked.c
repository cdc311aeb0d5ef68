/* SPDX-License-Identifier: Apache-2.0 */
#include "control/blocked.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME "blocked"
#define TMP  "blocked.tmp"

int sfs_blocked_write(const struct sfs_root *r, const struct sfs_blocked_list *l)
{
	int fd = openat(r->ctl, TMP, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600), err;

	if (fd < 0)
		return -errno;
	err = sfs_root_own(r, fd);
	if (!err && dprintf(fd, "total %" PRIu64 "\n", l->total) < 0)
		err = -errno;
	for (uint32_t i = 0; !err && i < l->n; i++)
		if (dprintf(fd, "%d %d %" PRIu64 " %" PRIu64 "\n", l->v[i].pid, l->v[i].held_by, l->v[i].ino, l->v[i].since) <
		    0)
			err = -errno;
	close(fd);
	if (!err && renameat(r->ctl, TMP, r->ctl, NAME) < 0)
		err = -errno;
	if (err)
		unlinkat(r->ctl, TMP, 0);
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
