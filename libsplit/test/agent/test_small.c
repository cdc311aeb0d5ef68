/* SPDX-License-Identifier: Apache-2.0 */
/* Small staging files: for the first few bytes of a program, beside its share of the pool, and never the reason why it gets none. */
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
static void settle_at(struct world *w, int full, int small)
{
	int nfull = 0, nsmall = 0;

	for (int i = 0; i < PATIENCE / 10 && (nfull != full || nsmall < small); i++, usleep(10000)) {
		nfull = pool_files(w, FULL);
		nsmall = pool_files(w, SFS_SMALL_CHUNK);
	}
	CHECK_EQ(nfull, full);
	CHECK(nsmall >= small && nsmall <= SFS_SPARE_LOGS_MAX);
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
	proof = open(w.dir, O_RDONLY | O_DIRECTORY);
	/* The space of one full-size file is for small ones. */
	settle_at(&w, 3, 2);
	CHECK_EQ(played_hello(&c, &a, SFS_STRICT, 0, proof), 0);
	CHECK_EQ(lease(&c, 4096, &small), SFS_SMALL_CHUNK);
	/* Not a second one, and it does not count against the share. */
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
	for (int got = 0, tries = 0; got < 10;) {
		settle_at(&w, 4, 2); /* two that are leased, and two that are ready at the least */
		CHECK_EQ(played_hello(&d, &a, SFS_POSIX, 0, proof), 0);
		/* One that was made a moment ago may not be known yet: then it is a full one. */
		bytes = lease(&d, 1 * MIB, &id);
		CHECK(bytes == SFS_SMALL_CHUNK || ++tries < 100);
		got += bytes == SFS_SMALL_CHUNK;
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
	return 0;
}
