/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads take and give back snapshots, of many ranges, while another one forks. What was pinned before the fork is there in each child, and
 * can be given back; the child takes snapshots of its own, and neither waits for ever.
 */
#include <pthread.h>

#include "peek.h"

enum { BLOCKS = 512, THREADS = 3, FORKS = 60, KEPT = 32, SECONDS = 20 };

static int fd;
static volatile int ended;

static void take_some(unsigned n, unsigned *seed)
{
	const void *p[KEPT] = {0};

	for (unsigned i = 0; i < n; i++) {
		const unsigned at = rand_r(seed) % KEPT;
		size_t got;

		if (p[at])
			CHECK(splitfs_unpeek(p[at]) == 0);
		p[at] = splitfs_peek(fd, rand_r(seed) % (BLOCKS * BLOCK) & ~1u, 100, &got);
		CHECK(p[at] || errno == ENOTSUP);
	}
	for (unsigned i = 0; i < KEPT; i++)
		CHECK(!p[i] || splitfs_unpeek(p[i]) == 0);
}

static void *peek(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	while (!ended)
		take_some(1000, &seed);
	return NULL;
}

static void child(const void *const *kept, unsigned seed)
{
	const void *own[KEPT];
	char name[32];

	alarm(SECONDS);
	for (int i = 0; i < KEPT; i++)
		expect_snapshot(kept[i], 1, i * 7 * BLOCK + 5, 3000);
	/* A file that nobody else has: the parent keeps its own. */
	snprintf(name, sizeof(name), "of-%u", seed);
	fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(fd >= 0 && unlink(name) == 0);
	put(fd, 2, 0, 8 * BLOCK);
	for (int i = 0; i < KEPT; i++)
		own[i] = snapshot(fd, 2, i * 100, 200);
	for (int i = 0; i < KEPT; i++) {
		CHECK(splitfs_unpeek(kept[i]) == 0);
		CHECK(splitfs_unpeek(own[i]) == 0);
		FAILS(splitfs_unpeek(kept[i]), EINVAL);
	}
	_exit(0);
}

int main(void)
{
	const void *kept[KEPT];
	pthread_t threads[THREADS];

	splitfs_flags(served() ? 0 : SPLITFS_COPY);
	fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(fd >= 0);
	put(fd, 1, 0, BLOCKS * BLOCK);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, peek, (void *)(i + 1)) == 0);
	for (unsigned n = 0; n < FORKS; n++) {
		pid_t pid;
		int status;

		for (int i = 0; i < KEPT; i++)
			kept[i] = snapshot(fd, 1, i * 7 * BLOCK + 5, 3000);
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0)
			child(kept, n);
		status = status_of(pid);
		if (status)
			fprintf(stderr, "child %u: %d\n", n, status);
		CHECK(status == 0);
		for (int i = 0; i < KEPT; i++)
			CHECK(splitfs_unpeek(kept[i]) == 0);
	}
	ended = 1;
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	return 0;
}
