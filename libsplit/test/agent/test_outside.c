/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table says which files programs without the library have open: from before their open succeeds until the last of their
 * descriptors and mappings is gone, however it goes, also across a restart of the agent.
 */
#include <sys/mman.h>

#include "format/owners.h"
#include "outsider.h"

static struct world w;
static struct played_agent a;
static struct world_file f;
static const uint64_t *table;
static char path[256];

static bool outside(void)
{
	const uint64_t word = __atomic_load_n(&table[sfs_owners_index(f.ino)], __ATOMIC_SEQ_CST);

	return sfs_owners_outside(word);
}

static bool any_outside(void)
{
	return sfs_owners_outside(__atomic_load_n(&table[SFS_OWNERS_ALL], __ATOMIC_SEQ_CST));
}

/* The agent clears the file's word and the one of all files one after the other. */
static void eventually_not(void)
{
	for (int i = 0; outside() || any_outside(); i++) {
		CHECK(i < PATIENCE);
		usleep(1000);
	}
}

/* Long enough for the agent to have seen a close. */
static void stays(void)
{
	usleep(200000);
	CHECK(outside());
}

static void obey(char what)
{
	static int fd[64];
	static void *p;

	switch (what) {
	case 'o': /* open for reading */
	case 'O': /* twice as often as may be */
		for (int i = 0; i < (what == 'o' ? 1 : 32); i++) {
			int n = 3;

			while (fd[n])
				n++;
			fd[n] = open(path, O_RDONLY);
			CHECK(fd[n] >= 0);
		}
		break;
	case 'c': /* close one */
	case 'C': /* all but one */
		for (int i = 3, left = what == 'c' ? 1 : 31; i < 64 && left > 0; i++)
			if (fd[i]) {
				CHECK_EQ(close(fd[i]), 0);
				fd[i] = 0;
				left--;
			}
		break;
	case 'm':
		p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd[3], 0);
		CHECK(p != MAP_FAILED);
		break;
	case 'u':
		CHECK_EQ(munmap(p, 4096), 0);
		break;
	case 'f': /* hand them on */
		if (fork() == 0) {
			usleep(500000);
			_exit(0);
		}
		break;
	default:
		FAIL("what is '%c'?", what);
	}
}

/* A process without the library that does what it is told, a letter at a time, and says when it has. */
static struct outsider program(void)
{
	const struct outsider g = outsider_fork();
	char c;

	if (g.pid == 0) {
		signal(SIGCHLD, SIG_IGN);
		while (read(0, &c, 1) == 1) {
			obey(c);
			CHECK_EQ(write(1, &c, 1), 1);
		}
		_exit(0);
	}
	return g;
}

static void start(struct outsider *g, char what)
{
	CHECK_EQ(write(g->in, &what, 1), 1);
}

static void has_done(struct outsider *g, char what)
{
	CHECK_EQ(outsider_said(g, PATIENCE), what);
}

static void tell(struct outsider *g, const char *what)
{
	for (; *what; what++) {
		start(g, *what);
		has_done(g, *what);
	}
}

static void ends(struct outsider *g, int sig)
{
	if (sig)
		kill(g->pid, sig);
	close(g->in);
	CHECK_EQ(waitpid(g->pid, NULL, 0), g->pid);
	close(g->out);
}

/* The client has the file alone, and then the program opens it. */
static void opens(struct played *c, struct outsider *g)
{
	struct sfs_msg m;

	CHECK_EQ(played_acquire(c, &f, 0), SFS_DELEG_EXCLUSIVE);
	start(g, 'o');
	CHECK_EQ(played_revoke(c, &f, PATIENCE, &m), SFS_DELEG_NONE);
	CHECK(!outside()); /* its open waits */
	played_revoked(c, &m, true);
	has_done(g, 'o');
	CHECK(outside());
}

static void restarts(struct played *c)
{
	struct played again;
	struct sfs_msg m;

	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, c->log_fd, 0) != MAP_FAILED); /* who lives has its log mapped */
	agent_stop(&a, SIGKILL);
	CHECK(outside());
	agent_start(&a, &w);
	close(c->sock);
	close(c->event);
	CHECK_EQ(played_hello(&again, &a, SFS_POSIX, c->log, c->log_fd), 0);
	close(again.log_fd);
	c->sock = again.sock;
	c->event = again.event;
	/* Until it is known that nobody without the library writes it is not its own. */
	CHECK_EQ(played_acquire(c, &f, SFS_ACQ_RECLAIM), SFS_DELEG_SHARED);
	CHECK_EQ(played_revoke(c, &f, PATIENCE, &m), SFS_DELEG_SHARED);
	played_revoked(c, &m, true);
	played_alone(c, &f);
}

int main(void)
{
	char name[256];
	struct outsider g;
	struct played c, c2;
	int fd;

	outsider_world(&w, &a, &f, 8192);
	snprintf(path, sizeof(path), "%s/f", w.dir);
	snprintf(name, sizeof(name), "%s/.splitfs/%s", w.dir, SFS_OWNERS_NAME);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	table = mmap(NULL, SFS_OWNERS_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(table != MAP_FAILED);
	close(fd);
	CHECK_EQ(played_hello(&c, &a, SFS_POSIX, 0, f.fd), 0);
	CHECK(!outside());

	/* One descriptor; the client may stage again meanwhile. */
	g = program();
	opens(&c, &g);
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_EXCLUSIVE);
	CHECK(outside());
	tell(&g, "c");
	eventually_not();

	/* Many, whose ends the kernel may tell of at once. */
	opens(&c, &g);
	tell(&g, "OC");
	stays();
	tell(&g, "cc");
	eventually_not();

	/* A mapping outlives its descriptor. */
	opens(&c, &g);
	tell(&g, "moccu");
	eventually_not();
	opens(&c, &g);
	tell(&g, "moc");
	tell(&g, "c");
	stays();
	tell(&g, "u");
	eventually_not();

	/* A child has it last. */
	opens(&c, &g);
	tell(&g, "fc");
	CHECK(outside());
	eventually_not();

	/* It is killed. */
	opens(&c, &g);
	ends(&g, SIGKILL);
	eventually_not();

	/* Nobody has it meanwhile; the next client is told of it. */
	g = program();
	opens(&c, &g);
	played_notify(&c, SFS_MSG_RELEASE, f.ino, f.gen);
	CHECK_EQ(played_hello(&c2, &a, SFS_POSIX, 0, f.fd), 0);
	CHECK_EQ(played_acquire(&c2, &f, 0), SFS_DELEG_EXCLUSIVE);
	CHECK(outside());
	played_notify(&c2, SFS_MSG_RELEASE, f.ino, f.gen);
	played_close(&c2);

	/* The agent after this one has looked who it is, and is told of the close. */
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_EXCLUSIVE);
	restarts(&c);
	CHECK(outside());
	tell(&g, "c");
	eventually_not();
	played_notify(&c, SFS_MSG_RELEASE, f.ino, f.gen);

	ends(&g, 0);
	played_close(&c);
	agent_end(&a);
	world_end(&w);
	return 0;
}
