/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that does not read its event socket for a while: its process is stopped (SIGSTOP). As many files are asked of it as fill the socket,
 * and then the question that it has asked itself is answered. It stays a client, with what it has, and gets all of that when it goes on.
 */
#include "played.h"

#define FILES 700 /* the kernel takes some 280 messages */

static struct played_agent a;
static struct world w;
static struct world_file f, many[FILES];

static void hello(struct played *c)
{
	CHECK_EQ(played_hello_knows(c, &a, SFS_POSIX, 0, f.fd, SFS_FEATURES), 0);
}

static void acquire(struct played *c, const struct world_file *file, uint64_t flags, int expected)
{
	CHECK_EQ(played_acquire(c, file, flags), expected);
}

/* What it has been sent meanwhile: each REVOKE once, and the answer. */
static void drain(struct played *c)
{
	unsigned revokes = 0, looked = 0;
	struct sfs_msg m;

	while (revokes < FILES || looked < 1) {
		CHECK_EQ(played_recv(c->event, &m, NULL, 0, PATIENCE), 1);
		if (m.type == SFS_MSG_REVOKE) {
			revokes++;
			played_revoked(c, &m, true);
		} else {
			CHECK_EQ(m.type, SFS_MSG_LOOKED);
			CHECK_EQ(m.status, 0);
			CHECK_EQ(m.a, f.ino);
			CHECK_EQ(m.d, 1);
			looked++;
		}
	}
	CHECK_EQ(played_recv(c->event, &m, NULL, 0, 50), -EAGAIN);
}

static void deaf(void)
{
	const struct sfs_msg look = {.version = SFS_PROTO_OLDEST, .type = SFS_MSG_LOOK, .a = f.ino, .d = 1};
	struct played stopped, holder, other;
	struct sfs_msg m;

	hello(&stopped);
	hello(&holder);
	hello(&other);
	for (unsigned i = 0; i < FILES; i++)
		acquire(&stopped, &many[i], SFS_ACQ_TRY, SFS_DELEG_EXCLUSIVE);
	acquire(&holder, &f, SFS_ACQ_TRY, SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(played_send(stopped.event, &look, sizeof(look), NULL, 0), 0);
	CHECK_EQ(played_revoke(&holder, &f, PATIENCE, &m), SFS_DELEG_NONE);
	for (unsigned i = 0; i < FILES; i++)
		acquire(&other, &many[i], 0, SFS_DELEG_NONE); /* queued */
	played_revoked(&holder, &m, true);
	CHECK_EQ(played_recv(stopped.sock, &m, NULL, 0, 200), -EAGAIN); /* the agent has not hung up */
	drain(&stopped);
	/* The next one is answered as well. */
	CHECK_EQ(played_send(stopped.event, &look, sizeof(look), NULL, 0), 0);
	CHECK_EQ(played_recv(stopped.event, &m, NULL, 0, PATIENCE), 1);
	CHECK_EQ(m.type, SFS_MSG_LOOKED);
	played_close(&other);
	played_close(&holder);
	played_close(&stopped);
}

int main(void)
{
	char name[32];

	world_new(&w);
	f = world_file(&w, "f", 'o', 100);
	for (unsigned i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		many[i] = world_file(&w, name, 'o', 10);
	}
	agent_start(&a, &w);
	deaf();
	agent_end(&a);
	for (unsigned i = 0; i < FILES; i++)
		close(many[i].fd);
	close(f.fd);
	world_end(&w);
	return 0;
}
