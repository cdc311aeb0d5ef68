/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent is replaced: living clients come back with their logs, the dead are recovered, nobody gets a file that a client
 * which has not come back yet may hold, and a recovery by hand leaves living clients alone.
 */
#include <sys/mman.h>

#include "played.h"

#define RESUMED_MS 3500 /* by then those that come back have done so (RESUME_SECONDS) */

static struct played_agent a;
static struct world w;

/* A client in a process of its own that does what it is told. */
struct puppet {
	pid_t pid;
	int fd;
	char byte;
	const struct world_file *f;
};

static void puppet_main(struct puppet *p)
{
	struct played c = {0};
	struct sfs_msg m;
	uint32_t chunk = 0;
	int chunk_fd = -1;
	char order, buf[500], ok = 'k';
	void *map = NULL;

	memset(buf, p->byte, sizeof(buf));
	while (read(p->fd, &order, 1) == 1) {
		if (order == 'h') { /* become a client and stage an append */
			CHECK_EQ(played_hello(&c, &a, SFS_STRICT, 0, p->f->fd), 0);
			map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, c.log_fd, 0);
			CHECK(map != MAP_FAILED);
			CHECK_EQ(played_acquire(&c, p->f, 0), SFS_DELEG_EXCLUSIVE);
			chunk_fd = played_chunk(&c, &chunk);
			CHECK(chunk_fd >= 0);
			CHECK_EQ(pwrite(chunk_fd, buf, 500, 100), 500);
			played_record(&w, &c, p->f, 0, chunk, 100, 500, 100);
		} else if (order == 'r' || order == 'H') { /* come back; with H, RECLAIM is still to come */
			struct played again;

			close(c.sock);
			close(c.event);
			CHECK_EQ(played_hello(&again, &a, SFS_STRICT, c.log, c.log_fd), 0);
			CHECK_EQ(again.log, c.log);
			close(again.log_fd);
			c.sock = again.sock;
			c.event = again.event;
			if (order == 'r')
				CHECK(played_acquire(&c, p->f, SFS_ACQ_RECLAIM) >= SFS_DELEG_SHARED);
		} else if (order == 'v') { /* answer the REVOKE that is due */
			const int to = played_revoke(&c, p->f, PATIENCE, &m);

			CHECK(to == SFS_DELEG_SHARED || to == SFS_DELEG_NONE);
			played_revoked(&c, &m, false);
		} else if (order == 'w') { /* stage another one, after the restart */
			CHECK_EQ(pwrite(chunk_fd, buf, 500, 4096 + 600), 500);
			played_record(&w, &c, p->f, 1, chunk, 600, 500, 4096 + 600);
		} else if (order == 'x') { /* as exec does */
			CHECK_EQ(munmap(map, 4096), 0);
			played_close(&c);
		} else if (order == 'c') { /* another staging file, from the new agent */
			uint32_t other;
			int fd = played_chunk(&c, &other);

			CHECK(fd >= 0 && other != chunk);
			close(fd);
		}
		CHECK_EQ(write(p->fd, &ok, 1), 1);
	}
	exit(0);
}

static void tell(struct puppet *p, char order)
{
	char ok;

	CHECK_EQ(write(p->fd, &order, 1), 1);
	if (read(p->fd, &ok, 1) != 1)
		FAIL("the client of byte %c failed", p->byte);
}

static void puppet_start(struct puppet *p, const struct world_file *f, char byte)
{
	int s[2];

	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
	p->f = f;
	p->byte = byte;
	p->pid = fork();
	CHECK(p->pid >= 0);
	if (p->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		p->fd = s[1];
		close(s[0]);
		puppet_main(p);
	}
	p->fd = s[0];
	close(s[1]);
	tell(p, 'h');
}

static void puppet_kill(struct puppet *p)
{
	int status;

	kill(p->pid, SIGKILL);
	CHECK_EQ(waitpid(p->pid, &status, 0), p->pid);
	close(p->fd);
}

static void come_back(int sig)
{
	struct world_file f, g;
	struct puppet live, dead;
	struct played c, thief;
	const struct sfs_recover_how how = {.durable = true};
	struct sfs_recovery sum = {0};
	struct sfs_why why = {0};
	uint32_t living;

	world_new(&w);
	f = world_file(&w, "f", 'o', 100);
	g = world_file(&w, "g", 'o', 100);
	agent_start(&a, &w);
	puppet_start(&live, &f, 'a');
	puppet_start(&dead, &g, 'b');
	agent_stop(&a, sig);
	puppet_kill(&dead);

	/* By hand: the dead one's data is brought in, the living one is left alone. */
	if (sig == SIGTERM) {
		CHECK_EQ(sfs_recover_all(&w.root, &how, &sum, &living, &why), 0);
		CHECK_EQ(living, 1);
		CHECK_EQ(sum.logs, 1);
		world_expect(&g, 600, 100, 600, 'b');
	}
	agent_start(&a, &w);
	world_expect(&g, 600, 100, 600, 'b');
	world_expect(&f, 100, 0, 100, 'o');

	/* The log belongs to the process that had it. */
	CHECK_EQ(played_hello(&thief, &a, SFS_STRICT, 1, f.fd), -ESTALE);
	CHECK_EQ(played_hello(&thief, &a, SFS_STRICT, 2, f.fd), -ESTALE);

	CHECK_EQ(played_hello(&c, &a, SFS_STRICT, 0, f.fd), 0);
	played_ask(&c, &f, f.fd, 0);
	CHECK_EQ(played_answer(&c, 100), -EAGAIN);
	tell(&live, 'r');
	tell(&live, 'v');
	CHECK_EQ(played_answer(&c, PATIENCE), SFS_DELEG_SHARED);
	tell(&live, 'c');
	tell(&live, 'w');
	puppet_kill(&live);
	EVENTUALLY(played_acquire(&c, &f, 0) == SFS_DELEG_EXCLUSIVE);
	world_expect(&f, 1100, 0, 100, 'o');
	world_expect(&f, 1100, 100, 1100, 'a');
	played_close(&c);
	agent_end(&a);
	a.dir[0] = 0;
	close(f.fd);
	close(g.fd);
	world_end(&w);
}

/* A client has staged an append to the file, and the agent is another one now. */
static void restart(struct world_file *f, struct puppet *live)
{
	world_new(&w);
	*f = world_file(&w, "f", 'o', 100);
	agent_start(&a, &w);
	puppet_start(live, f, 'a');
	agent_stop(&a, SIGKILL);
	agent_start(&a, &w);
}

static void end(const struct world_file *f, struct puppet *live, struct played *c)
{
	puppet_kill(live);
	played_close(c);
	agent_end(&a);
	a.dir[0] = 0;
	close(f->fd);
	world_end(&w);
}

/* Between HELLO and RECLAIM the file is not given away either. */
static void between(void)
{
	struct world_file f;
	struct puppet live;
	struct played c;

	restart(&f, &live);
	CHECK_EQ(played_hello(&c, &a, SFS_STRICT, 0, f.fd), 0);
	tell(&live, 'H');
	played_ask(&c, &f, f.fd, 0);
	CHECK_EQ(played_answer(&c, 100), -EAGAIN);
	tell(&live, 'v');
	CHECK(played_answer(&c, PATIENCE) >= SFS_DELEG_SHARED);
	end(&f, &live, &c);
}

/* One whose process becomes another program before it has come back is gone: its files are waited for no longer than it takes to see that. */
static void replaced(void)
{
	struct world_file f;
	struct puppet live;
	struct played c;

	restart(&f, &live);
	tell(&live, 'x');
	CHECK_EQ(played_hello(&c, &a, SFS_STRICT, 0, f.fd), 0);
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_EXCLUSIVE);
	world_expect(&f, 600, 100, 600, 'a');
	end(&f, &live, &c);
}

/* A client that is stopped keeps its own file waiting, and nothing else for longer than the time to come back. */
static void stopped(void)
{
	struct world_file f, g;
	struct puppet live;
	struct played c, d;

	world_new(&w);
	f = world_file(&w, "f", 'o', 100);
	g = world_file(&w, "g", 'o', 100);
	agent_start(&a, &w);
	puppet_start(&live, &f, 'a');
	agent_stop(&a, SIGKILL);
	kill(live.pid, SIGSTOP);
	agent_start(&a, &w);
	CHECK_EQ(played_hello(&c, &a, SFS_STRICT, 0, f.fd), 0);
	CHECK_EQ(played_hello(&d, &a, SFS_STRICT, 0, f.fd), 0);
	played_ask(&c, &f, f.fd, 0);
	CHECK_EQ(played_acquire(&d, &g, 0), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(played_answer(&c, 200), -EAGAIN);
	puppet_kill(&live);
	CHECK_EQ(played_answer(&c, PATIENCE), SFS_DELEG_EXCLUSIVE);
	world_expect(&f, 600, 100, 600, 'a');
	played_close(&c);
	played_close(&d);
	agent_end(&a);
	close(f.fd);
	close(g.fd);
	world_end(&w);
}

/*
 * One that comes back when the others wait no more for it (it was stopped) gives up its file for who waits for that. back: 'r', or 'H' of one that
 * reclaims nothing.
 */
static void late(char back)
{
	struct world_file f;
	struct puppet live;
	struct played c;

	restart(&f, &live);
	CHECK_EQ(played_hello(&c, &a, SFS_STRICT, 0, f.fd), 0);
	played_ask(&c, &f, f.fd, 0);
	CHECK_EQ(played_answer(&c, RESUMED_MS), -EAGAIN);
	tell(&live, back);
	tell(&live, 'v');
	CHECK(played_answer(&c, PATIENCE) >= SFS_DELEG_SHARED);
	end(&f, &live, &c);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	come_back(SIGKILL);
	come_back(SIGTERM);
	between();
	late('r');
	late('H');
	replaced();
	stopped();
	return 0;
}
