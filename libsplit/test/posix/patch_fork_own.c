/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child of a fork makes pools and buffers of its own. None of them has the number or the address of one that is its parent's: what the
 * program still has of those frees nothing and patches nothing, and a look at them stays a fault. So a binding that frees in the child
 * what is no longer looked at does no harm.
 */
#include "patch.h"

enum { N = 6 * BLOCK + 100, BUFFERS = 8, MORE = 64 };

static int faults(const volatile char *p)
{
	struct sigaction act = {.sa_handler = peek_on_fault}, old;
	int sig;

	CHECK(sigaction(SIGSEGV, &act, &old) == 0);
	sig = sigsetjmp(peek_back, 1);
	if (sig == 0)
		(void)*p;
	CHECK(sigaction(SIGSEGV, &old, NULL) == 0);
	return sig == SIGSEGV;
}

static void child(const int *pools, char **buffers)
{
	const int fd = open("of-child", O_RDWR | O_CREAT, 0600);
	char *own[MORE];
	int pool;

	pool = pool_here(64 << 20);
	CHECK(pool != pools[0] && pool != pools[1]);
	for (int i = 0; i < MORE; i++)
		own[i] = filled(pool, (unsigned)i, 0, N);
	for (int i = 0; i < BUFFERS; i++) {
		CHECK(faults(buffers[i]) && faults(buffers[i] + N - 1));
		for (int k = 0; k < MORE; k++)
			CHECK(own[k] + N <= buffers[i] || buffers[i] + N <= own[k]);
		FAILS(splitfs_free(buffers[i]), EINVAL);
		FAILS(splitfs_patch(fd, buffers[i], N, 0), EINVAL);
	}
	for (int i = 0; i < 2; i++) {
		CHECK(splitfs_alloc(pools[i], 0, N) == NULL && errno == EINVAL);
		FAILS(splitfs_pool_destroy(pools[i]), EINVAL);
	}
	for (int i = 0; i < MORE; i++) {
		expect_snapshot(own[i], (unsigned)i, 0, N);
		CHECK(splitfs_patch(fd, own[i], N, (off_t)i * 8 * BLOCK) == N);
		CHECK(splitfs_free(own[i]) == 0);
	}
	CHECK(splitfs_pool_destroy(pool) == 0);
}

int main(void)
{
	int fd, pools[2];
	char *buffers[BUFFERS];

	splitfs_flags(served() ? 0 : SPLITFS_COPY);
	fd = open("file", O_RDWR | O_CREAT, 0600);
	pools[0] = pool_here(32 << 20);
	pools[1] = pool_here(32 << 20);
	for (int i = 0; i < BUFFERS; i++)
		buffers[i] = filled(pools[i % 2], 77, 0, N);
	CHECK(splitfs_patch(fd, buffers[0], N, 0) == N);
	for (int generation = 0; generation < 2; generation++) {
		const pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid > 0) {
			CHECK(status_of(pid) == 0);
			continue;
		}
		child(pools, buffers);
		/* And of a grandchild. */
		if (generation == 0) {
			const pid_t grandchild = fork();

			if (grandchild == 0) {
				child(pools, buffers);
				_exit(0);
			}
			CHECK(grandchild > 0 && status_of(grandchild) == 0);
		}
		_exit(0);
	}
	for (int i = 0; i < BUFFERS; i++) {
		expect_snapshot(buffers[i], 77, 0, N);
		CHECK(splitfs_free(buffers[i]) == 0);
	}
	CHECK(splitfs_pool_destroy(pools[0]) == 0 && splitfs_pool_destroy(pools[1]) == 0);
	return 0;
}
