/* SPDX-License-Identifier: Apache-2.0 */
/* A client that does not answer its REVOKE: who waits for it goes on waiting, and everybody can see who waits for whom. */
#include "played.h"
#include "control/blocked.h"

static struct world w;

static struct sfs_blocked_list look(void)
{
	struct sfs_blocked_list l;

	sfs_blocked_read(&w.root, &l);
	return l;
}

int main(void)
{
	const struct sfs_agent_config config = {
		.pool_bytes = 8u << 20, .chunk_bytes = WORLD_CHUNK, .log_bytes = 64 << 10, .overdue_ms = 300};
	struct played_agent a = {0};
	struct sfs_blocked_list l;
	struct world_file f;
	struct played c[3];
	struct sfs_msg m;

	world_new(&w);
	f = world_file(&w, "f", 'o', 100);
	agent_start_with(&a, &w, &config);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(played_hello(&c[i], &a, SFS_STRICT, 0, f.fd), 0);
	CHECK_EQ(played_acquire(&c[0], &f, 0), SFS_DELEG_EXCLUSIVE);
	played_ask(&c[1], &f, f.fd, 0);
	CHECK_EQ(played_revoke(&c[0], &f, PATIENCE, &m), SFS_DELEG_SHARED);
	CHECK_EQ(look().n, 0);
	EVENTUALLY(look().n == 1);
	l = look();
	CHECK_EQ(l.total, 1);
	CHECK_EQ(l.v[0].pid, getpid());
	CHECK_EQ(l.v[0].held_by, getpid());
	CHECK_EQ(l.v[0].ino, f.ino);
	played_ask(&c[2], &f, f.fd, 0);
	EVENTUALLY(look().n == 2);
	CHECK_EQ(look().total, 2);
	/* Nothing is taken from the holder, however long it takes. */
	CHECK_EQ(played_answer(&c[1], 700), -EAGAIN);
	CHECK_EQ(look().total, 2);
	played_revoked(&c[0], &m, true);
	CHECK_EQ(played_answer(&c[1], PATIENCE), SFS_DELEG_SHARED);
	CHECK_EQ(played_answer(&c[2], PATIENCE), SFS_DELEG_SHARED);
	EVENTUALLY(look().n == 0);
	CHECK_EQ(look().total, 2);
	for (int i = 0; i < 3; i++)
		played_close(&c[i]);
	agent_end(&a);
	close(f.fd);
	world_end(&w);
	return 0;
}
