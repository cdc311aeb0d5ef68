/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every test program shares: checks that say what was expected and what was found, a repeatable random generator, and
 * skipping. A test is a main() that returns 0; a failed check ends the program with 1, SKIP() with 77.
 */
#ifndef TEST_HARNESS_H
#define TEST_HARNESS_H

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FAIL(...)                                                                                                              \
	do {                                                                                                                   \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                                                \
		fprintf(stderr, __VA_ARGS__);                                                                                  \
		fputc('\n', stderr);                                                                                           \
		exit(1);                                                                                                       \
	} while (0)

#define CHECK(cond)                                                                                                            \
	do {                                                                                                                   \
		if (!(cond))                                                                                                   \
			FAIL("not true: %s (errno: %s)", #cond, strerror(errno));                                              \
	} while (0)

#define CHECK_EQ(found, expected)                                                                                              \
	do {                                                                                                                   \
		long long found_ = (long long)(found), expected_ = (long long)(expected);                                      \
		if (found_ != expected_)                                                                                       \
			FAIL("%s is %lld (0x%llx), expected %lld (0x%llx)", #found, found_, (unsigned long long)found_,        \
			     expected_, (unsigned long long)expected_);                                                        \
	} while (0)

#define CHECK_MEM(found, expected, n)                                                                                          \
	do {                                                                                                                   \
		const unsigned char *f_ = (const void *)(found), *e_ = (const void *)(expected);                               \
		for (size_t i_ = 0, n_ = (n); i_ < n_; i_++)                                                                   \
			if (f_[i_] != e_[i_])                                                                                  \
				FAIL("%s differs from %s at byte %zu of %zu: found 0x%02x, expected 0x%02x", #found,           \
				     #expected, i_, n_, f_[i_], e_[i_]);                                                       \
	} while (0)

#define SKIP(...)                                                                                                              \
	do {                                                                                                                   \
		printf(__VA_ARGS__);                                                                                           \
		fputc('\n', stdout);                                                                                           \
		exit(77);                                                                                                      \
	} while (0)

/* xorshift64*: the same numbers for the same seed on every machine. TEST_SEED in the environment overrides the seed. */
static inline uint64_t test_seed(uint64_t fallback)
{
	const char *s = getenv("TEST_SEED");
	uint64_t seed = s ? strtoull(s, NULL, 0) : fallback;

	return seed ? seed : 1;
}

static inline uint64_t test_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1dull;
}

/* 0 <= result < n */
static inline uint64_t test_below(uint64_t *state, uint64_t n)
{
	return (test_random(state) >> 11) % n;
}

static inline void test_fill(uint64_t *state, void *buf, size_t n)
{
	unsigned char *p = buf;

	for (size_t i = 0; i < n; i += 8) {
		uint64_t r = test_random(state);

		memcpy(p + i, &r, n - i < 8 ? n - i : 8);
	}
}

#endif
