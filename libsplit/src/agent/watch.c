/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WATCH: a client looks at a file's own memory, which is not to change while it does. Other clients are granted
 * nothing before it has stepped down. Programs without the library are let in after that, too, when the inode is
 * marked (outsider.c): files that a client may write are, those that it only reads are from here on. What such a
 * program had open before is found by the kernel's count of writers, where the client itself is not one of them: a
 * read lease is refused while there are any, mappings included.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "agent/internal.h"
#include "base/sys.h"

static bool watch(struct agent *a, struct dnode *d, struct hold *h, int fd)
{
	/* A REVOKE that is under way has been sent for somebody who waits. */
	if (!h->open || h->assumed || h->deleg != SFS_DELEG_EXCLUSIVE || h->revoking || d->writers || d->opening)
		return false;
	target_keep(a, &h->target, fd);
	outsider_mark(a, d, &h->target);
	return d->marked && (h->lease_index >= 0 || sys_may_lease(fd, F_RDLCK));
}

void deleg_watch(struct agent *a, struct client *c, const struct sfs_msg *m, int *fd)
{
	struct sfs_msg reply = {.type = SFS_MSG_WATCH};
	int flags, err = deleg_check(a, m, *fd, &flags);
	struct dnode *d;
	struct hold *h;

	if (err) {
		client_reply_error(a, c, SFS_MSG_WATCH, err, "not an open file of it");
		return;
	}
	d = deleg_find(a, m->a, (uint32_t)m->b);
	h = d ? hold_find(d, c) : NULL;
	reply.a = h && watch(a, d, h, *fd);
	close(*fd);
	*fd = -1;
	client_reply(a, c, &reply, NULL, 0);
}
