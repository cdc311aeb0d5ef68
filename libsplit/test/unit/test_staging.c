/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of staging files, with nothing of the library around them: no block is two files' or given twice, whatever is taken, not used and given
 * back; and on DAX who writes on and on gets blocks that are congruent to those of his file modulo 2 MiB, for few that are left out.
 */
#include <errno.h>
#include <sys/mman.h>

#include "harness.h"
#include "staging/staging.h"

enum { CHUNK = 4096, HUGE = 512, CHUNKS = 12, FILES = 3, ROUNDS = 200000 };

static struct sfs_pool pool;
static struct sfs_staging file[FILES];
static uint8_t owner[SFS_CHUNKS_MAX][CHUNK]; /* of a block: 1 + which file's */
static uint32_t given_back;

static void give_back(struct sfs_pool *p, uint32_t id)
{
	(void)p, (void)id;
	given_back++;
}

static void lease(uint32_t blocks)
{
	const int fd = memfd_create("staging", MFD_CLOEXEC);
	static uint32_t id;

	CHECK(fd >= 0);
	CHECK_EQ(ftruncate(fd, (off_t)blocks * SFS_BLOCK), 0);
	CHECK_EQ(sfs_pool_add(&pool, ++id, (uint64_t)blocks * SFS_BLOCK, fd), 0);
}

static void pool_new(bool dax)
{
	pool = (struct sfs_pool){.dax = dax, .tmpfs = !dax, .copies_fd = -1, .give_back = give_back};
	memset(file, 0, sizeof(file));
	memset(owner, 0, sizeof(owner));
}

static void own(sfs_block b, uint32_t n, uint8_t from, uint8_t to)
{
	for (uint32_t i = 0; i < n; i++) {
		uint8_t *o = &owner[(b >> 32) - 1][(uint32_t)b + i];

		CHECK_EQ(*o, from);
		*o = to;
	}
}

static sfs_block take(int f, uint64_t at, uint32_t *n)
{
	const uint32_t want = *n;
	sfs_block b;
	int err = 0;

	while (!(b = sfs_staging_alloc(&pool, &file[f], at, n, &err))) {
		CHECK_EQ(err, -ENOBUFS);
		lease(CHUNK);
		*n = want;
	}
	CHECK(*n > 0 && *n <= want);
	own(b, *n, 0, (uint8_t)(f + 1));
	return b;
}

static bool congruent(sfs_block b, uint64_t at)
{
	return (at - (uint32_t)b) % HUGE == 0;
}

static uint32_t used(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < pool.nchunks; i++)
		n += pool.chunks[i].used;
	return n;
}

/* One that begins where something was before, in staging files small and large; is it the last staging files' whole time congruent? */
static void runs_on(bool dax)
{
	uint64_t at = 0;

	pool_new(dax);
	lease(16);
	while (at < 4 * CHUNK) {
		const bool first = pool.nchunks < 2;
		uint32_t n = at < 100 ? 1 : 32;
		const sfs_block b = take(0, at, &n);

		if (!first && dax)
			CHECK(congruent(b, at));
		at += n;
	}
	CHECK(used() - at <= (dax ? HUGE : HUGE / 2)); /* what it has of its region */
	sfs_pool_drop(&pool, true);
}

/* Two take turns: both are, soon; and no more is left out than an eighth. */
static void in_turns(void)
{
	uint64_t at[2] = {0, 1000}, wrong = 0, all = 0;

	pool_new(true);
	for (int i = 0; i < 400; i++) {
		for (int f = 0; f < 2; f++) {
			uint32_t n = f ? 48 : 64;
			const sfs_block b = take(f, at[f], &n);

			at[f] += n;
			all += n;
			wrong += congruent(b, at[f] - n) ? 0 : n;
		}
	}
	CHECK(used() - all <= all / 8 + 2 * HUGE);
	CHECK(wrong <= 2 * 8 * HUGE);
	sfs_pool_drop(&pool, true);
}

/* A single block here and there, after each of which the file is retired, leaves nothing out. */
static void here_and_there(void)
{
	uint64_t state = test_seed(3);

	pool_new(true);
	lease(CHUNK);
	pool.chunks[0].holes = true;
	for (int i = 0; i < 1000; i++) {
		uint32_t n = 1;

		take(i % 2, SFS_ANYWHERE, &n);
		if (test_below(&state, 2))
			sfs_staging_release(&pool, &file[i % 2], NULL, 0);
	}
	CHECK(used() <= 2000);
	sfs_pool_drop(&pool, true);
}

/* Anything, in any order. */
static void anything(uint64_t seed)
{
	uint64_t state = seed, at[FILES] = {0};
	struct {
		sfs_block b;
		uint32_t n, number;
	} last[FILES] = {0};

	pool_new(true);
	for (int i = 0; i < ROUNDS; i++) {
		const int f = (int)test_below(&state, FILES);
		struct sfs_staging *st = &file[f];
		uint32_t n = 1 + (uint32_t)test_below(&state, test_below(&state, 8) ? 6 : 700);

		switch (test_below(&state, 8)) {
		default:
			last[f].number = st->number;
			last[f].b = take(f, test_below(&state, 3) ? at[f] : SFS_ANYWHERE, &n);
			last[f].n = n;
			at[f] += n;
			break;
		case 1:
		case 2: /* also of what is retired by now */
			n = st->region_next;
			sfs_staging_untake(st, last[f].number, last[f].b, last[f].n);
			if (st->region_next != n) {
				own(last[f].b, last[f].n, (uint8_t)(f + 1), 0);
				at[f] -= last[f].n;
			}
			last[f].n = 0;
			break;
		case 3:
			/* Some of it was relinked, or all was thrown away. */
			for (uint32_t c = 0; c < pool.nchunks; c++) {
				if (st->pinned[c / 64] >> c % 64 & 1 && test_below(&state, 2))
					pool.chunks[c].holes = true;
				for (uint32_t b = 0; b < CHUNK; b++)
					if (owner[c][b] == f + 1)
						owner[c][b] = 0;
			}
			sfs_staging_release(&pool, st, NULL, 0);
			break;
		}
	}
	for (int f = 0; f < FILES; f++)
		sfs_staging_release(&pool, &file[f], NULL, 0);
	CHECK_EQ(pool.region_blocks, 0);
	for (uint32_t c = 0; c < pool.nchunks; c++)
		CHECK_EQ(pool.chunks[c].pins, 0);
	CHECK(given_back > 0);
	sfs_pool_drop(&pool, true);
}

int main(void)
{
	runs_on(true);
	runs_on(false);
	in_turns();
	here_and_there();
	for (unsigned i = 0; i < CHUNKS; i++)
		anything(test_seed(i));
	return 0;
}
