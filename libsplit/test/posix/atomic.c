/* SPDX-License-Identifier: Apache-2.0 */
/*
 * splitfs_write_atomic(3) in strict: ranges of several files, anywhere, are all there; what is around them is as it was; a later
 * range wins. What is wrong has an errno, and nothing is written. In the other modes it is ENOTSUP.
 */
#include <sys/mman.h>
#include <sys/resource.h>

#include "patch.h"

enum { SIZE = 30 * BLOCK + 11 };

static unsigned char want[2][4 * SIZE];
static int fds[2];

static void expect_want(int f, off_t size)
{
	static unsigned char got[4 * SIZE];

	CHECK(size_of(fds[f]) == size);
	CHECK(pread(fds[f], got, sizeof(got), 0) == size);
	for (off_t i = 0; i < size; i++)
		if (got[i] != want[f][i]) {
			fprintf(stderr, "file %d byte %lld: %02x instead of %02x\n", f, (long long)i, got[i], want[f][i]);
			exit(1);
		}
}

static void random_ranges(void)
{
	static unsigned char bytes[64][5 * BLOCK];
	off_t size[2] = {SIZE, SIZE};
	unsigned rnd = 7;

	for (int round = 0; round < 300; round++) {
		struct splitfs_range r[64];
		const int n = 1 + round % 11;

		for (int i = 0; i < n; i++) {
			const int f = round % 3 ? (int)((rnd = rnd * 1103515245 + 12345) >> 20) % 2 : 0;
			const size_t len = ((rnd = rnd * 1103515245 + 12345) >> 8) % (i % 2 ? 5 * BLOCK : 100);
			const off_t off = (off_t)(((rnd = rnd * 1103515245 + 12345) >> 8) % (unsigned)(size[f] + BLOCK));

			if (off + len > sizeof(want[f]))
				continue;
			fill(bytes[i], len, (unsigned)(round * 64 + i), (uint64_t)off);
			r[i] = (struct splitfs_range){fds[f], off, bytes[i], len};
		}
		CHECK(splitfs_write_atomic(r, n) == 0);
		for (int i = 0; i < n; i++) {
			const int f = r[i].fd == fds[1];

			memcpy(want[f] + r[i].off, r[i].buf, r[i].len);
			if (r[i].len > 0 && r[i].off + (off_t)r[i].len > size[f])
				size[f] = r[i].off + (off_t)r[i].len;
		}
		if (round % 10 == 0) {
			expect_want(0, size[0]);
			expect_want(1, size[1]);
		}
		/* Writes of other kinds beside it. */
		if (round % 7 == 0) {
			memset(want[0] + size[0], 'a', 50);
			CHECK(pwrite(fds[0], want[0] + size[0], 50, size[0]) == 50);
			size[0] += 50;
		}
		if (round % 50 == 49)
			CHECK(fsync(fds[round / 50 % 2]) == 0);
	}
	expect_want(0, size[0]);
	expect_want(1, size[1]);
}

static void errors(void)
{
	const int in = open("file0", O_RDONLY), append = open("file0", O_WRONLY | O_APPEND),
		  shm = open("/dev/shm", O_RDWR | O_TMPFILE, 0600), mapped = open("mapped", O_RDWR | O_CREAT, 0600);
	struct splitfs_range r[65] = {{fds[0], 0, "x", 1}, {fds[1], 0, "y", 1}};
	struct rlimit old, rl;
	void *m;

	for (int i = 2; i < 65; i++)
		r[i] = r[0];
	FAILS(splitfs_write_atomic(r, 0), EINVAL);
	FAILS(splitfs_write_atomic(r, -1), EINVAL);
	FAILS(splitfs_write_atomic(r, 65), EINVAL);
	FAILS(splitfs_write_atomic(NULL, 1), EINVAL);
	r[1].fd = -1;
	FAILS(splitfs_write_atomic(r, 2), EBADF);
	r[1].fd = in;
	FAILS(splitfs_write_atomic(r, 2), EBADF);
	r[1].fd = append;
	FAILS(splitfs_write_atomic(r, 2), EINVAL);
	r[1].fd = shm;
	FAILS(splitfs_write_atomic(r, 2), ENOTSUP);
	r[1] = (struct splitfs_range){fds[1], -1, "y", 1};
	FAILS(splitfs_write_atomic(r, 2), EINVAL);
	r[1] = (struct splitfs_range){fds[1], 0, "y", (size_t)SSIZE_MAX + 1};
	FAILS(splitfs_write_atomic(r, 2), EINVAL);
	r[1] = (struct splitfs_range){fds[1], 0, (void *)8, 1};
	FAILS(splitfs_write_atomic(r, 2), EFAULT);
	CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
	rl = (struct rlimit){SIZE * 4, old.rlim_max};
	CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &rl) == 0);
	r[1] = (struct splitfs_range){fds[1], SIZE * 4, "y", 1};
	FAILS(splitfs_write_atomic(r, 2), EFBIG);
	CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
	/* Its stores are not seen: nothing is atomic beside them. */
	put(mapped, 1, 0, BLOCK);
	m = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 0);
	CHECK(m != MAP_FAILED);
	r[1] = (struct splitfs_range){mapped, 0, "y", 1};
	FAILS(splitfs_write_atomic(r, 2), ENOTSUP);
	CHECK(munmap(m, BLOCK) == 0);
	expect_want(0, SIZE);
	expect_want(1, SIZE);
	r[1] = (struct splitfs_range){fds[1], 5, NULL, 0};
	r[0] = r[1];
	CHECK(splitfs_write_atomic(r, 2) == 0);
	expect_want(1, SIZE);
}

int main(void)
{
	const char *config = getenv("SPLITFS_CONFIG");
	const struct splitfs_range one = {1, 0, "x", 1};

	for (int f = 0; f < 2; f++) {
		fds[f] = open(f ? "file1" : "file0", O_RDWR | O_CREAT, 0600);
		put(fds[f], (unsigned)f, 0, SIZE);
		fill(want[f], SIZE, (unsigned)f, 0);
	}
	if (!config || strncmp(config, "strict:", 7) != 0) {
		const struct splitfs_range r = {fds[0], 0, "x", 1};

		FAILS(splitfs_write_atomic(&r, 1), ENOTSUP);
		FAILS(splitfs_write_atomic(&one, 0), EINVAL);
		return 0;
	}
	errors();
	/* A file that root writes to stays a set-user-ID one. */
	CHECK(fchmod(fds[0], 04755) == 0);
	random_ranges();
	return 0;
}
