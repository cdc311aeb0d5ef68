/* SPDX-License-Identifier: Apache-2.0 */
/* Programs without the library open files of clients: who has to step down, who has to wait, and how long. */
#include "outsider.h"

#include <sys/ptrace.h>

static struct world w;
static struct played_agent a;

/* The client gives the file up when it is asked, and only then the open goes on. */
static void step_down(struct played *c, const struct world_file *f, struct outsider *o)
{
	struct sfs_msg m;

	CHECK_EQ(played_revoke(c, f, PATIENCE, &m), SFS_DELEG_NONE);
	CHECK_EQ(outsider_said(o, 100), 0);
	played_revoked(c, &m, true);
	CHECK_EQ(outsider_said(o, PATIENCE), 'o');
}

int main(void)
{
	struct played c[2];
	struct world_file f;
	struct outsider o, o2, o3;
	struct sfs_msg m;
	uint32_t chunk;
	pid_t debugger;
	char buf[100];
	int fd, status;

	outsider_world(&w, &a, &f, 100);
	CHECK_EQ(played_hello(&c[0], &a, SFS_POSIX, 0, f.fd), 0);

	/* A reader: once. The client may have the file again while it reads. */
	CHECK_EQ(played_acquire(&c[0], &f, 0), SFS_DELEG_EXCLUSIVE);
	o = outsider_open(&w, O_RDONLY);
	step_down(&c[0], &f, &o);
	CHECK_EQ(played_acquire(&c[0], &f, 0), SFS_DELEG_EXCLUSIVE);
	outsider_close(&o);
	outsider_end(&o);

	/* Writers: SHARED for as long as one of them has it open. */
	o = outsider_open(&w, O_WRONLY | O_APPEND);
	step_down(&c[0], &f, &o);
	o2 = outsider_open(&w, O_RDONLY | O_TRUNC);
	CHECK_EQ(outsider_said(&o2, PATIENCE), 'o');
	CHECK_EQ(played_acquire(&c[0], &f, 0), SFS_DELEG_SHARED);
	o3 = outsider_open(&w, O_RDWR);
	CHECK_EQ(outsider_said(&o3, PATIENCE), 'o');
	outsider_close(&o);
	CHECK_EQ(played_revoke(&c[0], &f, 100, &m), -1);
	outsider_end(&o);
	/* Who has cut the file off when it opened it writes no more. */
	outsider_close(&o3);
	outsider_end(&o3);
	CHECK_EQ(played_revoke(&c[0], &f, PATIENCE, &m), SFS_DELEG_NONE);
	played_revoked(&c[0], &m, true);
	CHECK_EQ(played_acquire(&c[0], &f, 0), SFS_DELEG_EXCLUSIVE);
	outsider_close(&o2);
	outsider_end(&o2);

	/* strict gets it for one write. */
	o = outsider_open(&w, O_RDWR);
	step_down(&c[0], &f, &o);
	played_ask(&c[0], &f, f.fd, SFS_ACQ_EXCLUSIVE);
	CHECK_EQ(played_recv(c[0].sock, &m, NULL, 0, PATIENCE), 1);
	CHECK_EQ(m.a, SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(m.b, SFS_ACQ_AT_ONCE);
	CHECK_EQ(played_revoke(&c[0], &f, PATIENCE, &m), SFS_DELEG_SHARED);
	played_revoked(&c[0], &m, true);
	outsider_close(&o);
	CHECK_EQ(played_revoke(&c[0], &f, PATIENCE, &m), SFS_DELEG_NONE);
	played_revoked(&c[0], &m, true);
	outsider_end(&o);

	/* A client that does not answer holds it up for a while, no longer. */
	CHECK_EQ(played_acquire(&c[0], &f, 0), SFS_DELEG_EXCLUSIVE);
	o = outsider_open(&w, O_RDONLY);
	CHECK_EQ(played_revoke(&c[0], &f, PATIENCE, &m), SFS_DELEG_NONE);
	CHECK_EQ(outsider_said(&o, 1000), 0);
	CHECK_EQ(outsider_said(&o, PATIENCE), 'o');
	outsider_close(&o);
	outsider_end(&o);
	played_revoked(&c[0], &m, true);
	CHECK_EQ(played_acquire(&c[0], &f, 0), SFS_DELEG_EXCLUSIVE);

	/* A debugger does not wait for a process that it holds still. */
	fflush(NULL);
	debugger = fork();
	CHECK(debugger >= 0);
	if (debugger == 0) {
		char path[256];

		alarm(2);
		snprintf(path, sizeof(path), "%s/f", w.dir);
		_exit(ptrace(PTRACE_SEIZE, getppid(), NULL, NULL) == 0 &&
				      ptrace(PTRACE_INTERRUPT, getppid(), NULL, NULL) == 0 &&
				      waitpid(getppid(), NULL, __WALL) == getppid() && open(path, O_RDONLY) >= 0 &&
				      ptrace(PTRACE_DETACH, getppid(), NULL, NULL) == 0
			      ? 0
			      : 1);
	}
	CHECK_EQ(waitpid(debugger, &status, 0), debugger);
	CHECK_EQ(status, 0);

	/* An agent whose loop stands still, because its disk does not answer, holds it up for a while, too. */
	CHECK_EQ(ptrace(PTRACE_SEIZE, a.pid, NULL, NULL), 0);
	CHECK_EQ(ptrace(PTRACE_INTERRUPT, a.pid, NULL, NULL), 0);
	CHECK_EQ(waitpid(a.pid, NULL, __WALL), a.pid);
	o = outsider_open(&w, O_RDONLY);
	CHECK_EQ(outsider_said(&o, 1000), 0);
	CHECK_EQ(outsider_said(&o, PATIENCE), 'o');
	outsider_close(&o);
	outsider_end(&o);
	CHECK_EQ(ptrace(PTRACE_DETACH, a.pid, NULL, NULL), 0);
	/* It is told all the same, as that program may have the file for long. */
	CHECK_EQ(played_revoke(&c[0], &f, PATIENCE, &m), SFS_DELEG_NONE);
	played_revoked(&c[0], &m, true);
	played_alone(&c[0], &f);

	/* Two clients have nothing staged: nobody is asked. */
	CHECK_EQ(played_hello(&c[1], &a, SFS_POSIX, 0, f.fd), 0);
	played_ask(&c[1], &f, f.fd, 0);
	CHECK_EQ(played_revoke(&c[0], &f, PATIENCE, &m), SFS_DELEG_SHARED);
	played_revoked(&c[0], &m, true);
	CHECK_EQ(played_answer(&c[1], PATIENCE), SFS_DELEG_SHARED);
	o = outsider_open(&w, O_RDWR);
	CHECK_EQ(outsider_said(&o, PATIENCE), 'o');
	outsider_close(&o);
	outsider_end(&o);
	played_notify(&c[1], SFS_MSG_RELEASE, f.ino, f.gen);
	played_close(&c[1]);

	/* A client dies with staged bytes: the open waits until they are in the file. */
	played_alone(&c[0], &f);
	fd = played_chunk(&c[0], &chunk);
	CHECK(fd >= 0);
	memset(buf, 'n', sizeof(buf));
	CHECK_EQ(pwrite(fd, buf, 50, 4096), 50);
	played_record(&w, &c[0], &f, 0, chunk, 0, 50, 4096);
	close(fd);
	played_close(&c[0]);
	o = outsider_open(&w, O_RDONLY);
	CHECK_EQ(outsider_said(&o, PATIENCE), 'o');
	CHECK_EQ(pread(f.fd, buf, 50, 0), 50);
	for (int i = 0; i < 50; i++)
		CHECK_EQ(buf[i], 'n');
	outsider_close(&o);
	outsider_end(&o);
	agent_end(&a);
	close(f.fd);
	world_end(&w);
	return 0;
}
