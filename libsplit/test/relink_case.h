/* SPDX-License-Identifier: Apache-2.0 */
/* What the relink tests share: a donor and a target with known content, and a random range to relink between them. */
#ifndef TEST_RELINK_H
#define TEST_RELINK_H

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "harness.h"
#include "relink/relink.h"

#define BLOCK	   4096ul
#define DONOR_SIZE (256 * BLOCK)
#define TARGET_MAX (320 * BLOCK)

struct relink_case {
	struct relink_range r;
	unsigned char *donor_map;					       /* of the whole donor, shared */
	unsigned char donor[DONOR_SIZE], before[TARGET_MAX], want[TARGET_MAX]; /* contents */
	uint64_t want_size;
};

static inline int test_file(const char *dir, const char *name)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/relink-%d-%s", dir, (int)getpid(), name);
	fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		FAIL("%s: %s", path, strerror(errno));
	CHECK_EQ(unlink(path), 0);
	return fd;
}

static inline void test_pwrite(int fd, const void *buf, size_t n, uint64_t off)
{
	CHECK_EQ(pwrite(fd, buf, n, (off_t)off), (ssize_t)n);
}

/*
 * The donor is fully written, by write or through its mapping; the target has runs of data, holes and unwritten blocks, and any
 * size. A case is large: make it static.
 */
static inline void case_make(struct relink_case *c, uint64_t *rnd, int donor, int target, int through_map)
{
	uint64_t size = test_below(rnd, 4) ? test_below(rnd, TARGET_MAX) : 0, off, n;

	memset(&c->r, 0, sizeof(c->r));
	c->r.donor = donor;
	c->r.target = target;
	CHECK_EQ(ftruncate(donor, DONOR_SIZE), 0);
	if (c->donor_map)
		munmap(c->donor_map, DONOR_SIZE);
	c->donor_map = mmap(NULL, DONOR_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, donor, 0);
	CHECK(c->donor_map != MAP_FAILED);
	test_fill(rnd, c->donor, DONOR_SIZE);
	for (size_t i = 0; i < DONOR_SIZE; i++)
		c->donor[i] |= 1; /* never zero: a byte that was lost shows */
	if (through_map)
		memcpy(c->donor_map, c->donor, DONOR_SIZE);
	else
		test_pwrite(donor, c->donor, DONOR_SIZE, 0);

	memset(c->before, 0, TARGET_MAX);
	CHECK_EQ(ftruncate(target, (off_t)size), 0);
	for (int i = (int)test_below(rnd, 6); i > 0 && size; i--) {
		off = test_below(rnd, size);
		n = 1 + test_below(rnd, test_below(rnd, 2) ? size - off : (size - off) / 8 + 1);
		n = n > size - off ? size - off : n;
		if (test_below(rnd, 5) == 0) {
			if (fallocate(target, 0, (off_t)off, (off_t)n))
				CHECK(errno == EOPNOTSUPP);
			continue;
		}
		test_fill(rnd, c->before + off, n);
		test_pwrite(target, c->before + off, n, off);
	}
	if (test_below(rnd, 2))
		CHECK_EQ(fsync(target), 0);
	if (test_below(rnd, 2))
		CHECK_EQ(fsync(donor), 0);

	off = test_below(rnd, TARGET_MAX - DONOR_SIZE / 2);
	n = 1 + test_below(rnd, DONOR_SIZE / 2 - BLOCK);
	if (test_below(rnd, 2)) { /* mostly whole blocks, as the library makes them */
		off &= ~(BLOCK - 1);
		n = (n + BLOCK - 1) & ~(BLOCK - 1);
	} else if (test_below(rnd, 4) == 0) {
		n = 1 + test_below(rnd, 2 * BLOCK);
	}
	c->r.target_off = off;
	c->r.len = n;
	c->r.donor_off = BLOCK * test_below(rnd, (DONOR_SIZE - n) / BLOCK) + off % BLOCK;
	if (c->r.donor_off + n > DONOR_SIZE)
		c->r.donor_off -= BLOCK;
	c->r.size = test_below(rnd, 3) ? off + n : off + n + test_below(rnd, TARGET_MAX - off - n + 1);
	c->r.staged = test_below(rnd, 2) ? c->donor_map + c->r.donor_off : NULL;

	memcpy(c->want, c->before, TARGET_MAX);
	memcpy(c->want + off, c->donor + c->r.donor_off, n);
	c->want_size = size > c->r.size ? size : c->r.size;
}

static inline void case_check_target(const struct relink_case *c)
{
	static unsigned char got[TARGET_MAX];
	struct stat st;

	CHECK_EQ(fstat(c->r.target, &st), 0);
	CHECK_EQ(st.st_size, c->want_size);
	memset(got, 0, sizeof(got));
	CHECK_EQ(pread(c->r.target, got, TARGET_MAX, 0), (ssize_t)c->want_size);
	CHECK_MEM(got, c->want, TARGET_MAX);
}

#endif
