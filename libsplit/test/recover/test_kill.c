/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery is killed before each of its system calls in turn and started again: the tree is always the one that an undisturbed
 * recovery leaves.
 */
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "world.h"

static struct world_file files[3];

/* What becomes of the lease of one log: then its staging file is nobody's. */
enum lease { WHOLE, DAMAGED, LOST };

/* Overwrites, appends, a moved block, a retired file, two logs. */
static void build(struct world *w, enum lease lease)
{
	struct world_log a, b;
	uint64_t rng = 7;

	world_new(w);
	for (int i = 0; i < 3; i++)
		files[i] = world_file(w, (const char *[]){"f", "g", "h"}[i], 'o', 20000);
	world_log(w, &a, 1, 64);
	world_log(w, &b, 2, 64);
	for (int i = 0; i < 3; i++) {
		world_allow(&a, &files[i]);
		world_allow(&b, &files[i]);
	}
	world_write(w, &a, &files[2], 0, 100, 'z', 200);
	world_done(w, &a, files[2].ino, files[2].gen, SFS_REC_DURABLE);
	for (int i = 0; i < 12; i++)
		world_write(w, &a, &files[test_below(&rng, 2)], test_below(&rng, 30000), 1 + (uint32_t)test_below(&rng, 9000),
			    (char)('a' + i), (uint32_t)i * 4);
	world_write(w, &a, &files[0], 4096, 4096, 'M', 100);
	CHECK_EQ(fallocate(a.chunk_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100 * 4096, 4096), 0);
	for (int i = 0; i < 3; i++)
		world_write(w, &b, &files[2], (uint64_t)i * 5000, 6000, (char)('A' + i), (uint32_t)i * 4);
	if (lease == DAMAGED)
		CHECK_EQ(ftruncate(b.lease.fd, 100), 0);
	if (lease == LOST)
		CHECK_EQ(sfs_lease_remove(&w->root, b.id), 0);
	world_log_close(&a);
	world_log_close(&b);
}

static uint32_t digest(void)
{
	uint32_t crc = 0;

	for (int i = 0; i < 3; i++) {
		char buf[65536];
		const ssize_t n = pread(files[i].fd, buf, sizeof(buf), 0);

		CHECK(n > 0);
		crc = crc32c(crc, &n, sizeof(n));
		crc = crc32c(crc, buf, (size_t)n);
	}
	return crc;
}

static void drop(struct world *w)
{
	for (int i = 0; i < 3; i++)
		close(files[i].fd);
	world_end(w);
}

/* True when it was killed before its n-th call, false when it had ended by then. */
static bool killed_at(struct world *w, long n)
{
	const pid_t pid = fork();
	int status;

	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK_EQ(ptrace(PTRACE_TRACEME, 0, NULL, NULL), 0);
		raise(SIGSTOP);
		world_recover(w);
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	for (long i = 0; i < 2 * n; i++) { /* each call stops twice, before and after */
		CHECK_EQ(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		if (WIFEXITED(status)) {
			CHECK_EQ(WEXITSTATUS(status), 0);
			return false;
		}
	}
	kill(pid, SIGKILL);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	return true;
}

static long killed_anywhere(enum lease lease)
{
	struct world w;
	uint32_t want;
	bool killed;
	long n = 0;

	build(&w, lease);
	world_recover(&w);
	want = digest();
	drop(&w);
	do {
		build(&w, lease);
		killed = killed_at(&w, ++n);
		world_recover(&w);
		CHECK_EQ(digest(), want);
		CHECK_EQ(world_entries(&w, w.root.log), 0);
		CHECK_EQ(world_entries(&w, w.root.pool), 0);
		drop(&w);
	} while (killed);
	return n - 1;
}

int main(void)
{
	const long n = killed_anywhere(WHOLE), damaged = killed_anywhere(DAMAGED), lost = killed_anywhere(LOST);

	CHECK(n > 60 && damaged > 60 && lost > 60);
	printf("killed at %ld, %ld and %ld points\n", n, damaged, lost);
	return 0;
}
