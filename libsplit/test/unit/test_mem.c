/* SPDX-License-Identifier: Apache-2.0 */
/* Our memcpy, memmove, memset and memcmp against the C library's, at every small size, many alignments and overlaps. */
#define memcpy	own_memcpy
#define memmove own_memmove
#define memset	own_memset
#define memcmp	own_memcmp
#define strlen	own_strlen
#include "base/mem.c"
#undef memcpy
#undef memmove
#undef memset
#undef memcmp
#undef strlen

#include "harness.h"

#define SIZE 20000
static unsigned char want[SIZE], got[SIZE], src[SIZE];

static int sign(int x)
{
	return (x > 0) - (x < 0);
}

static void one(uint64_t *rnd, size_t n)
{
	size_t from = test_below(rnd, 130), to = test_below(rnd, 130);

	memcpy(want, src, SIZE);
	memcpy(got, src, SIZE);
	memcpy(want + to, src + 7000 + from, n);
	CHECK(own_memcpy(got + to, src + 7000 + from, n) == got + to);
	CHECK_MEM(got, want, SIZE);

	/* Overlapping by all sorts of distances, both directions. */
	from = test_below(rnd, SIZE - n);
	to = from + test_below(rnd, 2 * n + 2) - n;
	if (to > SIZE - n)
		to = test_below(rnd, SIZE - n);
	memmove(want + to, want + from, n);
	CHECK(own_memmove(got + to, got + from, n) == got + to);
	CHECK_MEM(got, want, SIZE);

	memset(want + to, (int)from, n);
	CHECK(own_memset(got + to, (int)from, n) == got + to);
	CHECK_MEM(got, want, SIZE);

	memcpy(got, src, SIZE);
	CHECK_EQ(own_memcmp(got + to, src + to, n), 0);
	if (n) {
		got[to + test_below(rnd, n)] ^= (unsigned char)(1 + test_below(rnd, 255));
		CHECK_EQ(sign(own_memcmp(got + to, src + to, n)), sign(memcmp(got + to, src + to, n)));
		CHECK(own_memcmp(got + to, src + to, n) != 0);
	}
}

int main(void)
{
	uint64_t rnd = test_seed(1);

	CHECK_EQ(own_strlen(""), 0);
	CHECK_EQ(own_strlen("four\0five"), 4);
	test_fill(&rnd, src, SIZE);
	for (int pass = 0; pass < 2; pass++) {
		for (size_t n = 0; n < 1100; n++)
			one(&rnd, n);
		for (int i = 0; i < 500; i++)
			one(&rnd, test_below(&rnd, 9000));
		/* Second pass: as on a CPU without fast string moves. */
		sfs_cpu_cache = SFS_CPU_KNOWN;
	}
	return 0;
}
