/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that wait for nobody on their request socket: an ACQUIRE is queued, the client is told when its turn has come, and asks again.
 * Those who asked first come first, whatever the others do meanwhile; who is called and does not come loses its place; who is stopped,
 * closed or dead keeps nobody waiting.
 */
#include "played.h"

static struct world w;
static struct played_agent a;
static struct world_file f, g;
static struct played c[3], old;

enum { QUEUED = -1000 };

/* The delegation, or QUEUED. */
static int acquire(struct played *p, const struct world_file *file, uint64_t flags)
{
	struct sfs_msg m;

	played_ask(p, file, file->fd, flags);
	CHECK_EQ(played_recv(p->sock, &m, NULL, 0, PATIENCE), 1);
	CHECK(m.type == SFS_MSG_ACQUIRE && m.status == 0);
	CHECK(m.b != SFS_ACQ_QUEUED || m.a == SFS_DELEG_NONE);
	return m.b == SFS_ACQ_QUEUED ? QUEUED : (int)m.a;
}

static bool turn(struct played *p, const struct world_file *file, int ms)
{
	struct sfs_msg m;

	if (played_recv(p->event, &m, NULL, 0, ms) != 1)
		return false;
	CHECK(m.type == SFS_MSG_TURN && m.a == file->ino && m.b == file->gen);
	return true;
}

/* The holder gives the file up to whom it is asked for. */
static void give_up(struct played *p, const struct world_file *file, int to)
{
	struct sfs_msg m;

	CHECK_EQ(played_revoke(p, file, PATIENCE, &m), to);
	played_revoked(p, &m, true);
}

/* RELEASE has no answer, but a question behind it has one; here an ACQUIRE without a descriptor. */
static void release(struct played *p, const struct world_file *file)
{
	struct sfs_msg m = {.version = SFS_PROTO_OLDEST, .type = SFS_MSG_ACQUIRE, .a = file->ino, .b = file->gen};

	played_notify(p, SFS_MSG_RELEASE, file->ino, file->gen);
	CHECK_EQ(played_send(p->sock, &m, sizeof(m), NULL, 0), 0);
	CHECK_EQ(played_recv(p->sock, &m, NULL, 0, PATIENCE), 1);
	CHECK_EQ(m.status, -EINVAL);
}

/* Others go on: the same client's other files, and other clients. */
static void nobody_waits(void)
{
	CHECK_EQ(acquire(&c[0], &f, 0), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(acquire(&c[1], &f, 0), QUEUED);
	CHECK_EQ(acquire(&c[1], &f, 0), QUEUED); /* another thread of it */
	CHECK_EQ(acquire(&c[1], &g, 0), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(acquire(&c[1], &f, SFS_ACQ_TRY), SFS_DELEG_NONE);
	CHECK(!turn(&c[1], &f, 100));
	give_up(&c[0], &f, SFS_DELEG_SHARED);
	CHECK(turn(&c[1], &f, PATIENCE));
	CHECK_EQ(acquire(&c[1], &f, 0), SFS_DELEG_SHARED);
	CHECK(!turn(&c[1], &f, 100));
	release(&c[0], &f);
	release(&c[1], &f);
	release(&c[1], &g);
}

/* In the order in which they asked, also where the one that gave it up asks again at once; one of an older release is answered late. */
static void in_order(void)
{
	struct sfs_msg m;

	CHECK_EQ(acquire(&c[0], &f, SFS_ACQ_EXCLUSIVE), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(acquire(&c[1], &f, SFS_ACQ_EXCLUSIVE), QUEUED);
	played_ask(&old, &f, f.fd, SFS_ACQ_EXCLUSIVE);
	CHECK_EQ(acquire(&c[2], &f, SFS_ACQ_EXCLUSIVE), QUEUED);
	give_up(&c[0], &f, SFS_DELEG_NONE);
	CHECK_EQ(acquire(&c[0], &f, SFS_ACQ_EXCLUSIVE), QUEUED);
	CHECK(turn(&c[1], &f, PATIENCE));
	CHECK_EQ(played_answer(&old, 50), -EAGAIN);
	CHECK_EQ(acquire(&c[1], &f, SFS_ACQ_EXCLUSIVE), SFS_DELEG_EXCLUSIVE);
	give_up(&c[1], &f, SFS_DELEG_NONE);
	CHECK_EQ(played_answer(&old, PATIENCE), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(played_revoke(&old, &f, PATIENCE, &m), SFS_DELEG_NONE);
	played_revoked(&old, &m, true);
	CHECK(turn(&c[2], &f, PATIENCE));
	CHECK_EQ(acquire(&c[2], &f, SFS_ACQ_EXCLUSIVE), SFS_DELEG_EXCLUSIVE);
	give_up(&c[2], &f, SFS_DELEG_NONE);
	CHECK(turn(&c[0], &f, PATIENCE));
	CHECK_EQ(acquire(&c[0], &f, SFS_ACQ_EXCLUSIVE), SFS_DELEG_EXCLUSIVE);
	for (int i = 0; i < 3; i++)
		release(&c[i], &f);
	release(&old, &f);
}

/* A signal has ended its wait, or it has closed the file: who is behind it does not wait for long. */
static void who_does_not_come(bool closes)
{
	CHECK_EQ(acquire(&c[0], &f, SFS_ACQ_EXCLUSIVE), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(acquire(&c[1], &f, SFS_ACQ_EXCLUSIVE), QUEUED);
	CHECK_EQ(acquire(&c[2], &f, SFS_ACQ_EXCLUSIVE), QUEUED);
	if (closes)
		release(&c[1], &f);
	give_up(&c[0], &f, SFS_DELEG_NONE);
	CHECK(closes || turn(&c[1], &f, PATIENCE));
	CHECK(turn(&c[2], &f, PATIENCE));
	CHECK_EQ(acquire(&c[2], &f, SFS_ACQ_EXCLUSIVE), SFS_DELEG_EXCLUSIVE);
	/* It comes late, and asks like everybody else. */
	CHECK_EQ(acquire(&c[1], &f, SFS_ACQ_EXCLUSIVE), QUEUED);
	give_up(&c[2], &f, SFS_DELEG_NONE);
	CHECK(turn(&c[1], &f, PATIENCE));
	CHECK_EQ(acquire(&c[1], &f, SFS_ACQ_EXCLUSIVE), SFS_DELEG_EXCLUSIVE);
	for (int i = 0; i < 3; i++)
		release(&c[i], &f);
}

/* It waits, does not read its events, and ends: in the queue, and when it has been called. */
static void who_dies(bool called)
{
	struct played dies;

	CHECK_EQ(played_hello_knows(&dies, &a, SFS_STRICT, 0, f.fd, SFS_FEATURES), 0);
	CHECK_EQ(acquire(&c[0], &f, SFS_ACQ_EXCLUSIVE), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(acquire(&dies, &f, SFS_ACQ_EXCLUSIVE), QUEUED);
	CHECK_EQ(acquire(&c[2], &f, SFS_ACQ_EXCLUSIVE), QUEUED);
	if (called) {
		give_up(&c[0], &f, SFS_DELEG_NONE);
		CHECK(turn(&dies, &f, PATIENCE));
		played_close(&dies);
	} else {
		played_close(&dies);
		give_up(&c[0], &f, SFS_DELEG_NONE);
	}
	CHECK(turn(&c[2], &f, PATIENCE));
	CHECK_EQ(acquire(&c[2], &f, SFS_ACQ_EXCLUSIVE), SFS_DELEG_EXCLUSIVE);
	release(&c[0], &f);
	release(&c[2], &f);
}

/*
 * Its event socket is full, as that of a stopped process is: it is not dropped, as it may have staged something, others get the file, and it is
 * told when it reads again.
 */
static void who_does_not_read(void)
{
	enum { MANY = 2000 };
	static struct world_file many[MANY];
	struct played full;
	struct sfs_msg m;
	int waiting = 0, seen = 0;
	bool told = false;
	char name[16];

	CHECK_EQ(played_hello_knows(&full, &a, SFS_STRICT, 0, f.fd, SFS_FEATURES), 0);
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "m%d", i);
		many[i] = world_file(&w, name, 'm', 10);
		CHECK_EQ(acquire(&full, &many[i], 0), SFS_DELEG_EXCLUSIVE);
	}
	CHECK_EQ(acquire(&c[0], &f, SFS_ACQ_EXCLUSIVE), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(acquire(&full, &f, SFS_ACQ_EXCLUSIVE), QUEUED);
	for (int i = 0; i < MANY; i++)
		waiting += acquire(&c[1], &many[i], 0) == QUEUED;
	CHECK_EQ(waiting, MANY);
	CHECK_EQ(acquire(&c[2], &f, SFS_ACQ_EXCLUSIVE), QUEUED);
	give_up(&c[0], &f, SFS_DELEG_NONE);
	CHECK(turn(&c[2], &f, PATIENCE));
	CHECK_EQ(acquire(&c[2], &f, SFS_ACQ_EXCLUSIVE), SFS_DELEG_EXCLUSIVE);
	while (seen < MANY || !told) {
		CHECK_EQ(played_recv(full.event, &m, NULL, 0, PATIENCE), 1);
		told = told || m.type == SFS_MSG_TURN;
		seen += m.type == SFS_MSG_REVOKE;
	}
	CHECK_EQ(acquire(&full, &f, SFS_ACQ_EXCLUSIVE), QUEUED);
	release(&c[2], &f);
	CHECK(turn(&full, &f, PATIENCE));
	CHECK_EQ(acquire(&full, &f, SFS_ACQ_EXCLUSIVE), SFS_DELEG_EXCLUSIVE);
	played_close(&full);
	/* More turns at once than its own socket takes: it hears of each. */
	for (int i = 0; i < MANY; i++) {
		int which = 0;

		CHECK_EQ(played_recv(c[1].event, &m, NULL, 0, PATIENCE), 1);
		CHECK_EQ(m.type, SFS_MSG_TURN);
		while (which < MANY && many[which].ino != m.a)
			which++;
		CHECK(which < MANY);
		CHECK_EQ(acquire(&c[1], &many[which], 0), SFS_DELEG_EXCLUSIVE);
		release(&c[1], &many[which]);
		close(many[which].fd);
		many[which].ino = 0;
	}
	release(&c[0], &f);
}

int main(void)
{
	world_new(&w);
	f = world_file(&w, "f", 'o', 100);
	g = world_file(&w, "g", 'o', 100);
	agent_start(&a, &w);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(played_hello_knows(&c[i], &a, SFS_STRICT, 0, f.fd, SFS_FEATURES), 0);
	CHECK_EQ(played_hello(&old, &a, SFS_STRICT, 0, f.fd), 0);
	nobody_waits();
	in_order();
	who_does_not_come(false);
	who_does_not_come(true);
	who_dies(false);
	who_dies(true);
	who_does_not_read();
	for (int i = 0; i < 3; i++)
		played_close(&c[i]);
	played_close(&old);
	agent_end(&a);
	close(f.fd);
	close(g.fd);
	world_end(&w);
	return 0;
}
