/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzz targets share: a volume on a tmpfs that lives as long as the process, and taking the input apart. */
#ifndef TEST_FUZZ_H
#define TEST_FUZZ_H

#include "../recover/world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *at;
	size_t left;
};

/* The next n bytes, zeros when there are not so many. */
static inline void take(struct input *in, void *to, size_t n)
{
	const size_t have = in->left < n ? in->left : n;

	memset(to, 0, n);
	if (have)
		memcpy(to, in->at, have);
	in->at += have;
	in->left -= have;
}

static inline uint8_t take_byte(struct input *in)
{
	uint8_t b;

	take(in, &b, 1);
	return b;
}

static struct world fuzz_world;

/* An agent in a thread of this process may be at work in it until its last client has been forgotten. */
static inline void fuzz_world_end(void)
{
	int tries = 100;

	while (nftw(fuzz_world.dir, world_rm_one, 16, FTW_DEPTH | FTW_PHYS) != 0) {
		CHECK(--tries > 0);
		usleep(50000);
	}
}

static inline struct world *fuzz_volume(void)
{
	if (!fuzz_world.dir[0]) {
		world_new(&fuzz_world);
		atexit(fuzz_world_end);
	}
	return &fuzz_world;
}

/* A bug for the fuzzer to keep. */
#define MUST(cond)                                                                                                             \
	do {                                                                                                                   \
		if (!(cond)) {                                                                                                 \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #cond);                                   \
			abort();                                                                                               \
		}                                                                                                              \
	} while (0)

#endif
