/* SPDX-License-Identifier: Apache-2.0 */
/* Tiny and small staging files: for the first few bytes of a program, beside its share of the pool, and never the reason why it gets none. */
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include "played.h"

#define MIB	 (1ull << 20)
#define FULL	 (16 * MIB)
#define FULL_MAX 2 /* half of a pool of four */

static uint64_t lease(struct played *c, uint64_t wanted, uint32_t *id)
{
	uint64_t bytes = 0;
	struct stat st;
	const int fd = played_chunk_for(c, wanted, id, &bytes);

	CHECK(fd >= 0);
	CHECK_EQ(fstat(fd, &st), 0);
	CHECK_EQ(st.st_size, bytes);
	CHECK_EQ(lseek(fd, 0, SEEK_HOLE), bytes);
	close(fd);
	return bytes;
}

/* Files of the pool by size, once there are so many; more small ones once somebody had to wait for a log. */
static void settle_within(struct world *w, int full, int small, int most)
{
	int nfull = 0, nsmall = 0;

	for (int i = 0; i < PATIENCE / 10 && (nfull != full || nsmall < small); i++, usleep(10000)) {
		nfull = pool_files(w, FULL);
		nsmall = pool_files(w, SFS_SMALL_CHUNK);
	}
	CHECK_EQ(nfull, full);
	CHECK(nsmall >= small && nsmall <= most);
}

static void settle_at(struct world *w, int full, int small)
{
	settle_within(w, full, small, SFS_SPARE_LOGS_MAX);
}

#define CLIENTS 8

/* What is staged in small ones needs room in the files, too, where relink copies: no staging file is made of that. */
static void keeps_room(const struct sfs_agent_config *config)
{
	struct played_agent a = {0};
	struct world w;
	struct played c = {0}, clients[CLIENTS] = {0};
	const char *before = getenv("TEST_VOLUME");
	char dir[] = "/tmp/sfs-small.XXXXXX";
	uint32_t id, full;
	struct statvfs sv;
	int proof, filler;

	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || !mkdtemp(dir) ||
	    mount("none", dir, "tmpfs", 0, "size=256m") < 0) {
		printf("no tmpfs of its own: room for small ones is left out (%s)\n", strerror(errno));
		return;
	}
	setenv("TEST_VOLUME", dir, 1);
	world_new(&w);
	agent_start_with(&a, &w, config);
	proof = played_proof(&w);
	CHECK_EQ(played_hello(&c, &a, SFS_STRICT, 0, proof), 0);
	CHECK_EQ(c.provider, RELINK_COPY);
	CHECK_EQ(lease(&c, FULL, &full), FULL);
	for (int i = 0, tries = 0; i < CLIENTS;) {
		settle_within(&w, 3, i + 1, CLIENTS + SFS_SPARE_LOGS_MAX);
		CHECK_EQ(played_hello(&clients[i], &a, SFS_STRICT, 0, proof), 0);
		if (lease(&clients[i], 1 * MIB, &id) == SFS_SMALL_CHUNK)
			i++;
		else
			played_close(&clients[i]);
		CHECK(++tries < 100);
	}
	settle_within(&w, 3, CLIENTS + 1, CLIENTS + SFS_SPARE_LOGS_MAX);
	/* 12 MiB are left, and 16 more when the full-size one goes: enough for another one, but not with what the small ones need. */
	filler = openat(w.root.fd, "filler", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(filler >= 0 && statvfs(w.dir, &sv) == 0);
	CHECK_EQ(fallocate(filler, 0, 0, (off_t)(sv.f_bavail * sv.f_frsize - 12 * MIB)), 0);
	close(filler);
	played_notify(&c, SFS_MSG_RETURN, full, 0);
	settle_within(&w, 2, CLIENTS, CLIENTS + SFS_SPARE_LOGS_MAX);
	usleep(300000); /* it is to stay so */
	settle_within(&w, 2, CLIENTS, CLIENTS + SFS_SPARE_LOGS_MAX);
	/* They are done with it. */
	for (int i = 0; i < CLIENTS; i++)
		played_close(&clients[i]);
	settle_within(&w, 3, 0, CLIENTS + SFS_SPARE_LOGS_MAX);
	played_close(&c);
	close(proof);
	agent_end(&a);
	world_end(&w);
	if (before)
		setenv("TEST_VOLUME", before, 1);
	else
		unsetenv("TEST_VOLUME");
	CHECK_EQ(umount(dir), 0);
	CHECK_EQ(rmdir(dir), 0);
}

int main(void)
{
	const struct sfs_agent_config config = {
		.pool_bytes = 4 * FULL, .chunk_bytes = FULL, .log_bytes = 64 << 10, .fill_percent = 100};
	struct played_agent a = {0};
	struct world w;
	struct played c = {0}, d = {0};
	uint32_t id, small;
	uint64_t bytes;
	int proof;

	world_new(&w);
	agent_start_with(&a, &w, &config);
	proof = played_proof(&w);
	/* The space of one full-size file is for small ones. */
	settle_at(&w, 3, 2);
	CHECK_EQ(played_hello(&c, &a, SFS_STRICT, 0, proof), 0);
	CHECK_EQ(lease(&c, 4096, &id), SFS_TINY_CHUNK);
	CHECK_EQ(lease(&c, 4096, &small), SFS_SMALL_CHUNK);
	/* Not a second one, and they do not count against the share. */
	for (int i = 0; i < FULL_MAX; i++)
		CHECK_EQ(lease(&c, 4096, &id), FULL);
	CHECK_EQ(played_chunk_for(&c, 4096, &id, &bytes), -ENOSPC);
	played_notify(&c, SFS_MSG_RETURN, small, 0);
	CHECK_EQ(played_chunk_for(&c, 4096, &id, &bytes), -ENOSPC);
	played_notify(&c, SFS_MSG_RETURN, id, 0);
	CHECK_EQ(lease(&c, 4096, &id), FULL);
	/* Whoever is about to stage more, or does not say, gets a full one; and small ones come again. */
	CHECK_EQ(played_hello(&d, &a, SFS_POSIX, 0, proof), 0);
	CHECK_EQ(lease(&d, 1 * MIB + 1, &id), FULL);
	played_close(&d);
	for (int i = 0; i < 10; i++) {
		CHECK_EQ(played_hello(&d, &a, SFS_POSIX, 0, proof), 0);
		/* Which is made for it when none is ready. */
		if (i % 2)
			CHECK_EQ(lease(&d, 4096, &id), SFS_TINY_CHUNK);
		CHECK_EQ(lease(&d, 1 * MIB, &id), SFS_SMALL_CHUNK);
		played_close(&d);
	}
	settle_at(&w, 4, 2);
	/* The next agent knows both sizes. A small one that is leased counts as a full one then. */
	agent_stop(&a, SIGKILL);
	played_close(&c);
	agent_start_with(&a, &w, &config);
	settle_at(&w, 3, 2);
	close(proof);
	agent_end(&a);
	world_end(&w);
	keeps_room(&config);
	return 0;
}
