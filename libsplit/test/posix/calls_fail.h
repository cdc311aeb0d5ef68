/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a file may hold when calls on it have failed: after a call that returned success exactly what it said, after one that failed each of its
 * bytes as before or as the call would have made it. Lies in memory that processes share, so that one checks what another did.
 */
#ifndef SFS_TEST_POSIX_CALLS_FAIL_H
#define SFS_TEST_POSIX_CALLS_FAIL_H

#include "check.h"

#include <stdbool.h>
#include <sys/mman.h>

#define LONGEST (5l << 20)
#define SEEDS	64
#define SHIFT	4099 /* between what two seeds put at the same offset */
#define MAYBES	32

/* Each byte of [from, to) may be that of seed as well; 0: zero. */
struct maybe {
	off_t from, to;
	unsigned seed;
};

struct model {
	char noise[LONGEST + (SEEDS + 1) * SHIFT];
	char want[LONGEST], found[LONGEST];
	off_t least, most; /* its size */
	struct maybe maybe[MAYBES];
	unsigned maybes, seed;
	bool failed; /* a call that the program has not made itself, perhaps */
};

static struct model *model;

static inline void model_new(void)
{
	model = mmap(NULL, sizeof(*model), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(model != MAP_FAILED);
	fill(model->noise, sizeof(model->noise), 1, 0);
}

static inline void model_reset(void)
{
	memset(model->want, 0, LONGEST);
	model->least = model->most = 0;
	model->maybes = model->seed = 0;
	model->failed = false;
}

/* What the next write to off has. */
static inline const char *model_bytes(off_t off)
{
	CHECK(model->seed < SEEDS);
	return model->noise + off + ++model->seed * SHIFT;
}

static inline void model_maybe(off_t from, off_t to, unsigned seed)
{
	if (from >= to)
		return;
	CHECK(model->maybes < MAYBES);
	model->maybe[model->maybes++] = (struct maybe){from, to, seed};
}

/* What [from, to) has is known. */
static inline void model_sure(off_t from, off_t to)
{
	const unsigned n = model->maybes;

	for (unsigned i = 0; i < n; i++) {
		struct maybe *m = &model->maybe[i];
		const off_t end = m->to;

		if (m->from >= to || end <= from)
			continue;
		m->to = m->from < from ? from : m->from;
		model_maybe(to, end, m->seed);
	}
}

/* The latest bytes were to be written to [off, off + n), and r came of it. */
static inline void model_wrote(off_t off, off_t n, ssize_t r)
{
	const off_t end = off + (r < 0 ? n : r);

	if (r < 0) {
		model_maybe(off, end, model->seed);
	} else {
		model_sure(off, end);
		memcpy(model->want + off, model->noise + off + model->seed * SHIFT, (size_t)r);
		model->least = end > model->least ? end : model->least;
	}
	model->most = end > model->most ? end : model->most;
}

static inline void model_cut(off_t n, int r)
{
	if (r < 0) {
		model_maybe(n, model->most, 0);
		model->least = n < model->least ? n : model->least;
		model->most = n > model->most ? n : model->most;
	} else {
		model_sure(n, LONGEST);
		memset(model->want + n, 0, (size_t)(LONGEST - n));
		model->least = model->most = n;
	}
}

static inline bool model_allows(off_t at, char c)
{
	if (model->want[at] == c)
		return true;
	for (unsigned i = 0; i < model->maybes; i++) {
		const struct maybe *m = &model->maybe[i];

		if (at >= m->from && at < m->to && (m->seed ? model->noise[at + m->seed * SHIFT] : 0) == c)
			return true;
	}
	return false;
}

/* A file of this size with these bytes. */
static inline bool model_fits(const char *who, off_t size, const char *bytes)
{
	if (size < model->least || size > model->most) {
		fprintf(stderr, "%s: %lld bytes instead of %lld to %lld\n", who, (long long)size, (long long)model->least,
			(long long)model->most);
		return false;
	}
	if (memcmp(bytes, model->want, (size_t)size) == 0)
		return true;
	for (off_t i = 0; i < size; i++)
		if (!model_allows(i, bytes[i])) {
			off_t n = i;

			while (n < size && !model_allows(n, bytes[n]))
				n++;
			fprintf(stderr, "%s: [%lld, +%lld) of %lld: %02x instead of %02x\n", who, (long long)i,
				(long long)(n - i), (long long)size, (unsigned char)bytes[i], (unsigned char)model->want[i]);
			return false;
		}
	return true;
}

#endif
