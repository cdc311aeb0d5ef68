/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recovery that fails is made again with all that was known: here somebody has a lease on one of the files when the client dies (F_SETLEASE), and
 * another one has no name any more.
 */
#include "played.h"

static struct played_agent a;
static struct world w;

static void stage(struct played *c, const struct world_file *f, int chunk_fd, uint32_t chunk, uint32_t slot, char byte)
{
	const off_t at = 100 + (off_t)slot * SFS_BLOCK;
	char buf[500];

	memset(buf, byte, sizeof(buf));
	CHECK_EQ(played_acquire(c, f, 0), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(pwrite(chunk_fd, buf, sizeof(buf), at), sizeof(buf));
	played_record(&w, c, f, slot, chunk, 100, sizeof(buf), (uint64_t)at);
}

/* A client with a staging file, whose descriptor is returned. */
static int begin(struct world_file *f, struct world_file *g, struct played *c, uint32_t *chunk)
{
	int fd;

	world_new(&w);
	*f = world_file(&w, "f", 'o', 100);
	*g = world_file(&w, "g", 'o', 100);
	agent_start(&a, &w);
	CHECK_EQ(played_hello(c, &a, SFS_STRICT, 0, f->fd), 0);
	fd = played_chunk(c, chunk);
	CHECK(fd >= 0);
	return fd;
}

static void end(const struct world_file *f, const struct world_file *g, struct played *c, int fd)
{
	played_close(c);
	close(fd);
	agent_end(&a);
	a.dir[0] = 0;
	close(f->fd);
	close(g->fd);
	world_end(&w);
}

static void again(void)
{
	struct world_file f, g;
	struct played c, d;
	uint32_t chunk;
	const int fd = begin(&f, &g, &c, &chunk);

	CHECK_EQ(played_hello(&d, &a, SFS_STRICT, 0, f.fd), 0);
	stage(&c, &f, fd, chunk, 0, 'a');
	stage(&c, &g, fd, chunk, 1, 'b');
	CHECK_EQ(unlinkat(w.root.fd, "f", 0), 0);
	close(g.fd);
	g.fd = openat(w.root.fd, "g", O_RDONLY | O_CLOEXEC);
	/* For some milliseconds the agent may have it open, to look at. */
	EVENTUALLY(fcntl(g.fd, F_SETLEASE, F_RDLCK) == 0);
	played_close(&c);
	EVENTUALLY(fcntl(g.fd, F_GETLEASE) == F_UNLCK);
	usleep(100000); /* it has failed */
	world_expect(&g, 100, 0, 100, 'o');
	CHECK_EQ(fcntl(g.fd, F_SETLEASE, F_UNLCK), 0);
	CHECK_EQ(played_acquire(&d, &f, 0), SFS_DELEG_EXCLUSIVE);
	world_expect(&g, 600, 100, 600, 'b');
	world_expect(&f, 600, 100, 600, 'a');
	end(&f, &g, &d, fd);
}

/* An agent that finds such a log when it starts serves all other files meanwhile. */
static void at_start(void)
{
	struct world_file f, g;
	struct played c;
	uint32_t chunk;
	const int fd = begin(&f, &g, &c, &chunk);

	stage(&c, &g, fd, chunk, 0, 'b');
	agent_stop(&a, SIGKILL);
	played_close(&c);
	close(g.fd);
	g.fd = openat(w.root.fd, "g", O_RDONLY | O_CLOEXEC);
	CHECK_EQ(fcntl(g.fd, F_SETLEASE, F_RDLCK), 0);
	agent_start(&a, &w);
	CHECK_EQ(played_hello(&c, &a, SFS_STRICT, 0, f.fd), 0);
	EVENTUALLY(played_acquire(&c, &f, 0) == SFS_DELEG_EXCLUSIVE);
	world_expect(&g, 100, 0, 100, 'o');
	played_ask(&c, &g, g.fd, 0);
	CHECK_EQ(played_answer(&c, 200), -EAGAIN);
	CHECK_EQ(fcntl(g.fd, F_SETLEASE, F_UNLCK), 0);
	CHECK_EQ(played_answer(&c, PATIENCE), SFS_DELEG_EXCLUSIVE);
	world_expect(&g, 600, 100, 600, 'b');
	end(&f, &g, &c, fd);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	signal(SIGIO, SIG_IGN);
	again();
	at_start();
	return 0;
}
