/* SPDX-License-Identifier: Apache-2.0 */
/* From a seed and an index to an operation. */
#include "model.h"

#define NAME_OF(name, weight) #name,
static const char *const names[] = {OPS(NAME_OF)};
#define WEIGHT_OF(name, weight) weight,
static const int weights[] = {OPS(WEIGHT_OF)};

static uint64_t next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

/* Mostly small, sometimes a page or a few, seldom large. */
static uint64_t length_of(uint64_t r)
{
	uint64_t how = r % 16, v = r >> 8;

	if (how < 8)
		return v % 300 + 1;
	if (how < 12)
		return v % 9000 + 1;
	if (how < 14)
		return (v % 4 + 1) * 4096;
	if (how < 15)
		return v % 70000 + 1;
	return v % 2 ? 0 : v % 600000 + 1;
}

static uint64_t offset_of(uint64_t r)
{
	uint64_t v = r >> 8;

	switch (r % 5) {
	case 0:
		return 0;
	case 1:
		return v % 40 * 4096;
	case 2:
		return v % 2000;
	default:
		return v % 150000;
	}
}

struct op op_make(uint64_t seed, int index)
{
	uint64_t state = seed * 0x2545f4914f6cdd1dull + (uint64_t)index * 0x9e3779b97f4a7c15ull;
	struct op op = {0};
	int total = 0, pick;

	for (int i = 0; i < OP_COUNT; i++)
		total += weights[i];
	pick = (int)(next(&state) % (uint64_t)total);
	while (pick >= weights[op.kind])
		pick -= weights[op.kind++];
	op.by_peer = next(&state) % 2;
	op.slot = (int)(next(&state) % SLOTS);
	op.other = (int)(next(&state) % SLOTS);
	op.name = (int)(next(&state) % NAMES);
	op.new_name = (int)(next(&state) % NAMES);
	op.off = offset_of(next(&state));
	op.len = length_of(next(&state));
	op.choice = next(&state);
	return op;
}

void op_print(FILE *to, const struct op *op, int index)
{
	fprintf(to, "%5d %-12s %s slot %d/%d file f%d/f%d off %llu len %llu choice %llx\n", index, names[op->kind],
		op->by_peer ? "peer" : "    ", op->slot, op->other, op->name, op->new_name, (unsigned long long)op->off,
		(unsigned long long)op->len, (unsigned long long)(op->choice & 0xffff));
}
