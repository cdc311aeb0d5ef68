/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relink() against a model, with every provider that the file system offers.
 *
 *   test_relink [DIR [PROVIDER [OTHER]]]
 *
 * DIR: on the file system to test (default /dev/shm); PROVIDER: what the probe has to find there; OTHER: the same directory
 * through another mount. With PROVIDER also what happens when the file system is full: DIR should be on a small one.
 */
#include "relink_case.h"

#include <dirent.h>
#include <sys/statvfs.h>

#define ROUNDS 60

static int entries(const char *dir)
{
	DIR *d = opendir(dir);
	int n = 0;

	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static int probe(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY), found, before = entries(dir);

	CHECK(fd >= 0);
	found = relink_probe(fd);
	if (found < 0)
		FAIL("probe of %s: %s", dir, strerror(-found));
	CHECK_EQ(entries(dir), before);
	close(fd);
	return found;
}

/* Donor blocks that left are zeros now, all others are as they were; says how many left. */
static uint64_t check_donor(const struct relink_case *c, enum relink_provider provider)
{
	static unsigned char got[DONOR_SIZE];
	uint64_t first = (c->r.donor_off + BLOCK - 1) / BLOCK, end = (c->r.donor_off + c->r.len) / BLOCK, left = 0;

	/* The block in which the target ends goes with the others there. */
	if (provider == RELINK_EXT4 && c->r.target_off + c->r.len == c->want_size)
		end = (c->r.donor_off + c->r.len + BLOCK - 1) / BLOCK;
	CHECK_EQ(pread(c->r.donor, got, DONOR_SIZE, 0), (ssize_t)DONOR_SIZE);
	for (uint64_t b = 0; b < DONOR_SIZE / BLOCK; b++) {
		static const unsigned char zeros[BLOCK];

		if (b >= first && b < end && !memcmp(got + b * BLOCK, zeros, BLOCK)) {
			CHECK_MEM(c->donor_map + b * BLOCK, zeros, BLOCK);
			CHECK(lseek(c->r.donor, (off_t)(b * BLOCK), SEEK_DATA) != (off_t)(b * BLOCK));
			left++;
			continue;
		}
		CHECK_MEM(got + b * BLOCK, c->donor + b * BLOCK, BLOCK);
		CHECK_MEM(c->donor_map + b * BLOCK, c->donor + b * BLOCK, BLOCK);
	}
	return left;
}

/* persistent: short ranges are moved, too. */
static void model(enum relink_provider provider, bool persistent, int must_move, const char *donor_dir, const char *target_dir)
{
	static struct relink_case c;
	uint64_t rnd = test_seed(5), moved, left, blocks_left = 0;
	int donor, target, flags, emptied = 0;

	for (int i = 0; i < ROUNDS; i++) {
		donor = test_file(donor_dir, "donor");
		target = test_file(target_dir, "target");
		case_make(&c, &rnd, donor, target, i & 1);
		c.r.persistent = persistent;
		flags = relink(provider, &c.r, &moved);
		if (flags < 0)
			FAIL("round %d, %s: %s", i, relink_provider_name(provider), strerror(-flags));
		CHECK_EQ(moved, c.r.len);
		case_check_target(&c);
		left = check_donor(&c, provider);
		if (flags & RELINK_DONOR_KEEPS)
			CHECK_EQ(left, 0);
		else
			CHECK(left > 0);
		if (flags & RELINK_DONOR_EMPTIED) {
			const off_t data = lseek(donor, (off_t)c.r.donor_off, SEEK_DATA);

			CHECK(data < 0 || (uint64_t)data >= c.r.donor_off + c.r.len);
			emptied++;
		}
		if (provider == RELINK_COPY)
			CHECK(flags & RELINK_DONOR_KEEPS);
		blocks_left += left;

		/* Who still has the donor mapped cannot reach what is the target's now. */
		memset(c.donor_map + c.r.donor_off, 0xee, c.r.len);
		case_check_target(&c);
		CHECK_EQ(fsync(donor), 0);
		CHECK_EQ(fsync(target), 0);
		case_check_target(&c);
		close(donor);
		close(target);
	}
	/* The provider did its work, and not the one it falls back to. */
	if (must_move)
		CHECK(blocks_left > 0);
	if (must_move && provider == RELINK_EXT4)
		CHECK(emptied > 0);
	printf("%s: %d ranges, %llu blocks moved, %d donors known to be empty\n", relink_provider_name(provider), ROUNDS,
	       (unsigned long long)blocks_left, emptied);
}

static void refuses(const char *dir)
{
	int donor = test_file(dir, "donor"), target = test_file(dir, "target");
	struct relink_range r = {.donor = donor, .target = target, .len = BLOCK, .size = BLOCK};
	struct stat st;

	CHECK_EQ(ftruncate(donor, BLOCK), 0);
	CHECK_EQ(relink(RELINK_NONE, &r, NULL), -EINVAL);
	r.donor_off = 1;
	CHECK_EQ(relink(RELINK_COPY, &r, NULL), -EINVAL);
	r.donor_off = r.target_off = UINT64_MAX - 100;
	CHECK_EQ(relink(RELINK_COPY, &r, NULL), -EFBIG);
	r.donor_off = r.target_off = 0;
	CHECK_EQ(fcntl(target, F_SETFL, O_APPEND), 0);
	CHECK_EQ(relink(RELINK_COPY, &r, NULL), -EINVAL);
	CHECK_EQ(fstat(target, &st), 0);
	CHECK_EQ(st.st_size, 0);
	close(donor);
	CHECK_EQ(fcntl(target, F_SETFL, 0), 0);
	CHECK_EQ(relink(RELINK_COPY, &r, NULL), -EBADF);
	close(target);
}

static void fill_up(int ballast)
{
	for (off_t at = 0, step = 64 << 20; step >= (off_t)BLOCK;) {
		if (fallocate(ballast, 0, at, step) == 0) {
			at += step;
		} else {
			CHECK_EQ(errno, ENOSPC);
			step /= 4;
		}
	}
}

/*
 * Full: an error, nothing lost, and the work is finished when there is room again. What reflink can move needs no room, however
 * short it is.
 */
static void full(enum relink_provider provider, bool moves, uint64_t len, const char *dir)
{
	int donor = test_file(dir, "donor"), target = test_file(dir, "target"), ballast = test_file(dir, "ballast"), flags;
	static unsigned char got[DONOR_SIZE];
	static struct relink_case c;
	uint64_t rnd = test_seed(6), moved = 0;
	struct statvfs fs;

	case_make(&c, &rnd, donor, target, 0);
	CHECK_EQ(ftruncate(target, 0), 0);
	c.r.target_off = c.r.donor_off = 0;
	c.r.len = c.r.size = c.want_size = len;
	c.r.staged = NULL;
	memcpy(c.want, c.donor, len);
	memset(c.want + len, 0, TARGET_MAX - len); /* what the target had before it was truncated */
	CHECK_EQ(fsync(donor), 0);
	CHECK_EQ(statvfs(dir, &fs), 0);
	CHECK(fs.f_bavail * fs.f_frsize < (1ull << 30));
	fill_up(ballast);
	flags = relink(provider, &c.r, &moved);
	if (flags < 0) {
		CHECK(moved < c.r.len);
		CHECK_EQ(pread(target, got, moved, 0), (ssize_t)moved);
		CHECK_MEM(got, c.want, moved);
	}
	if (provider == RELINK_COPY && flags >= 0)
		flags = fsync(target) ? -errno : flags; /* delayed allocation */
	if (moves)
		CHECK(flags >= 0 && !(flags & RELINK_DONOR_KEEPS));
	if (flags < 0) {
		CHECK_EQ(flags, -ENOSPC);
		printf("%s on a full file system: %s after %llu bytes\n", relink_provider_name(provider), strerror(-flags),
		       (unsigned long long)moved);
	} else {
		printf("%s on a full file system: no new blocks needed\n", relink_provider_name(provider));
	}
	CHECK_EQ(ftruncate(ballast, 0), 0);
	CHECK_EQ(fsync(ballast), 0);
	flags = relink(provider, &c.r, &moved);
	if (flags < 0)
		FAIL("after making room: %s", strerror(-flags));
	CHECK_EQ(moved, c.r.len);
	CHECK_EQ(fsync(target), 0);
	case_check_target(&c);
	close(donor);
	close(target);
	close(ballast);
}

static int fails(void *arg)
{
	(void)arg;
	return -EIO;
}

/* Blocks to be moved, and behind them some to be copied, which fails: what is said to be left to do is all in the donor. */
static void half(enum relink_provider provider, const char *dir)
{
	enum { HOLE = 12, DATA = 20 };
	int donor = test_file(dir, "donor"), target = test_file(dir, "target"), ret;
	static unsigned char got[DONOR_SIZE];
	static struct relink_case c;
	uint64_t rnd = test_seed(7), moved = 0;

	case_make(&c, &rnd, donor, target, 0);
	CHECK_EQ(ftruncate(target, 0), 0);
	c.r.target_off = c.r.donor_off = 0;
	c.r.len = c.r.size = (HOLE + DATA) * BLOCK;
	c.r.staged = NULL;
	c.r.persistent = c.r.whole = true;
	test_pwrite(target, c.before, DATA * BLOCK, HOLE * BLOCK);
	CHECK_EQ(fsync(target), 0);
	c.r.settle = fails;
	ret = relink(provider, &c.r, &moved);
	CHECK(ret >= 0 ? moved == c.r.len : ret == -EIO && moved < c.r.len);
	CHECK_EQ(pread(target, got, moved, 0), (ssize_t)moved);
	CHECK_MEM(got, c.donor, moved);
	CHECK_EQ(pread(donor, got, c.r.len - moved, (off_t)moved), (ssize_t)(c.r.len - moved));
	CHECK_MEM(got, c.donor + moved, c.r.len - moved);
	printf("%s: %s after %llu of %llu bytes\n", relink_provider_name(provider), ret < 0 ? "an error" : "no error",
	       (unsigned long long)moved, (unsigned long long)c.r.len);
	close(donor);
	close(target);
}

int main(int argc, char **argv)
{
	const char *dir = argc > 1 ? argv[1] : "/dev/shm";
	int found = probe(dir);

	printf("%s: %s\n", dir, relink_provider_name(found));
	if (argc > 2 && strcmp(argv[2], relink_provider_name(found)))
		FAIL("the probe found %s, expected %s", relink_provider_name(found), argv[2]);
	refuses(dir);
	/* Also providers that do not work here: they have to fall back. */
	for (int p = RELINK_NONE + 1; p < RELINK_PROVIDERS; p++) {
		model(p, false, false, dir, dir);
		model(p, true, p == found && found != RELINK_COPY, dir, dir);
		half(p, dir);
		for (uint64_t len = argc > 2 ? DONOR_SIZE : 0; len >= BLOCK; len /= 4)
			full(p, p == found && found == RELINK_REFLINK, len, dir);
	}
	if (argc > 3) {
		printf("donor and target through different mounts:\n");
		for (int p = RELINK_NONE + 1; p < RELINK_PROVIDERS; p++)
			model(p, true, (found == RELINK_REFLINK && p <= found) || (found == RELINK_EXT4 && p == found), dir,
			      argv[3]);
	}
	return 0;
}
