/* SPDX-License-Identifier: Apache-2.0 */
/* After SIGKILL the file holds each patch that returned, whole, and at most one more; the space of the buffers comes back. */
#include "kill.h"
#include "patch.h"

enum { N = 3 * BLOCK, PATCHED = 200 };

static void writer(int report, int kept)
{
	const int fd = open("f", O_RDWR | O_CREAT, 0644);
	const int pool = pool_here(32 << 20);

	for (uint32_t i = 0;; i++) {
		const off_t off = (off_t)i * N;
		void *p = splitfs_alloc(pool, off, N);

		/* The pool is used up in the end; then it gets on without new ones. */
		CHECK(p || (kept && errno == ENOSPC));
		if (p) {
			fill(p, N, 7, (uint64_t)off);
			CHECK(splitfs_patch(fd, p, N, off) == N);
		} else {
			put(fd, 7, off, N);
		}
		if (p && !kept)
			CHECK(splitfs_free(p) == 0);
		CHECK(write(report, &i, 4) == 4);
	}
}

static int64_t found(int kept)
{
	static unsigned char buf[N], want[N];
	const int fd = open("f", O_RDONLY);
	int64_t i;

	(void)kept;
	CHECK(fd >= 0);
	for (i = 0;; i++) {
		const ssize_t got = pread(fd, buf, N, i * N);

		fill(want, N, 7, (uint64_t)i * N);
		if (got == 0 || (got < N && !served()))
			break;
		CHECK(got == N && memcmp(buf, want, N) == 0);
	}
	CHECK(close(fd) == 0);
	return i;
}

int main(void)
{
	splitfs_flags(served() ? 0 : SPLITFS_COPY);
	for (int round = 0; round < 4; round++)
		kill_writer(writer, found, round % 2, PATCHED);
	return 0;
}
