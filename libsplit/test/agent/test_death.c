/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client dies: what it recorded is in the file before anybody else gets the file, also when a child of it keeps its sockets
 * open, also when the file has been renamed, and not when it had only opened the file for reading.
 */
#include "played.h"

static struct played_agent a;
static struct world w;
static struct played c = {-1, -1, -1, 0, 0, 0, 0}; /* of the test's own process */

/* A process that stages one append to f and dies. */
static pid_t victim(const struct world_file *f, int fd, int expect, bool stray, char byte)
{
	int p[2];
	char go;
	pid_t pid;

	CHECK_EQ(pipe(p), 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		struct played mine;
		uint32_t chunk;
		int chunk_fd;
		char buf[500];

		/* Not to be kept open by a stray. */
		if (c.sock >= 0)
			played_close(&c);
		CHECK_EQ(played_hello(&mine, &a, SFS_STRICT, 0, f->fd), 0);
		played_ask(&mine, f, fd, 0);
		CHECK_EQ(played_answer(&mine, PATIENCE), expect);
		chunk_fd = played_chunk(&mine, &chunk);
		CHECK(chunk_fd >= 0);
		memset(buf, byte, sizeof(buf));
		CHECK_EQ(pwrite(chunk_fd, buf, sizeof(buf), 100), 500);
		played_record(&w, &mine, f, 0, chunk, 100, 500, 100);
		if (stray && fork() == 0) {
			alarm(60); /* should the test fail */
			pause();
		}
		CHECK_EQ(write(p[1], stray ? "s" : "g", 1), 1);
		raise(SIGKILL);
	}
	close(p[1]);
	CHECK_EQ(read(p[0], &go, 1), 1);
	close(p[0]);
	return pid;
}

/* A recovery that takes a while: nobody gets the file before it is done. */
static void slow(const struct world_file *f)
{
	enum { RECORDS = 60000 };
	struct stat st;
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		struct sfs_record *r = calloc(RECORDS, sizeof(*r));
		struct played mine;
		struct world_log l = {.epoch = 1};

		played_close(&c);
		CHECK_EQ(played_hello(&mine, &a, SFS_STRICT, 0, f->fd), 0);
		CHECK_EQ(played_acquire(&mine, f, 0), SFS_DELEG_EXCLUSIVE);
		CHECK(played_chunk(&mine, &l.chunk) >= 0 && r);
		l.id = mine.log;
		/* Bytes that do not touch, so that each is a copy of its own. */
		for (uint32_t i = 0; i < RECORDS; i++) {
			const uint64_t off = ((uint64_t)i * 7919 % RECORDS) * 2;

			r[i] = world_record(&l, f, off, 1, off, 2 * RECORDS);
			world_seal(&w, &l, &r[i], i);
		}
		CHECK_EQ(pwrite(mine.log_fd, r, RECORDS * sizeof(*r), SFS_LOG_RECORDS_OFFSET), RECORDS * sizeof(*r));
		raise(SIGKILL);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	usleep(2000); /* the agent sees the death */
	CHECK_EQ(played_acquire(&c, f, 0), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(fstat(f->fd, &st), 0);
	CHECK_EQ(st.st_size, 2 * RECORDS);
}

int main(void)
{
	const struct sfs_agent_config config = {.pool_bytes = 8u << 20, .chunk_bytes = WORLD_CHUNK, .log_bytes = 4u << 20};
	struct world_file f, g, r, big;
	int status, ro;
	char buf[500];

	signal(SIGTERM, SIG_DFL);
	CHECK_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	world_new(&w);
	f = world_file(&w, "f", 'o', 100);
	g = world_file(&w, "g", 'o', 100);
	r = world_file(&w, "r", 'o', 100);
	big = world_file(&w, "big", 'o', 0);
	agent_start_with(&a, &w, &config);

	victim(&f, f.fd, SFS_DELEG_EXCLUSIVE, false, 'a');
	CHECK_EQ(played_hello(&c, &a, SFS_STRICT, 0, f.fd), 0);
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_EXCLUSIVE);
	world_expect(&f, 600, 100, 600, 'a');
	CHECK(waitpid(-1, &status, 0) > 0);

	/* The socket stays open in a child. */
	CHECK_EQ(mkdirat(w.root.fd, "d", 0755), 0);
	victim(&g, g.fd, SFS_DELEG_EXCLUSIVE, true, 'b');
	CHECK_EQ(renameat(w.root.fd, "g", w.root.fd, "d/renamed"), 0);
	CHECK_EQ(played_acquire(&c, &g, 0), SFS_DELEG_EXCLUSIVE);
	world_expect(&g, 600, 100, 600, 'b');

	/* Opened for reading: the record has no effect. */
	ro = openat(w.root.fd, "r", O_RDONLY);
	victim(&r, ro, SFS_DELEG_EXCLUSIVE, false, 'c');
	CHECK_EQ(played_acquire(&c, &r, 0), SFS_DELEG_EXCLUSIVE);
	world_expect(&r, 100, 0, 100, 'o');
	close(ro);
	slow(&big);
	close(big.fd);

	played_close(&c);
	agent_stop(&a, SIGTERM);
	CHECK_EQ(rmdir(a.dir), 0);
	/* Everything went with its client. */
	CHECK_EQ(world_entries(&w, w.root.log), 0);
	{
		struct sfs_totals t;

		CHECK_EQ(sfs_totals_read(&w.root, &t), 0);
		CHECK_EQ(t.recovery_replayed, 60002);
		CHECK_EQ(t.recovery_quarantined, 1);
	}
	CHECK_EQ(pread(f.fd, buf, 100, 0), 100);
	/* End the strays: they are ours by now. */
	{
		char path[64], text[256];
		FILE *file;

		snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
		file = fopen(path, "r");
		if (file && fgets(text, sizeof(text), file))
			for (char *p = strtok(text, " "); p; p = strtok(NULL, " "))
				kill(atoi(p), SIGKILL);
		if (file)
			fclose(file);
	}
	close(f.fd);
	close(g.fd);
	close(r.fd);
	world_end(&w);
	return 0;
}
