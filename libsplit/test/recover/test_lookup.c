/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files are found wherever they are below ROOT: deep, renamed, with several names, with a path longer than PATH_MAX, without
 * permission for their owner; not through symbolic links, and not in the control directory. As root by handle where the file
 * system allows it; in a child without privileges always by the walk.
 */
#include <sys/wait.h>

#include "world.h"

static void deep_dir(int at, int levels, int *out)
{
	char name[201];

	memset(name, 'd', 200);
	name[200] = 0;
	at = dup(at);
	for (int i = 0; i < levels; i++) {
		int next;

		CHECK_EQ(mkdirat(at, name, 0755), 0);
		next = openat(at, name, O_RDONLY | O_DIRECTORY);
		CHECK(next >= 0);
		close(at);
		at = next;
	}
	*out = at;
}

static void remove_deep(int at, int levels)
{
	char name[201];
	int dirs[64];

	memset(name, 'd', 200);
	name[200] = 0;
	dirs[0] = dup(at);
	for (int i = 1; i <= levels; i++) {
		dirs[i] = openat(dirs[i - 1], name, O_RDONLY | O_DIRECTORY);
		CHECK(dirs[i] >= 0);
	}
	CHECK_EQ(unlinkat(dirs[levels], "leaf", 0), 0);
	for (int i = levels; i > 0; i--) {
		close(dirs[i]);
		CHECK_EQ(unlinkat(dirs[i - 1], name, AT_REMOVEDIR), 0);
	}
	close(dirs[0]);
}

static void scene(void)
{
	enum { LEVELS = 30 }; /* 6,000 characters */
	struct world w;
	struct world_log l;
	struct world_file renamed, linked, locked, leaf, behind;
	struct sfs_recovery s;
	struct stat st;
	int deep;

	world_new(&w);
	world_log(&w, &l, 1, 64);
	CHECK_EQ(mkdirat(w.root.fd, "a", 0755), 0);
	CHECK_EQ(mkdirat(w.root.fd, "a/b", 0755), 0);
	renamed = world_file(&w, "one", 'o', 100);
	CHECK_EQ(renameat(w.root.fd, "one", w.root.fd, "a/b/two"), 0);
	linked = world_file(&w, "l1", 'o', 100);
	CHECK_EQ(linkat(w.root.fd, "l1", w.root.fd, "a/l2", 0), 0);
	CHECK_EQ(unlinkat(w.root.fd, "l1", 0), 0);
	locked = world_file(&w, "locked", 'o', 100);
	CHECK_EQ(fchmod(locked.fd, 0400), 0);
	deep_dir(w.root.fd, LEVELS, &deep);
	leaf.fd = openat(deep, "leaf", O_RDWR | O_CREAT | O_EXCL, 0644);
	CHECK_EQ(write(leaf.fd, "o", 1), 1);
	leaf = world_identify(leaf.fd);
	close(deep);
	/* Something that leads out and back in. */
	CHECK_EQ(symlinkat("/", w.root.fd, "a/out"), 0);
	CHECK_EQ(symlinkat("..", w.root.fd, "a/loop"), 0);
	/* A file of the control directory itself is none of the volume's. */
	behind = world_identify(openat(w.root.pool, "behind", O_RDWR | O_CREAT, 0600));

	world_allow(&l, &renamed);
	world_allow(&l, &linked);
	world_allow(&l, &locked);
	world_allow(&l, &leaf);
	world_write(&w, &l, &renamed, 0, 10, 'r', 0);
	world_write(&w, &l, &linked, 0, 10, 'l', 1);
	world_write(&w, &l, &locked, 0, 10, 'k', 2);
	world_write(&w, &l, &leaf, 1, 10, 'f', 3);
	s = world_recover(&w);
	CHECK_EQ(s.replayed, 4);
	CHECK_EQ(s.files, 4);
	world_expect(&renamed, 100, 0, 10, 'r');
	world_expect(&linked, 100, 0, 10, 'l');
	world_expect(&locked, 100, 0, 10, 'k');
	world_expect(&leaf, 11, 1, 11, 'f');
	CHECK_EQ(fstat(locked.fd, &st), 0);
	CHECK_EQ(st.st_mode & 07777, 0400);
	world_log_close(&l);
	close(renamed.fd);
	close(linked.fd);
	close(locked.fd);
	close(leaf.fd);
	close(behind.fd);
	remove_deep(w.root.fd, LEVELS);
	world_end(&w);
}

/* More files than descriptors. */
static void many(void)
{
	enum { FILES = 1500 };
	struct world w;
	struct world_log l;
	struct sfs_recovery s;

	world_new(&w);
	world_log(&w, &l, 1, 4096);
	for (int i = 0; i < FILES; i++) {
		char name[16];
		struct world_file f;

		snprintf(name, sizeof(name), "f%d", i);
		f = world_file(&w, name, 'o', 10);
		world_allow(&l, &f);
		world_write(&w, &l, &f, 10, 8, 'n', (uint32_t)i % 500);
		world_write(&w, &l, &f, 4, 2, 'm', (uint32_t)i % 500);
		close(f.fd);
	}
	s = world_recover(&w);
	CHECK_EQ(s.replayed, 2 * FILES);
	CHECK_EQ(s.files, FILES);
	for (int i = 0; i < FILES; i++) {
		char name[16];
		struct world_file f;

		snprintf(name, sizeof(name), "f%d", i);
		f = world_identify(openat(w.root.fd, name, O_RDONLY));
		world_expect(&f, 18, 0, 4, 'o');
		world_expect(&f, 18, 4, 6, 'm');
		close(f.fd);
	}
	world_log_close(&l);
	world_end(&w);
}

int main(void)
{
	const char *base = getenv("TEST_VOLUME");
	int status;
	pid_t pid;

	scene();
	many();
	if (geteuid() != 0)
		return 0;
	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		char dir[4096];

		/* A directory of the other user. */
		snprintf(dir, sizeof(dir), "%s/user.XXXXXX", base ? base : "/dev/shm");
		CHECK(mkdtemp(dir));
		CHECK_EQ(chown(dir, 65534, 65534), 0);
		CHECK_EQ(setenv("TEST_VOLUME", dir, 1), 0);
		CHECK_EQ(setresgid(65534, 65534, 65534), 0);
		CHECK_EQ(setresuid(65534, 65534, 65534), 0);
		if (access(dir, W_OK) < 0) {
			printf("%s can't be reached without privileges\n", dir);
			exit(0);
		}
		scene();
		many();
		exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	{
		char command[4096];

		snprintf(command, sizeof(command), "rmdir %s/user.*", base ? base : "/dev/shm");
		CHECK_EQ(system(command), 0);
	}
	return 0;
}
