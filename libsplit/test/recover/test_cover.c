/* SPDX-License-Identifier: Apache-2.0 */
/* The set of ranges against a plain map of bytes, with random ranges. */
#include "harness.h"
#include "recover/cover.h"

#define SPACE 4096u

static unsigned char map[SPACE];
static uint64_t next; /* gaps ascend and do not touch */

static int gap(void *ctx, uint64_t from, uint64_t to)
{
	unsigned char *seen = ctx;

	CHECK(from < to && to <= SPACE && from >= next);
	for (uint64_t i = from; i < to; i++) {
		CHECK(!map[i]);
		seen[i] = 1;
	}
	next = to + 1;
	return 0;
}

static int stop(void *ctx, uint64_t from, uint64_t to)
{
	(void)ctx;
	(void)from;
	(void)to;
	return 42;
}

int main(void)
{
	uint64_t rng = test_seed(1);

	for (int round = 0; round < 200; round++) {
		struct sfs_cover c = {0};
		const uint64_t longest = round % 3 == 0 ? 4 : round % 3 == 1 ? 64 : 1024;

		memset(map, 0, sizeof(map));
		for (int i = 0; i < 400; i++) {
			unsigned char seen[SPACE] = {0};
			const uint64_t from = test_below(&rng, SPACE), n = test_below(&rng, longest) + 1;
			const uint64_t to = from + n < SPACE ? from + n : SPACE;

			next = 0;
			CHECK_EQ(sfs_cover_gaps(&c, from, to, gap, seen), 0);
			for (uint64_t k = from; k < to; k++)
				CHECK_EQ(seen[k], !map[k]);
			CHECK_EQ(sfs_cover_add(&c, from, to), 0);
			memset(map + from, 1, to - from);
		}
		CHECK_EQ(sfs_cover_gaps(&c, 0, UINT64_MAX, stop, NULL), 42);
		CHECK_EQ(sfs_cover_add(&c, 5, 5), 0);
		sfs_cover_free(&c);
		CHECK(!c.root);
	}
	{
		/* Many separate ranges, in the worst orders. */
		struct sfs_cover c = {0};

		for (uint64_t i = 0; i < 200000; i++)
			CHECK_EQ(sfs_cover_add(&c, i * 2, i * 2 + 1), 0);
		for (uint64_t i = 400000; i > 200000; i--)
			CHECK_EQ(sfs_cover_add(&c, i * 2, i * 2 + 1), 0);
		CHECK_EQ(sfs_cover_add(&c, 0, 1000000), 0);
		CHECK_EQ(sfs_cover_gaps(&c, 0, 1000000, stop, NULL), 0);
		sfs_cover_free(&c);
	}
	return 0;
}
