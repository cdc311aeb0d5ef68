/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging space is for who may write to the volume. Who may only read takes none of the volume's space, whatever it shows and whatever it
 * does with what it gets, and reads coherently all the same.
 */
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include "played.h"
#include "format/owners.h"

static struct played_agent a;
static struct world w;
static struct world_file f;

struct hello {
	struct played c;
	int table;
};

/* HELLO of a client that knows of the table. */
static int hello(struct hello *h, uint32_t resume, int proof)
{
	struct sfs_msg m = {.version = SFS_PROTO_OLDEST,
			    .type = SFS_MSG_HELLO,
			    .a = SFS_POSIX,
			    .b = resume,
			    .c = SFS_FEATURES & ~SFS_FEATURE_TURN};
	int fds[3];

	h->c.sock = played_connect(&a);
	CHECK(h->c.sock >= 0);
	CHECK_EQ(played_send(h->c.sock, &m, sizeof(m), &proof, 1), 0);
	CHECK_EQ(played_recv(h->c.sock, &m, fds, 3, PATIENCE), 1);
	if (m.status < 0) {
		close(h->c.sock);
		return m.status;
	}
	h->c.log = (uint32_t)m.a;
	h->c.flags = m.b;
	h->c.chunk_bytes = m.c;
	h->c.log_fd = fds[0];
	h->c.event = fds[1];
	h->table = fds[2];
	return 0;
}

static void end(struct hello *h)
{
	played_close(&h->c);
	close(h->table);
}

static int chunk(struct hello *h)
{
	uint64_t bytes;
	uint32_t id;
	const int fd = played_chunk_for(&h->c, 4096, &id, &bytes);

	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

/* LOOK, answered: `status`. */
static int look(struct hello *h, uint64_t ino)
{
	struct sfs_msg m = {.version = SFS_PROTO_OLDEST, .type = SFS_MSG_LOOK, .a = ino, .d = 7};

	CHECK_EQ(played_send(h->c.event, &m, sizeof(m), NULL, 0), 0);
	CHECK_EQ(played_recv(h->c.event, &m, NULL, 0, PATIENCE), 1);
	CHECK_EQ(m.type, SFS_MSG_LOOKED);
	CHECK_EQ(m.d, 7);
	return m.status;
}

static int reopen(int fd, int flags)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_CLOEXEC);
}

/* On a writable mount: what is not a regular file that is open for writing is no proof. */
static void no_proof(void)
{
	int proofs[8], n = 0;
	struct hello h;

	CHECK_EQ(mkfifoat(w.root.fd, "fifo", 0600), 0);
	proofs[n++] = openat(w.root.fd, "f", O_RDONLY);
	proofs[n++] = openat(w.root.fd, "f", O_PATH);
	proofs[n++] = openat(w.root.fd, ".", O_RDONLY | O_DIRECTORY);
	proofs[n++] = openat(w.root.fd, "fifo", O_RDWR);
	for (int i = 0; i < n; i++) {
		CHECK(proofs[i] >= 0);
		CHECK_EQ(hello(&h, 0, proofs[i]), 0);
		CHECK_EQ(chunk(&h), -EACCES);
		/* Nor is its own log, which it has for writing, nor the table. */
		CHECK_EQ(chunk(&h), -EACCES);
		played_ask(&h.c, &(struct world_file){.ino = 0, .gen = 0}, h.c.log_fd, 0);
		CHECK(played_answer(&h.c, PATIENCE) < 0);
		{
			struct world_file log = world_identify(h.c.log_fd);
			struct hello again;

			CHECK_EQ(played_acquire(&h.c, &log, 0), -EINVAL);
			CHECK_EQ(hello(&again, 0, h.c.log_fd), -EACCES);
			CHECK_EQ(hello(&again, 0, h.table), -EACCES);
		}
		CHECK_EQ(chunk(&h), -EACCES);
		/* Reading is granted, and is no right to stage. */
		CHECK_EQ(played_acquire(&h.c, &f, 0) > 0, true);
		end(&h);
		CHECK_EQ(hello(&h, 0, proofs[i]), 0);
		played_ask(&h.c, &f, proofs[0], 0);
		CHECK_EQ(played_answer(&h.c, PATIENCE), SFS_DELEG_EXCLUSIVE);
		CHECK_EQ(chunk(&h), -EACCES);
		CHECK_EQ(look(&h, f.ino), 0);
		/* A file that it may write is one, also later. */
		CHECK_EQ(played_acquire(&h.c, &f, 0), SFS_DELEG_EXCLUSIVE);
		CHECK_EQ(chunk(&h), 0);
		end(&h);
		close(proofs[i]);
		if (i == 0)
			proofs[0] = openat(w.root.fd, "f", O_RDONLY);
	}
	close(proofs[0]);
	CHECK_EQ(hello(&h, 0, f.fd), 0);
	CHECK_EQ(chunk(&h), 0);
	end(&h);
}

static uint64_t used(void)
{
	struct statvfs sv;

	CHECK_EQ(fstatvfs(w.root.fd, &sv), 0);
	return (sv.f_blocks - sv.f_bfree) * sv.f_frsize;
}

/* A pod with the volume read-only: this process sees no other mount of it. */
static void reader(int go, int done)
{
	static char block[1 << 20];
	const struct sfs_claims *claims;
	struct hello h, again;
	int proof, fd;
	char order;

	proof = openat(w.root.fd, "f", O_RDONLY);
	CHECK(proof >= 0 && openat(w.root.fd, "f", O_RDWR) < 0);
	CHECK_EQ(hello(&h, 0, proof), 0);
	CHECK(!(h.c.flags & SFS_HELLO_DAX));
	CHECK_EQ(chunk(&h), -EACCES);
	claims = mmap(NULL, 20480, PROT_READ | PROT_WRITE, MAP_SHARED, h.c.log_fd, 0);
	CHECK(claims != MAP_FAILED);
	/* What it has got can't be made larger, nor be opened anew for more. */
	CHECK(ftruncate(h.c.log_fd, 1 << 30) < 0);
	CHECK(fallocate(h.c.log_fd, 0, 0, 1 << 30) < 0);
	CHECK(pwrite(h.c.log_fd, block, sizeof(block), 20480) < 0);
	if (h.table >= 0) {
		CHECK(reopen(h.table, O_RDWR) < 0 && errno == EROFS);
		CHECK(hello(&again, 0, h.table) < 0);
	}
	/* Its own log and a FIFO are no way to more. */
	fd = openat(w.root.fd, "fifo", O_RDWR);
	CHECK(fd >= 0);
	CHECK_EQ(hello(&again, 0, fd), 0);
	CHECK_EQ(chunk(&again), -EACCES);
	CHECK(ftruncate(again.c.log_fd, 1 << 30) < 0);
	end(&again);
	close(fd);
	CHECK_EQ(hello(&again, 0, h.c.log_fd), -EACCES);
	/* It reads what others have written. */
	CHECK_EQ(look(&h, f.ino), 0);
	played_ask(&h.c, &f, proof, 0);
	CHECK_EQ(played_answer(&h.c, PATIENCE), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(write(done, "1", 1), 1);
	/* The agent is made anew: this process comes back, and nobody takes it for dead. */
	CHECK_EQ(read(go, &order, 1), 1);
	again = h;
	CHECK_EQ(hello(&h, again.c.log, again.c.log_fd), 0);
	CHECK_EQ(h.c.log, again.c.log);
	CHECK_EQ(chunk(&h), -EACCES);
	end(&again);
	CHECK_EQ(look(&h, f.ino), 0);
	CHECK_EQ(write(done, "2", 1), 1);
	CHECK_EQ(read(go, &order, 1), 1);
	exit(0);
}

/* The process sees the volume at `dir` only, read-only. */
static bool read_only_view(const char *dir)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, dir, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) < 0)
		return false;
	w.root.fd = open(w.dir, O_RDONLY | O_DIRECTORY);
	CHECK(w.root.fd >= 0);
	return true;
}

static void told(int fd, char what)
{
	char got;

	CHECK_EQ(read(fd, &got, 1), 1);
	CHECK_EQ(got, what);
}

static void only_reads(void)
{
	int go[2], done[2], status;
	struct hello writer;
	uint64_t before;
	pid_t pid;

	CHECK(pipe(go) == 0 && pipe(done) == 0);
	EVENTUALLY(pool_files(&w, WORLD_CHUNK) == 4);
	before = used();
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(go[1]);
		close(f.fd); /* nobody's who does not tell */
		CHECK(read_only_view(getenv("TEST_VOLUME")));
		reader(go[0], done[1]);
	}
	close(done[1]);
	told(done[0], '1');
	/* Spare logs that are being made are no reader's. */
	CHECK(used() < before + (1 << 20));
	agent_stop(&a, SIGKILL);
	agent_start(&a, &w);
	CHECK_EQ(write(go[1], "r", 1), 1);
	told(done[0], '2');
	/* It is in nobody's way. */
	CHECK_EQ(hello(&writer, 0, f.fd), 0);
	played_alone(&writer.c, &f);
	CHECK_EQ(chunk(&writer), 0);
	end(&writer);
	CHECK_EQ(write(go[1], "e", 1), 1);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(go[0]);
	close(go[1]);
	close(done[0]);
}

/* The same device at a second place, writable: showing the read-only one takes nothing away. */
static void two_mounts(const char *dir)
{
	char second[] = "/tmp/sfs-rights.XXXXXX";
	struct hello h;
	int fd;

	CHECK(mkdtemp(second));
	CHECK_EQ(mount(dir, second, NULL, MS_BIND, NULL), 0);
	CHECK_EQ(mount(NULL, second, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), 0);
	fd = open(second, O_RDONLY | O_DIRECTORY);
	CHECK(fd >= 0);
	CHECK_EQ(hello(&h, 0, fd), 0);
	CHECK(!(fcntl(h.c.log_fd, F_GET_SEALS) & F_SEAL_GROW));
	CHECK_EQ(chunk(&h), -EACCES);
	CHECK_EQ(played_acquire(&h.c, &f, 0), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(chunk(&h), 0);
	end(&h);
	close(fd);
	CHECK_EQ(umount(second), 0);
	CHECK_EQ(rmdir(second), 0);
}

int main(void)
{
	char dir[] = "/tmp/sfs-rights.XXXXXX";
	bool mounts;

	CHECK(mkdtemp(dir));
	mounts = unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		 mount("none", dir, "tmpfs", 0, "size=256m") == 0;
	if (mounts)
		setenv("TEST_VOLUME", dir, 1);
	else
		printf("no mounts of its own: who may only read is left out (%s)\n", strerror(errno));
	world_new(&w);
	f = world_file(&w, "f", 'o', 4096);
	agent_start(&a, &w);
	no_proof();
	if (mounts) {
		only_reads();
		two_mounts(dir);
	}
	agent_end(&a);
	close(f.fd);
	world_end(&w);
	CHECK_EQ(mounts ? umount(dir) : 0, 0);
	CHECK_EQ(rmdir(dir), 0);
	return 0;
}
