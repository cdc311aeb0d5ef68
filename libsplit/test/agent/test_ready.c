/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that start one after the other: a log and a tiny staging file go from one to the next of the same user, with
 * nothing in them, and to nobody while somebody still has them. What is to be recovered is. A killed agent's ready logs
 * go, and so do those that nobody uses or whose space is needed.
 */
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include "played.h"

#define MIB	 (1ull << 20)
#define FULL	 (16 * MIB)
#define PROGRAMS 300
#define KILLED	 150 /* this one of them */
#define OTHER	 1234
#define IDLE	 20000 /* ms: more than the agent keeps a log that nobody uses */

static const struct sfs_agent_config config = {
	.pool_bytes = 4 * FULL, .chunk_bytes = FULL, .log_bytes = 64 << 10, .fill_percent = 100};

static struct played_agent a;
static struct world w;

/* What a program found. */
struct found {
	uint32_t log, chunk;
	pid_t child; /* KEEPS */
	bool clean;
};

static bool zeros(int fd, off_t from)
{
	char buf[4096], none[4096] = {0};
	ssize_t n;

	while ((n = pread(fd, buf, sizeof(buf), from)) > 0) {
		if (memcmp(buf, none, (size_t)n) != 0)
			return false;
		from += n;
	}
	return n == 0;
}

/* Leave all that a client can leave: bytes of ours, and records that would be the next one's, whose epoch is another. */
static void spoil(struct played *c, const struct world_file *f, uint32_t chunk, int chunk_fd)
{
	static char bytes[SFS_TINY_CHUNK];
	const uint64_t epoch = played_epoch(c);

	memset(bytes, 's', sizeof(bytes));
	CHECK_EQ(pwrite(chunk_fd, bytes, sizeof(bytes), 0), sizeof(bytes));
	for (uint32_t slot = 0; slot < 8; slot++) {
		struct world_log l = {.id = c->log, .epoch = epoch + 1 + slot / 4, .chunk = chunk};
		struct sfs_record r = world_record(&l, f, 0, 100, 0, 100);

		world_seal(&w, &l, &r, slot);
		CHECK_EQ(pwrite(c->log_fd, &r, sizeof(r), SFS_LOG_RECORDS_OFFSET + (off_t)slot * 64), 64);
	}
}

enum end { ENDS, KEEPS, DIES };

/* The program: what it finds goes to the pipe. */
static void program(const struct world_file *f, enum end end, int out)
{
	struct found found = {0};
	struct played c;
	uint64_t bytes;
	int chunk_fd, status = played_hello_knows(&c, &a, SFS_STRICT, 0, f->fd, SFS_FEATURE_GROW);

	CHECK_EQ(status, 0);
	found.log = c.log;
	found.clean = zeros(c.log_fd, SFS_LOG_RECORDS_OFFSET);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, c.log_fd, 0) != MAP_FAILED);
	CHECK_EQ(played_acquire(&c, f, 0), SFS_DELEG_EXCLUSIVE);
	chunk_fd = played_chunk_for(&c, 100, &found.chunk, &bytes);
	CHECK(chunk_fd >= 0);
	CHECK_EQ(bytes, SFS_TINY_CHUNK);
	found.clean = found.clean && zeros(chunk_fd, 0);
	if (end == DIES) {
		CHECK_EQ(pwrite(chunk_fd, "recover", 7, 100), 7);
		played_record(&w, &c, f, 0, found.chunk, 100, 7, 100);
	} else {
		spoil(&c, f, found.chunk, chunk_fd);
		played_notify(&c, SFS_MSG_RELEASE, f->ino, f->gen);
		/* It has been heard. */
		CHECK_EQ(played_acquire(&c, f, SFS_ACQ_TRY), SFS_DELEG_EXCLUSIVE);
		played_notify(&c, SFS_MSG_RELEASE, f->ino, f->gen);
	}
	if (end == KEEPS)
		found.child = fork();
	if (end != KEEPS || found.child != 0)
		CHECK_EQ(write(out, &found, sizeof(found)), sizeof(found));
	if (end == KEEPS && found.child == 0) {
		close(c.sock);
		close(c.event);
		close(out);
		alarm(60); /* should the test fail */
		pause();
	}
	raise(SIGKILL);
}

static struct found run(const struct world_file *f, uid_t user, enum end end)
{
	struct found found;
	int p[2], status;
	pid_t pid;

	CHECK_EQ(pipe(p), 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		close(p[0]);
		if (user)
			CHECK_EQ(setuid(user), 0);
		program(f, end, p[1]);
	}
	close(p[1]);
	CHECK_EQ(read(p[0], &found, sizeof(found)), sizeof(found));
	close(p[0]);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(found.clean);
	return found;
}

/* Logs that no process has. */
static unsigned ready(void)
{
	struct sfs_numbers logs, leases;
	struct sfs_why why = {0};
	unsigned n = 0;

	CHECK_EQ(sfs_log_list(&w.root, &logs, &leases, &why), 0);
	for (uint32_t i = 0; i < leases.n; i++) {
		struct sfs_leasefile l;

		if (sfs_lease_load(&w.root, leases.v[i], &l, NULL))
			continue;
		n += l.head.pid == 0 && !l.head.held;
		sfs_lease_close(&l);
	}
	sfs_numbers_free(&logs);
	sfs_numbers_free(&leases);
	return n;
}

/* Gone within that time. */
static bool none_within(int ms)
{
	for (; ms > 0 && ready() > 0; ms -= 10)
		usleep(10000);
	return ready() == 0;
}

static bool log_gone(uint32_t id)
{
	char name[32];

	sfs_number_name(name, id, "");
	return faccessat(w.root.log, name, F_OK, 0) < 0;
}

static void one_after_the_other(const struct world_file *f)
{
	unsigned again = 0;
	uint32_t before = 0, killed = 0;

	for (int i = 0; i < PROGRAMS; i++) {
		const struct found found = run(f, 0, i == KILLED ? DIES : ENDS);

		CHECK(found.log != killed);
		again += found.log == before;
		before = found.log;
		if (i == KILLED) {
			killed = found.log;
			EVENTUALLY(lseek(f->fd, 0, SEEK_END) == 107);
			EVENTUALLY(log_gone(killed));
		}
	}
	/* The first, the one behind the killed one, and where the end is seen before the kernel has closed all. */
	CHECK(again >= PROGRAMS * 9 / 10);
	/* Nothing that a program left for the next one has become a part of the file. */
	CHECK_EQ(lseek(f->fd, 0, SEEK_END), 107);
	EVENTUALLY(ready() >= 1);
	CHECK(ready() <= SFS_READY_LOGS_MAX);
}

/* Somebody still has the log: it is nobody else's. */
static void kept(const struct world_file *f)
{
	const struct found first = run(f, 0, KEEPS);

	for (int i = 0; i < 10; i++) {
		const struct found found = run(f, 0, ENDS);

		CHECK(found.log != first.log && found.chunk != first.chunk);
	}
	CHECK_EQ(kill(first.child, SIGKILL), 0);
}

static void other_user(const struct world_file *f)
{
	const struct found mine = run(f, 0, ENDS), other = run(f, OTHER, ENDS), mine_again = run(f, 0, ENDS);

	CHECK(other.log != mine.log && other.chunk != mine.chunk);
	CHECK(mine_again.log != other.log && mine_again.chunk != other.chunk);
}

static void killed_agent(const struct world_file *f)
{
	run(f, 0, ENDS);
	EVENTUALLY(ready() > 0);
	agent_stop(&a, SIGKILL);
	agent_start_with(&a, &w, &config);
	CHECK_EQ(ready(), 0);
	for (int i = 0; i < 3; i++)
		run(f, i == 1 ? OTHER : 0, ENDS);
	CHECK_EQ(lseek(f->fd, 0, SEEK_END), 107);
}

/* The volume is full, and somebody waits for a staging file. */
static void short_of_space(const struct world_file *f)
{
	static struct played many[16];
	const int filler = openat(w.root.fd, "filler", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct statvfs sv;
	uint32_t id;
	int n = 0, fd = 0;

	CHECK(filler >= 0);
	run(f, 0, ENDS);
	EVENTUALLY(ready() > 0);
	CHECK_EQ(statvfs(w.dir, &sv), 0);
	CHECK_EQ(fallocate(filler, 0, 0, (off_t)(sv.f_bavail * sv.f_frsize - 1 * MIB)), 0);
	while (n < 16 && fd >= 0) {
		uint64_t bytes;

		CHECK_EQ(played_hello_knows(&many[n], &a, SFS_POSIX, 0, f->fd, SFS_FEATURE_GROW), 0);
		fd = played_chunk_for(&many[n++], 0, &id, &bytes);
		if (fd >= 0)
			close(fd);
	}
	CHECK_EQ(fd, -ENOSPC);
	CHECK(none_within(IDLE / 10));
	for (int i = 0; i < n; i++)
		played_close(&many[i]);
	CHECK_EQ(ftruncate(filler, 0), 0);
	close(filler);
}

int main(void)
{
	const char *before = getenv("TEST_VOLUME");
	char dir[] = "/tmp/sfs-ready.XXXXXX";
	struct world_file f;

	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || !mkdtemp(dir) ||
	    mount("none", dir, "tmpfs", 0, "size=256m") < 0) {
		printf("no tmpfs of its own (%s)\n", strerror(errno));
		return 77;
	}
	setenv("TEST_VOLUME", dir, 1);
	world_new(&w);
	f = world_file(&w, "f", 'o', 0);
	agent_start_with(&a, &w, &config);
	CHECK_EQ(chmod(a.dir, 0755), 0);
	CHECK_EQ(chmod(a.sock, 0666), 0);
	one_after_the_other(&f);
	kept(&f);
	other_user(&f);
	killed_agent(&f);
	short_of_space(&f);
	run(&f, 0, ENDS);
	EVENTUALLY(ready() > 0);
	CHECK(none_within(IDLE));
	run(&f, 0, ENDS);
	EVENTUALLY(ready() > 0);
	close(f.fd);
	/* What is ready goes with the agent. */
	agent_end(&a);
	CHECK_EQ(ready(), 0);
	world_end(&w);
	if (before)
		setenv("TEST_VOLUME", before, 1);
	CHECK_EQ(umount(dir), 0);
	CHECK_EQ(rmdir(dir), 0);
	return 0;
}
