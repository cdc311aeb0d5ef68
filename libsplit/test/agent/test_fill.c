/* SPDX-License-Identifier: Apache-2.0 */
/* The budget of filling the pool: its arithmetic, one agent of a node at a time, and nobody who waits is kept waiting by it. */
#include <sys/file.h>

#include "agent/internal.h"
#include "played.h"

#define S	   1000000000ull
#define POOL_FILES 16
#define LOW	   (POOL_FILES / 4)

static void arithmetic(const char *lock)
{
	struct sfs_why why = {0};
	struct fill f, g;

	CHECK_EQ(fill_start(&f, "/nowhere/lock", 25, &why), -ENOENT);
	CHECK(strstr(why.text, "/nowhere/lock"));
	CHECK_EQ(fill_start(&f, lock, 25, &why), 0);
	CHECK_EQ(fill_start(&g, lock, 0, &why), 0);
	CHECK_EQ(g.percent, SFS_DEFAULT_FILL_PERCENT);
	CHECK_EQ(fill_wait(&f, S), 0);
	/* Three times as long as it took. */
	fill_spent(&f, S, 10000000);
	CHECK_EQ(fill_wait(&f, S), S + 30000000);
	CHECK_EQ(fill_wait(&f, S + 29999999), S + 30000000);
	/* The turn is kept while resting: the budget is that of the node. */
	CHECK(fill_wait(&g, S) > S);
	CHECK_EQ(fill_wait(&f, S + 30000000), 0);
	fill_rest(&f);
	CHECK_EQ(fill_wait(&g, S), 0);
	CHECK(fill_wait(&f, 2 * S) > 2 * S);
	/* A process that dies has no turn any more. */
	fill_stop(&g);
	CHECK_EQ(fill_wait(&f, 2 * S), 0);
	/* Never longer than ten seconds. */
	f.percent = 1;
	fill_spent(&f, 2 * S, 3600 * S);
	CHECK_EQ(fill_wait(&f, 2 * S), 12 * S);
	fill_rest(&f);
	f.percent = 100;
	fill_spent(&f, 12 * S, 3600 * S);
	CHECK_EQ(fill_wait(&f, 12 * S), 0);
	fill_stop(&f);
}

/* Two agents whose pools are never full, because they are used as fast: each gets its turn. */
static void takes_turns(const char *lock)
{
	struct sfs_why why = {0};
	uint64_t filled[2] = {0}, next[2] = {0};
	struct fill f[2];

	CHECK_EQ(fill_start(&f[0], lock, 25, &why), 0);
	CHECK_EQ(fill_start(&f[1], lock, 25, &why), 0);
	/* A staging file takes 10 ms, and some are made at once beside those of the budget, because somebody waits for them. */
	for (uint64_t now = S, ms = 0; now < 61 * S; now += 1000000, ms++) {
		for (int i = 0; i < 2; i++) {
			if (ms % 100 == 0)
				fill_spent(&f[i], now, 1000000);
			if (now < next[i] || (next[i] = fill_wait(&f[i], now)))
				continue;
			filled[i]++;
			fill_spent(&f[i], now + 10000000, 10000000);
		}
	}
	CHECK(filled[0] > (filled[0] + filled[1]) / 3);
	CHECK(filled[1] > (filled[0] + filled[1]) / 3);
	/* Together they take what one would. */
	CHECK(filled[0] + filled[1] <= 60000 / 40);
	CHECK(filled[0] + filled[1] > 60000 / 40 * 8 / 10);
	fill_stop(&f[0]);
	fill_stop(&f[1]);
}

static void settle_at(struct world *w, int files)
{
	for (int i = 0; i < PATIENCE / 10 && pool_files(w, WORLD_CHUNK) < files; i++)
		usleep(10000);
	usleep(300000); /* it is to stay so */
	CHECK_EQ(pool_files(w, WORLD_CHUNK), files);
}

int main(void)
{
	char lock[] = "/tmp/sfs-fill.XXXXXX";
	const struct sfs_agent_config config = {.fill_lock = lock,
						.pool_bytes = POOL_FILES * WORLD_CHUNK,
						.chunk_bytes = WORLD_CHUNK,
						.log_bytes = 64 << 10,
						.fill_percent = 100};
	struct played_agent a = {0};
	struct world w;
	struct played c = {0};
	uint32_t id;
	int turn, proof;

	world_new(&w);
	turn = mkstemp(lock);
	CHECK(turn >= 0);
	arithmetic(lock);
	takes_turns(lock);
	/* While another agent fills its pool, ours has a quarter ready, and whoever wants more gets it. */
	CHECK_EQ(flock(turn, LOCK_EX), 0);
	agent_start_with(&a, &w, &config);
	settle_at(&w, LOW);
	proof = played_proof(&w);
	CHECK_EQ(played_hello(&c, &a, SFS_STRICT, 0, proof), 0);
	for (int i = 0; i < LOW + 2; i++) {
		const int fd = played_chunk(&c, &id);

		CHECK(fd >= 0);
		close(fd);
	}
	settle_at(&w, 2 * LOW + 2);
	/* Our turn. */
	CHECK_EQ(flock(turn, LOCK_UN), 0);
	settle_at(&w, POOL_FILES);
	/* And then the turn of the next one. */
	CHECK_EQ(flock(turn, LOCK_EX | LOCK_NB), 0);
	played_close(&c);
	close(proof);
	close(turn);
	unlink(lock);
	agent_end(&a);
	world_end(&w);
	return 0;
}
