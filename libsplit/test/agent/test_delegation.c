/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets EXCLUSIVE and SHARED, who waits for whom, and what answers that cross each other do. Each client is a process or plays one. */
#include <sys/file.h>

#include "played.h"

static struct played_agent a;
static struct world w;
static struct world_file f;
static struct played c[3];

static void hello_all(void)
{
	for (int i = 0; i < 3; i++)
		CHECK_EQ(played_hello(&c[i], &a, SFS_STRICT, 0, f.fd), 0);
}

static void bye_all(void)
{
	for (int i = 0; i < 3; i++)
		played_close(&c[i]);
	EVENTUALLY(world_entries(&w, w.root.log) <= SFS_SPARE_LOGS_MAX + 2 * SFS_KEPT_LOGS_MAX);
}

static void exclusive_then_shared(bool echo)
{
	struct sfs_msg m;

	hello_all();
	CHECK_EQ(played_acquire(&c[0], &f, 0), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(played_acquire(&c[0], &f, 0), SFS_DELEG_EXCLUSIVE); /* again, as for another open */
	played_ask(&c[1], &f, f.fd, 0);
	CHECK_EQ(played_revoke(&c[0], &f, PATIENCE, &m), SFS_DELEG_SHARED);
	CHECK_EQ(played_answer(&c[1], 50), -EAGAIN); /* not before the holder has stepped down */
	played_revoked(&c[0], &m, echo);
	CHECK_EQ(played_answer(&c[1], PATIENCE), SFS_DELEG_SHARED);
	CHECK_EQ(played_acquire(&c[2], &f, 0), SFS_DELEG_SHARED);
	/* Alone again: EXCLUSIVE, but only when asked. */
	played_notify(&c[0], SFS_MSG_RELEASE, f.ino, f.gen);
	played_notify(&c[1], SFS_MSG_RELEASE, f.ino, f.gen);
	EVENTUALLY(played_acquire(&c[2], &f, 0) == SFS_DELEG_EXCLUSIVE);
	bye_all();
}

static void exclusive_on_demand(void)
{
	struct sfs_msg m;

	hello_all();
	CHECK_EQ(played_acquire(&c[0], &f, 0), SFS_DELEG_EXCLUSIVE);
	played_ask(&c[1], &f, f.fd, SFS_ACQ_EXCLUSIVE);
	CHECK_EQ(played_revoke(&c[0], &f, PATIENCE, &m), SFS_DELEG_NONE);
	played_revoked(&c[0], &m, false);
	CHECK_EQ(played_answer(&c[1], PATIENCE), SFS_DELEG_EXCLUSIVE);
	/* A plain request of the first takes it down to SHARED. */
	played_ask(&c[0], &f, f.fd, 0);
	CHECK_EQ(played_revoke(&c[1], &f, PATIENCE, &m), SFS_DELEG_SHARED);
	played_revoked(&c[1], &m, true);
	CHECK_EQ(played_answer(&c[0], PATIENCE), SFS_DELEG_SHARED);
	bye_all();
}

/*
 * Two that share a file both want it alone at once. Each is inside of its own lock until it has its answer, so neither can
 * answer a REVOKE before: the agent must not wait for that.
 */
static void both_at_once(bool echo, bool early)
{
	struct sfs_msg m, stale;

	hello_all();
	CHECK_EQ(played_acquire(&c[0], &f, 0), SFS_DELEG_EXCLUSIVE);
	played_ask(&c[1], &f, f.fd, 0);
	CHECK_EQ(played_revoke(&c[0], &f, PATIENCE, &m), SFS_DELEG_SHARED);
	played_revoked(&c[0], &m, echo);
	CHECK_EQ(played_answer(&c[1], PATIENCE), SFS_DELEG_SHARED);

	played_ask(&c[0], &f, f.fd, SFS_ACQ_EXCLUSIVE);
	CHECK_EQ(played_revoke(&c[1], &f, PATIENCE, &stale), SFS_DELEG_NONE);
	played_ask(&c[1], &f, f.fd, SFS_ACQ_EXCLUSIVE); /* crosses the REVOKE */
	CHECK_EQ(played_answer(&c[0], PATIENCE), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(played_answer(&c[1], 50), -EAGAIN);
	CHECK_EQ(played_revoke(&c[0], &f, PATIENCE, &m), SFS_DELEG_NONE);
	played_revoked(&c[0], &m, echo);
	CHECK_EQ(played_answer(&c[1], PATIENCE), SFS_DELEG_EXCLUSIVE);
	/* Now the answer to the old REVOKE arrives. It must not make the agent believe that the file is free. */
	if (early)
		played_revoked(&c[1], &stale, echo);
	played_ask(&c[0], &f, f.fd, SFS_ACQ_EXCLUSIVE);
	CHECK_EQ(played_revoke(&c[1], &f, PATIENCE, &m), SFS_DELEG_NONE);
	if (!early)
		played_revoked(&c[1], &stale, echo);
	CHECK_EQ(played_answer(&c[0], 50), -EAGAIN);
	played_revoked(&c[1], &m, echo);
	CHECK_EQ(played_answer(&c[0], PATIENCE), SFS_DELEG_EXCLUSIVE);
	bye_all();
}

/* A holder that is gone is recovered before anybody else gets the file, and one that waits and goes leaves the queue. */
static void waiting_and_gone(void)
{
	struct sfs_msg m;

	hello_all();
	CHECK_EQ(played_acquire(&c[0], &f, 0), SFS_DELEG_EXCLUSIVE);
	played_ask(&c[1], &f, f.fd, 0);
	CHECK_EQ(played_revoke(&c[0], &f, PATIENCE, &m), SFS_DELEG_SHARED);
	played_ask(&c[2], &f, f.fd, 0);
	close(c[1].sock);
	CHECK_EQ(played_answer(&c[2], 50), -EAGAIN);
	close(c[0].sock);
	CHECK(played_answer(&c[2], PATIENCE) > SFS_DELEG_NONE);
	c[0].sock = c[1].sock = -1;
	bye_all();
}

static void first_come(void)
{
	struct sfs_msg m;

	hello_all();
	CHECK_EQ(played_acquire(&c[0], &f, 0), SFS_DELEG_EXCLUSIVE);
	played_ask(&c[1], &f, f.fd, SFS_ACQ_EXCLUSIVE);
	CHECK_EQ(played_revoke(&c[0], &f, PATIENCE, &m), SFS_DELEG_NONE);
	played_ask(&c[2], &f, f.fd, SFS_ACQ_EXCLUSIVE);
	/* Another file does not wait for this one. */
	{
		struct world_file g = world_file(&w, "g", 'x', 10);
		struct played d;

		CHECK_EQ(played_hello(&d, &a, SFS_POSIX, 0, f.fd), 0);
		CHECK_EQ(played_acquire(&d, &g, 0), SFS_DELEG_EXCLUSIVE);
		played_close(&d);
		close(g.fd);
		CHECK_EQ(unlinkat(w.root.fd, "g", 0), 0);
	}
	played_revoked(&c[0], &m, false);
	CHECK_EQ(played_answer(&c[1], PATIENCE), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(played_answer(&c[2], 50), -EAGAIN);
	CHECK_EQ(played_revoke(&c[1], &f, PATIENCE, &m), SFS_DELEG_NONE);
	played_revoked(&c[1], &m, false);
	CHECK_EQ(played_answer(&c[2], PATIENCE), SFS_DELEG_EXCLUSIVE);
	bye_all();
}

/* What comes with a request is closed before it is answered: a lock of that description goes with the client's own close. */
static void locks_end(void)
{
	struct world_file g = f;
	struct played c;
	char path[32];

	CHECK_EQ(played_hello(&c, &a, SFS_POSIX, 0, f.fd), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", f.fd);
	for (int i = 0; i < 300; i++) {
		g.fd = open(path, O_RDWR | O_CLOEXEC);
		CHECK(g.fd >= 0);
		CHECK_EQ(flock(g.fd, LOCK_EX | LOCK_NB), 0);
		CHECK_EQ(played_acquire(&c, &g, 0), SFS_DELEG_EXCLUSIVE);
		close(g.fd);
	}
	played_close(&c);
}

static void bad_requests(void)
{
	struct world_file g = f;
	int ro, path, pipes[2], dir;

	hello_all();
	ro = openat(w.root.fd, "f", O_RDONLY);
	path = openat(w.root.fd, "f", O_PATH);
	dir = openat(w.root.fd, ".", O_RDONLY);
	CHECK_EQ(pipe(pipes), 0);
	played_ask(&c[0], &f, path, 0);
	CHECK_EQ(played_answer(&c[0], PATIENCE), -EBADF);
	played_ask(&c[0], &f, pipes[0], 0);
	CHECK_EQ(played_answer(&c[0], PATIENCE), -EINVAL);
	played_ask(&c[0], &f, dir, 0);
	CHECK_EQ(played_answer(&c[0], PATIENCE), -EINVAL);
	g.ino++;
	CHECK_EQ(played_acquire(&c[0], &g, 0), -EINVAL);
	g.ino--;
	g.gen++;
	CHECK_EQ(played_acquire(&c[0], &g, 0), -ESTALE);
	CHECK_EQ(played_acquire(&c[0], &f, 4), -EINVAL);
	/* Released although it never was acquired: nothing happens. */
	played_notify(&c[0], SFS_MSG_RELEASE, f.ino, f.gen);
	played_notify(&c[0], SFS_MSG_RELEASE, f.ino + 1, f.gen);
	played_ask(&c[0], &f, ro, 0);
	CHECK_EQ(played_answer(&c[0], PATIENCE), SFS_DELEG_EXCLUSIVE);
	close(ro);
	close(path);
	close(dir);
	close(pipes[0]);
	close(pipes[1]);
	bye_all();
}

int main(void)
{
	world_new(&w);
	f = world_file(&w, "f", 'o', 100);
	agent_start(&a, &w);
	for (int echo = 0; echo < 2; echo++) {
		exclusive_then_shared(echo);
		both_at_once(echo, true);
		both_at_once(echo, false);
	}
	exclusive_on_demand();
	waiting_and_gone();
	first_come();
	locks_end();
	bad_requests();
	agent_end(&a);
	close(f.fd);
	world_end(&w);
	return 0;
}
