/* SPDX-License-Identifier: Apache-2.0 */
/* Logs and staging files: leased, limited, given back, and never with another client's bytes in them. */
#include "control/memory.h"
#include "played.h"

static void all_zero(int fd, size_t n)
{
	char *p = malloc(n);

	CHECK(p);
	CHECK_EQ(pread(fd, p, n, 0), n);
	for (size_t i = 0; i < n; i++)
		CHECK_EQ(p[i], 0);
	free(p);
}

int main(void)
{
	struct played_agent a = {0};
	struct sfs_machine machine;
	struct sfs_why why = {0};
	struct world w;
	struct played c, d;
	struct sfs_log_header h;
	struct sfs_lease lease;
	char secret[4096];
	uint32_t ids[3], id;
	int fds[3], fd, proof, foreign;
	char name[32];

	world_new(&w);
	agent_start(&a, &w);
	proof = played_proof(&w);
	foreign = open("/proc/self/status", O_RDONLY);

	/* Whoever can't show a file of the volume gets nothing. */
	CHECK_EQ(played_hello(&c, &a, SFS_STRICT, 0, foreign), -EACCES);
	CHECK_EQ(played_hello(&c, &a, SFS_STRICT, 0, -1), -EACCES);
	CHECK_EQ(played_hello(&c, &a, 3, 0, proof), -EINVAL);
	CHECK_EQ(played_hello(&c, &a, SFS_STRICT, 99, proof), -ESTALE);

	CHECK_EQ(played_hello(&c, &a, SFS_SYNC, 0, proof), 0);
	CHECK_EQ(c.flags & SFS_HELLO_DEDICATED, 0);
	/* A client flushes nothing where the agent says so, and that is said of such memory only. */
	CHECK_EQ(sfs_machine_here(&machine, &why), 0);
	CHECK_EQ(!!(c.flags & SFS_HELLO_CACHES), sfs_memory_of_root(&machine, &w.root) == SFS_MEMORY_EADR);
	CHECK_EQ(c.chunk_bytes, WORLD_CHUNK);
	CHECK(c.provider > RELINK_NONE && c.provider < RELINK_PROVIDERS);
	CHECK_EQ(pread(c.log_fd, &h, sizeof(h), 0), sizeof(h));
	CHECK_EQ(h.magic, SFS_LOG_MAGIC);
	CHECK_EQ(h.log_id, c.log);
	CHECK_EQ(h.slots, 1024);
	CHECK_EQ(h.seed, sfs_log_seed(w.root.uuid, c.log));
	CHECK_EQ(h.epoch, 1);

	/* Half of the pool of four, then the limit says so. */
	for (int i = 0; i < 2; i++) {
		struct stat st;

		fds[i] = played_chunk(&c, &ids[i]);
		CHECK(fds[i] >= 0);
		CHECK_EQ(fstat(fds[i], &st), 0);
		CHECK_EQ(st.st_size, WORLD_CHUNK);
		CHECK_EQ(fcntl(fds[i], F_GETFL) & O_ACCMODE, O_RDWR);
		CHECK_EQ(lseek(fds[i], 0, SEEK_HOLE), WORLD_CHUNK);
		all_zero(fds[i], WORLD_CHUNK);
	}
	CHECK_EQ(played_chunk(&c, &id), -ENOSPC);
	snprintf(name, sizeof(name), "%06u.lease", c.log);
	fd = openat(w.root.log, name, O_RDONLY);
	CHECK_EQ(read(fd, &lease, sizeof(lease)), sizeof(lease));
	close(fd);
	CHECK_EQ(lease.pid, getpid());
	CHECK_EQ(lease.mode, SFS_SYNC);
	CHECK_EQ(lease.nchunks, 2);

	/* Given back while a descriptor is kept: what is written through it reaches nobody. */
	memset(secret, 's', sizeof(secret));
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(pwrite(fds[i], secret, sizeof(secret), 0), sizeof(secret));
		played_notify(&c, SFS_MSG_RETURN, ids[i], 0);
	}
	CHECK_EQ(played_hello(&d, &a, SFS_POSIX, 0, proof), 0);
	CHECK(d.log != c.log);
	for (int i = 0; i < 2; i++) {
		fd = played_chunk(&d, &id);
		CHECK(fd >= 0);
		CHECK(id != ids[0] && id != ids[1]);
		CHECK_EQ(pwrite(fds[0], secret, sizeof(secret), 0), sizeof(secret));
		CHECK_EQ(pwrite(fds[1], secret, sizeof(secret), 0), sizeof(secret));
		all_zero(fd, WORLD_CHUNK);
		close(fd);
	}
	close(fds[0]);
	close(fds[1]);
	played_close(&d);

	/* More leases than the pool has: it is refilled, again and again. */
	for (int i = 0; i < 40; i++) {
		fd = played_chunk(&c, &id);
		CHECK(fd >= 0);
		played_notify(&c, SFS_MSG_RETURN, id, 0);
		close(fd);
	}
	/* Nobody can give back what he does not have. */
	played_notify(&c, SFS_MSG_RETURN, 1u << 30, 0);
	{
		struct sfs_msg m;

		CHECK_EQ(played_recv(c.sock, &m, NULL, 0, PATIENCE), 0);
	}
	played_close(&c);
	close(proof);
	close(foreign);
	agent_end(&a);
	CHECK_EQ(world_entries(&w, w.root.log), 0);
	world_end(&w);
	return 0;
}
