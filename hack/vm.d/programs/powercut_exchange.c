/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker of the power cuts without the library: two files exchange blocks, and move some (EXT4_IOC_RELINK). Operation i follows from
 * the seed and from those before it. What a crash leaves is, in both files together, what was there after one of the operations: not an
 * older one than the last that was to be in the journal when it returned, nor a newer one than that in flight.
 */
#include "powercut.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../../../kernel-patch/uapi/ext4_relink.h"

#define BLOCK  4096
#define BLOCKS 96 /* of each file */
#define HOLE   0  /* the number of no block */

static const char *const names[2] = {"e0", "e1"};

/* Which block is where: numbers from 1 on. */
struct pair {
	uint64_t random, ops;
	uint32_t block[2][BLOCKS];
};

struct exchange {
	int target; /* file; the other one is the donor */
	unsigned int to, from, blocks;
	bool move, sync;
};

static uint64_t draw(struct pair *p, uint64_t limit)
{
	p->random = p->random * 6364136223846793005ull + 1442695040888963407ull;
	return (p->random >> 33) % limit;
}

static void pair_init(struct pair *p, uint64_t seed)
{
	*p = (struct pair){.random = seed};
	for (int f = 0; f < 2; f++)
		for (uint32_t i = 0; i < BLOCKS; i++)
			p->block[f][i] = 1 + (uint32_t)f * BLOCKS + i;
}

/* The next operation, and what it makes of the pair. */
static struct exchange pair_next(struct pair *p)
{
	struct exchange x = {.target = (int)draw(p, 2), .blocks = 1 + (unsigned int)draw(p, 24)};

	x.to = (unsigned int)draw(p, BLOCKS - x.blocks + 1);
	x.from = (unsigned int)draw(p, BLOCKS - x.blocks + 1);
	x.move = draw(p, 40) == 0;
	x.sync = draw(p, 8) == 0;
	for (unsigned int i = 0; i < x.blocks; i++) {
		uint32_t *to = &p->block[x.target][x.to + i], *from = &p->block[!x.target][x.from + i];
		uint32_t old = *to;

		*to = *from;
		*from = x.move ? HOLE : old;
	}
	p->ops++;
	return x;
}

static void fill(uint64_t *block, uint64_t seed, uint32_t number)
{
	for (size_t i = 0; i < BLOCK / sizeof(*block); i++)
		block[i] = number == HOLE ? 0 : (seed << 20 | number) * 0x9e3779b97f4a7c15ull + i;
}

static bool failed(const char *what, uint64_t op)
{
	fprintf(stderr, "powercut: %s at operation %" PRIu64 ": %s\n", what, op, strerror(errno));
	return false;
}

static bool make_files(const struct pair *p, uint64_t seed, int fd[2])
{
	static uint64_t block[BLOCK / sizeof(uint64_t)];
	int dir = open(".", O_RDONLY | O_DIRECTORY);

	for (int f = 0; f < 2; f++) {
		fd[f] = open(names[f], O_RDWR | O_CREAT | O_EXCL, 0644);
		if (fd[f] < 0)
			return failed(names[f], 0);
		for (uint32_t i = 0; i < BLOCKS; i++) {
			fill(block, seed, p->block[f][i]);
			if (pwrite(fd[f], block, BLOCK, (off_t)i * BLOCK) != BLOCK)
				return failed("pwrite", 0);
		}
		if (fsync(fd[f]) < 0)
			return failed("fsync", 0);
	}
	return fsync(dir) == 0 && close(dir) == 0;
}

static bool relink(const int fd[2], const struct exchange *x)
{
	struct ext4_relink r = {
		.version = EXT4_RELINK_VERSION,
		.flags = EXT4_RELINK_KEEP_SIZE | (x->move ? 0 : EXT4_RELINK_EXCHANGE) | (x->sync ? EXT4_RELINK_SYNC : 0),
		.donor_fd = fd[!x->target],
		.donor_offset = (uint64_t)x->from * BLOCK,
		.target_offset = (uint64_t)x->to * BLOCK,
		.length = (uint64_t)x->blocks * BLOCK,
	};

	return ioctl(fd[x->target], EXT4_IOC_RELINK, &r) == 0;
}

bool exchange_load(volatile uint64_t *acked, uint64_t seed, uint64_t limit, bool pretend)
{
	struct exchange x;
	struct pair p;
	int fd[2];

	*acked = 0;
	pair_init(&p, seed);
	if (!pretend && !make_files(&p, seed, fd))
		return false;
	while (p.ops < limit) {
		x = pair_next(&p);
		if (!pretend && !relink(fd, &x))
			return failed("relink", p.ops);
		*acked = p.ops;
	}
	return !pretend || make_files(&p, seed, fd);
}

static bool holds(const struct pair *p, uint64_t seed, uint64_t *content[2])
{
	static uint64_t block[BLOCK / sizeof(uint64_t)];

	for (int f = 0; f < 2; f++)
		for (uint32_t i = 0; i < BLOCKS; i++) {
			fill(block, seed, p->block[f][i]);
			if (memcmp(block, (char *)content[f] + (size_t)i * BLOCK, BLOCK) != 0)
				return false;
		}
	return true;
}

bool exchange_check(uint64_t seed, uint64_t acked)
{
	uint64_t *content[2], durable = 0, found = UINT64_MAX;
	struct pair p;

	for (int f = 0; f < 2; f++) {
		int fd = open(names[f], O_RDONLY);

		content[f] = calloc(BLOCKS + 1, BLOCK);
		if (fd < 0 || !content[f] || read(fd, content[f], (BLOCKS + 1) * BLOCK) != BLOCKS * BLOCK)
			return failed(names[f], acked);
		close(fd);
	}
	pair_init(&p, seed);
	while (p.ops < acked)
		if (pair_next(&p).sync)
			durable = p.ops;
	pair_init(&p, seed);
	while (found == UINT64_MAX && p.ops <= acked + 1) {
		if (p.ops >= durable && holds(&p, seed, content))
			found = p.ops;
		pair_next(&p);
	}
	if (found == UINT64_MAX) {
		fprintf(stderr, "powercut: the pair is as after none of the operations %" PRIu64 " to %" PRIu64 "\n", durable, acked + 1);
		return false;
	}
	printf("the pair is as after operation %" PRIu64 " (%" PRIu64 " were acknowledged, %" PRIu64 " durable)\n", found, acked, durable);
	free(content[0]);
	free(content[1]);
	return true;
}
