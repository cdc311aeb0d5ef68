/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that may only read a file looks at its memory. From then on who opens the file for writing without the
 * library waits until the client has stepped down, and who reads it does not wait. Who has it open for writing
 * already is found.
 */
#include "outsider.h"

static struct world w;
static struct played_agent a;

static void send_watch(struct played *c, const struct world_file *f, int fd, struct sfs_msg *m)
{
	*m = (struct sfs_msg){.version = SFS_PROTO_OLDEST, .type = SFS_MSG_WATCH, .a = f->ino, .b = f->gen};
	CHECK_EQ(played_send(c->sock, m, sizeof(*m), &fd, fd >= 0), 0);
	CHECK_EQ(played_recv(c->sock, m, NULL, 0, PATIENCE), 1);
	CHECK_EQ(m->type, SFS_MSG_WATCH);
}

static int watched(struct played *c, const struct world_file *f, int fd)
{
	struct sfs_msg m;

	send_watch(c, f, fd, &m);
	CHECK_EQ(m.status, 0);
	return (int)m.a;
}

static int acquired(struct played *c, const struct world_file *f, int fd, uint64_t flags)
{
	played_ask(c, f, fd, flags);
	return played_answer(c, PATIENCE);
}

int main(void)
{
	struct world_file f;
	struct outsider o;
	struct played c;
	struct sfs_msg m;
	char path[256];
	int fd;

	if (geteuid() != 0) {
		printf("the kernel asks root only\n");
		return 77;
	}
	world_new(&w);
	f = world_file(&w, "f", 'o', 100);
	snprintf(path, sizeof(path), "%s/f", w.dir);
	fd = open(path, O_RDONLY);
	close(f.fd);
	CHECK(fd >= 0);
	agent_start(&a, &w);
	CHECK_EQ(played_hello(&c, &a, SFS_POSIX, 0, fd), 0);

	/* What is no file, and a file that it has not got. */
	send_watch(&c, &f, -1, &m);
	CHECK_EQ(m.status, -EINVAL);
	send_watch(&c, &f, a.pid > 0 ? c.log_fd : -1, &m);
	CHECK(m.status < 0);
	CHECK_EQ(watched(&c, &f, fd), 0);

	/* A reader is no reason to be asked; a writer is, and waits. */
	CHECK_EQ(acquired(&c, &f, fd, 0), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(watched(&c, &f, fd), 1);
	o = outsider_open(&w, O_RDONLY);
	CHECK_EQ(outsider_said(&o, PATIENCE), 'o');
	outsider_close(&o);
	outsider_end(&o);
	CHECK_EQ(played_revoke(&c, &f, 50, &m), -1);
	o = outsider_open(&w, O_WRONLY);
	CHECK_EQ(played_revoke(&c, &f, PATIENCE, &m), SFS_DELEG_NONE);
	CHECK(!outsider_said(&o, 100));
	played_revoked(&c, &m, true);
	CHECK_EQ(outsider_said(&o, PATIENCE), 'o');
	/* As long as it has the file nobody has it alone, and the agent knows. */
	CHECK_EQ(acquired(&c, &f, fd, 0), SFS_DELEG_SHARED);
	CHECK_EQ(watched(&c, &f, fd), 0);
	outsider_close(&o);
	outsider_end(&o);
	played_give_up(&c, &f);
	CHECK_EQ(acquired(&c, &f, fd, 0), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(watched(&c, &f, fd), 1);
	played_notify(&c, SFS_MSG_RELEASE, f.ino, f.gen);

	/* One that was there before anybody asked. */
	o = outsider_open(&w, O_RDWR);
	CHECK_EQ(outsider_said(&o, PATIENCE), 'o');
	CHECK_EQ(acquired(&c, &f, fd, 0), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(watched(&c, &f, fd), 0);
	outsider_close(&o);
	outsider_end(&o);
	CHECK_EQ(watched(&c, &f, fd), 1);

	/* The agent after this one is told. */
	agent_stop(&a, SIGKILL);
	agent_start(&a, &w);
	played_close(&c);
	CHECK_EQ(played_hello(&c, &a, SFS_POSIX, 0, fd), 0);
	CHECK_EQ(acquired(&c, &f, fd, SFS_ACQ_RECLAIM | SFS_ACQ_WATCH), SFS_DELEG_EXCLUSIVE);
	o = outsider_open(&w, O_WRONLY);
	CHECK_EQ(played_revoke(&c, &f, PATIENCE, &m), SFS_DELEG_NONE);
	CHECK(!outsider_said(&o, 100));
	played_revoked(&c, &m, true);
	CHECK_EQ(outsider_said(&o, PATIENCE), 'o');
	outsider_close(&o);
	outsider_end(&o);

	played_close(&c);
	agent_end(&a);
	close(fd);
	world_end(&w);
	return 0;
}
