/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent whose control directory is removed ends and says so; SIGTERM ends one that can't recover what is left; on a full volume it waits, and
 * uses no processor for that.
 */
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include "played.h"

#define MIB (1ull << 20)

static struct world w;

static void rm_control(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/" SFS_CONTROL_DIR, w.dir);
	/* The agent makes and removes files there meanwhile. */
	EVENTUALLY(nftw(path, world_rm_one, 16, FTW_DEPTH | FTW_PHYS) == 0 || access(path, F_OK) < 0);
}

/* The status with which the agent ends, within so many ms; -1: it does not. */
static int ends_within(const struct played_agent *a, int ms)
{
	int status;

	for (int i = 0; i < ms / 10; i++, usleep(10000))
		if (waitpid(a->pid, &status, WNOHANG) == a->pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 256;
	return -1;
}

/* A client with `bytes` staged for a file that has none of them. */
static void stage(struct played_agent *a, struct played *c, const struct world_file *f, uint32_t bytes)
{
	char *buf = malloc(bytes);
	uint32_t id;
	int fd;

	CHECK(buf);
	memset(buf, 's', bytes);
	CHECK_EQ(played_hello(c, a, SFS_STRICT, 0, f->fd), 0);
	CHECK_EQ(played_acquire(c, f, 0), SFS_DELEG_EXCLUSIVE);
	fd = played_chunk(c, &id);
	CHECK(fd >= 0);
	CHECK_EQ(pwrite(fd, buf, bytes, 0), bytes);
	played_record(&w, c, f, 0, id, 0, bytes, 0);
	close(fd);
	free(buf);
}

/* stderr of the agent, which starts next. */
static int catch_messages(int *saved)
{
	int p[2];

	CHECK_EQ(pipe2(p, O_CLOEXEC), 0);
	*saved = dup(2);
	dup2(p[1], 2);
	close(p[1]);
	return p[0];
}

static void says(int fd, const char *what)
{
	char text[8192];
	ssize_t n, all = 0;

	while (all < (ssize_t)sizeof(text) - 1 && (n = read(fd, text + all, sizeof(text) - 1 - (size_t)all)) > 0)
		all += n;
	text[all] = 0;
	close(fd);
	if (!strstr(text, what))
		FAIL("'%s' is not in: %s", what, text);
}

/* With a client whose log can't be recovered any more, and without any. */
static void removed(const struct sfs_agent_config *config, bool client, bool private_dir)
{
	struct sfs_agent_config c_private = *config;
	struct played_agent a = {0};
	struct played c;
	struct world_file f;
	int saved, messages;

	world_new(&w);
	f = world_file(&w, "f", 'o', 100);
	messages = catch_messages(&saved);
	c_private.private_dir = private_dir;
	agent_start_with(&a, &w, &c_private);
	dup2(saved, 2);
	close(saved);
	if (client)
		stage(&a, &c, &f, 4096);
	rm_control();
	if (client)
		played_close(&c);
	/* One that waits for its last user is told to end. */
	if (private_dir)
		kill(a.pid, SIGTERM);
	CHECK_EQ(ends_within(&a, 12000), 1);
	says(messages, "was removed while it was served");
	rmdir(a.dir);
	close(f.fd);
	world_end(&w);
}

static double cpu_seconds(pid_t pid)
{
	char path[64], buf[1024], *p;
	unsigned long user, sys;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	CHECK(f && fgets(buf, sizeof(buf), f));
	fclose(f);
	p = strrchr(buf, ')');
	CHECK(p && sscanf(p + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &sys) == 2);
	return (double)(user + sys) / (double)sysconf(_SC_CLK_TCK);
}

static void fill(void)
{
	const int fd = openat(w.root.fd, "filler", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct statvfs sv;

	CHECK(fd >= 0);
	for (int i = 0; i < 3; i++) {
		struct stat st;

		CHECK(fstat(fd, &st) == 0 && fstatvfs(fd, &sv) == 0);
		if (sv.f_bavail > 0)
			/* The agent may take some of it meanwhile. */
			CHECK(fallocate(fd, 0, st.st_size, (off_t)(sv.f_bavail * sv.f_frsize)) == 0 || errno == ENOSPC);
		usleep(10000);
	}
	close(fd);
}

static void full(const struct sfs_agent_config *config, bool private_dir)
{
	struct sfs_agent_config c = *config;
	struct played_agent a = {0};
	struct played dead, asks;
	struct world_file f, g;
	uint64_t bytes;
	uint32_t id;
	double before;
	int r;

	c.private_dir = private_dir;
	world_new(&w);
	f = world_file(&w, "f", 'o', 0);
	g = world_file(&w, "g", 'o', 0);
	agent_start_with(&a, &w, &c);
	CHECK_EQ(played_hello(&asks, &a, SFS_STRICT, 0, g.fd), 0);
	stage(&a, &dead, &f, 1 * MIB);
	fill();
	played_close(&dead);
	before = cpu_seconds(a.pid);
	for (int i = 0; i < 40; i++) {
		/* What is staged already is the last space; then the volume is full, and nothing else is wrong. */
		r = played_chunk_for(&asks, 4096, &id, &bytes);
		if (r >= 0)
			close(r);
		CHECK(r >= 0 || r == -ENOSPC);
		fill();
	}
	CHECK_EQ(r, -ENOSPC);
	usleep(1000000);
	if (cpu_seconds(a.pid) - before > 0.6)
		FAIL("an agent of a full volume took %.2f s of a processor", cpu_seconds(a.pid) - before);
	played_close(&asks);
	kill(a.pid, SIGTERM);
	CHECK_EQ(ends_within(&a, 8000), 0);
	rmdir(a.dir);
	close(f.fd);
	close(g.fd);
	world_end(&w);
}

int main(void)
{
	const struct sfs_agent_config config = {.pool_bytes = 8u << 20, .chunk_bytes = WORLD_CHUNK, .log_bytes = 64 << 10};
	const char *before = getenv("TEST_VOLUME");
	char dir[] = "/tmp/sfs-end.XXXXXX";

	signal(SIGPIPE, SIG_IGN);
	removed(&config, true, false);
	removed(&config, true, true);
	removed(&config, false, false);
	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || !mkdtemp(dir) ||
	    mount("none", dir, "tmpfs", 0, "size=40m") < 0) {
		printf("no tmpfs of its own: full volumes are left out (%s)\n", strerror(errno));
		return 0;
	}
	setenv("TEST_VOLUME", dir, 1);
	full(&config, false);
	full(&config, true);
	if (before)
		setenv("TEST_VOLUME", before, 1);
	CHECK_EQ(umount(dir), 0);
	CHECK_EQ(rmdir(dir), 0);
	return 0;
}
