/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which version of the protocol a client and the agent both speak (proto.h). Whom the agent can't understand is served by the kernel, or in
 * strict not at all; that is said in the agent's log and in `splitfs status`. One that had a log before the agent was replaced keeps it
 * for as long as its process lives: what it has staged is safe, and nobody else gets those files.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agent/internal.h"

void versions_start(struct agent *a)
{
	int err;

	a->refused.agent = sfs_versions_of(SFS_PROTO_OLDEST, SFS_PROTO_NEWEST);
	err = sfs_refused_write(&a->root, &a->refused);
	if (err)
		agent_log(a, "write the versions: %s", strerror(-err));
}

static void refuse(struct agent *a, struct client *c, const struct sfs_msg *m, struct sfs_versions theirs)
{
	struct sfs_msg reply = {.type = m->type, .status = -EPROTONOSUPPORT, .a = SFS_PROTO_OLDEST, .b = SFS_PROTO_NEWEST};
	int err;

	a->refused.total++;
	a->refused.client = theirs;
	a->refused.pid = c->pid;
	a->refused.when = (uint64_t)time(NULL);
	agent_log(a, "process %d (%s) speaks versions %u to %u of the protocol and this agent %u to %u; %s", c->pid, c->comm,
		  theirs.oldest, theirs.newest, SFS_PROTO_OLDEST, SFS_PROTO_NEWEST,
		  theirs.newest < SFS_PROTO_OLDEST ? "start its pod anew" : "update SplitFS on this node");
	err = sfs_refused_write(&a->root, &a->refused);
	if (err)
		agent_log(a, "write the versions: %s", strerror(-err));
	snprintf(reply.text, sizeof(reply.text), "agent speaks %u to %u", SFS_PROTO_OLDEST, SFS_PROTO_NEWEST);
	if (client_reply(a, c, &reply, NULL, 0) == 0)
		client_drop(a, c, NULL);
}

bool versions_meet(struct agent *a, struct client *c, const struct sfs_msg *m)
{
	const struct sfs_versions theirs = sfs_versions_of(m->version, m->d);

	c->version = sfs_versions_meet(theirs);
	if (c->version)
		return true;
	c->version = m->version; /* that it understands */
	refuse(a, c, m, theirs);
	return false;
}
