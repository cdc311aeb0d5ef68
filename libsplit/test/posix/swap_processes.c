/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes swap ranges of the same two files, one naming the files in one order and one in the other, and in strict a third one writes both
 * together. None of them keeps the others from it for long, and each byte is in one of the files in the end.
 */
#include <time.h>

#include "patch.h"

enum { RANGES = 16, N = 2 * BLOCK + 100, ROUNDS = 150, SECONDS = 60 };

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int strict(void)
{
	const char *config = getenv("SPLITFS_CONFIG");

	return config && strncmp(config, "strict", 6) == 0;
}

static void swaps(unsigned seed, const char *first, const char *second)
{
	const int a = open(first, O_RDWR), b = open(second, O_RDWR);
	long longest = 0;

	CHECK(a >= 0 && b >= 0);
	for (int i = 0; i < ROUNDS; i++) {
		const long begun = now_ms();

		CHECK(splitfs_swap(a, (off_t)(rand_r(&seed) % RANGES) * N, b, (off_t)(rand_r(&seed) % RANGES) * N, N) == 0);
		longest = now_ms() - begun > longest ? now_ms() - begun : longest;
	}
	fprintf(stderr, "%s, %s: the longest took %ld ms\n", first, second, longest);
	_exit(0);
}

/* Two marks behind the ranges, which are always the same. */
static void writes(void)
{
	const int a = open("a", O_RDWR), b = open("b", O_RDWR);

	CHECK(a >= 0 && b >= 0);
	for (unsigned i = 1; i <= ROUNDS; i++) {
		const struct splitfs_range both[] = {{b, RANGES * N, &i, sizeof(i)}, {a, RANGES * N, &i, sizeof(i)}};

		CHECK(splitfs_write_atomic(both, 2) == 0);
	}
	_exit(0);
}

/* Every range that was in one of the files at first. */
static void whole(void)
{
	const int fds[2] = {open("a", O_RDONLY), open("b", O_RDONLY)};
	static unsigned char was[N], is[N];
	char seen[2 * RANGES] = {0};

	for (int i = 0; i < 2 * RANGES; i++) {
		int k = 0;

		CHECK(pread(fds[i % 2], is, N, (off_t)(i / 2) * N) == N);
		for (; k < 2 * RANGES; k++) {
			fill(was, N, (unsigned)k, 0);
			if (memcmp(was, is, N) == 0)
				break;
		}
		CHECK(k < 2 * RANGES && !seen[k]);
		seen[k] = 1;
	}
}

int main(void)
{
	static unsigned char range[N];
	pid_t pids[3];
	int n = 0;

	if (!served())
		SKIP("there is no swap without the library");
	for (int k = 0; k < 2; k++) {
		const int fd = open(k ? "b" : "a", O_RDWR | O_CREAT | O_TRUNC, 0600);

		for (int i = 0; i < RANGES; i++) {
			fill(range, N, (unsigned)(2 * i + k), 0);
			CHECK(pwrite(fd, range, N, (off_t)i * N) == N);
		}
		CHECK(close(fd) == 0);
	}
	alarm(SECONDS);
	for (; n < 2 + strict(); n++) {
		pids[n] = fork();
		CHECK(pids[n] >= 0);
		if (pids[n] == 0 && n < 2)
			swaps((unsigned)n, n ? "b" : "a", n ? "a" : "b");
		if (pids[n] == 0)
			writes();
	}
	while (n-- > 0)
		CHECK(status_of(pids[n]) == 0);
	whole();
	return 0;
}
