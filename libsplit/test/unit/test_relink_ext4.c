/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the ext4-relink provider uses the call: ranges that are more than one transaction, errors half way, files that can't be
 * relinked, kernels without the call. Here (PM_RECORD) the system call is answered by a stand-in that keeps to
 * kernel-patch/uapi/ext4_relink.h on top of tmpfs; the call itself is tested where it is, in the virtual machine.
 */
#include "relink_case.h"

#include <linux/falloc.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include "base/sys.h"
#include "ext4_relink.h"

#define ROUNDS 150

static struct {
	uint64_t fits;	  /* bytes of a transaction */
	bool halve;	  /* too much is E2BIG, PARTIAL or not */
	int fail_at, err; /* this call from now on fails */
	int calls;
	bool absent;
} fake;

static long relink_call(int target, struct ext4_relink *x)
{
	static unsigned char block[BLOCK], zeros[BLOCK];
	struct stat t, d;
	uint64_t size, n;

	if (fake.absent)
		return -ENOTTY;
	if (x->flags == EXT4_RELINK_QUERY) {
		x->version = EXT4_RELINK_VERSION;
		x->known_flags = EXT4_RELINK_FLAGS;
		return 0;
	}
	if (++fake.calls == fake.fail_at)
		return fake.err;
	CHECK_EQ(fstat(target, &t), 0);
	CHECK_EQ(fstat(x->donor_fd, &d), 0);
	CHECK_EQ(x->version, EXT4_RELINK_VERSION);
	CHECK(x->flags & EXT4_RELINK_SKIP_HOLES && x->reserved[0] == 0 && x->reserved[1] == 0);
	size = x->new_size > (uint64_t)t.st_size ? x->new_size : (uint64_t)t.st_size;
	if ((x->donor_offset | x->target_offset) % BLOCK || !x->length || x->donor_offset + x->length > (uint64_t)d.st_size ||
	    x->target_offset + x->length > size || (x->length % BLOCK && x->target_offset + x->length != size))
		return -EINVAL;
	n = x->length;
	if (n > fake.fits) {
		if (fake.halve)
			return -E2BIG;
		CHECK(x->flags & EXT4_RELINK_PARTIAL);
		n = fake.fits;
		size = x->target_offset + n > (uint64_t)t.st_size ? x->target_offset + n : (uint64_t)t.st_size;
	}
	x->extents_moved = 0;
	for (uint64_t at = 0; at < n; at += BLOCK) {
		const uint64_t len = n - at < BLOCK ? n - at : BLOCK;

		if (lseek(x->donor_fd, (off_t)(x->donor_offset + at), SEEK_DATA) != (off_t)(x->donor_offset + at))
			continue;
		CHECK_EQ(pread(x->donor_fd, block, BLOCK, (off_t)(x->donor_offset + at)), (ssize_t)BLOCK);
		memcpy(block + len, zeros, BLOCK - len);
		CHECK_EQ(pwrite(target, block, len, (off_t)(x->target_offset + at)), (ssize_t)len);
		CHECK_EQ(fallocate(x->donor_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(x->donor_offset + at),
				   BLOCK),
			 0);
		x->extents_moved++;
	}
	CHECK_EQ(fstat(target, &t), 0);
	if ((uint64_t)t.st_size < size)
		CHECK_EQ(ftruncate(target, (off_t)size), 0);
	x->moved = n;
	return 0;
}

static long hook(long n, long a, long b, long c, long d, long e, long f)
{
	long r;

	if (n == SYS_ioctl && (unsigned)b == (unsigned)EXT4_IOC_RELINK)
		return relink_call((int)a, (struct ext4_relink *)c);
	r = sys_trap6(n, a, b, c, d, e, f);
	if (n == SYS_fstatfs && r == 0)
		((struct statfs *)b)->f_type = EXT4_SUPER_MAGIC;
	return r;
}

static void probes(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY);

	CHECK(fd >= 0);
	fake.absent = true;
	CHECK_EQ(relink_probe(fd), RELINK_COPY);
	fake.absent = false;
	CHECK_EQ(relink_probe(fd), RELINK_EXT4);
	fake.fail_at = fake.calls + 1;
	fake.err = -EOPNOTSUPP;
	CHECK_EQ(relink_probe(fd), RELINK_COPY); /* it says that it knows the call, and cannot do it here */
	fake.fail_at = fake.calls + 1;
	fake.err = -EIO;
	CHECK_EQ(relink_probe(fd), -EIO);
	fake.fail_at = 0;
	close(fd);
}

int main(int argc, char **argv)
{
	static const int errors[] = {-ENOSPC, -EIO, -EXDEV, -EOPNOTSUPP, -EPERM, -ETXTBSY, -EINVAL, -E2BIG};
	const char *dir = argc > 1 ? argv[1] : "/dev/shm";
	static struct relink_case c;
	uint64_t rnd = test_seed(11), moved;
	unsigned split = 0, failed = 0, fell_back = 0;

	fake.fits = UINT64_MAX;
	sys_hook = hook;
	probes(dir);
	for (int i = 0; i < ROUNDS; i++) {
		int donor = test_file(dir, "donor"), target = test_file(dir, "target"), flags;
		const int err = errors[test_below(&rnd, sizeof(errors) / sizeof(errors[0]))];

		case_make(&c, &rnd, donor, target, 0);
		fake.fits = test_below(&rnd, 2) ? UINT64_MAX : BLOCK * (1 + test_below(&rnd, 8));
		fake.halve = test_below(&rnd, 2);
		fake.calls = 0;
		fake.err = err;
		fake.fail_at = test_below(&rnd, 2) ? 1 + (int)test_below(&rnd, 6) : 0;
		flags = relink(RELINK_EXT4, &c.r, &moved);
		split += fake.calls > 2;
		if (flags < 0) {
			/* Only what another provider could not do better is reported, with how far it got. */
			CHECK(flags == err && (err == -ENOSPC || err == -EIO) && fake.calls == fake.fail_at);
			CHECK(moved < c.r.len);
			failed++;
			fake.fail_at = 0;
			flags = relink(RELINK_EXT4, &c.r, &moved);
		} else if (fake.fail_at && fake.calls >= fake.fail_at) {
			fell_back++;
		}
		CHECK(flags >= 0);
		CHECK_EQ(moved, c.r.len);
		case_check_target(&c);
		/* And once more: what was moved is not there any more, and stays in the target. */
		fake.fail_at = 0;
		CHECK(relink(RELINK_EXT4, &c.r, &moved) >= 0);
		CHECK_EQ(moved, c.r.len);
		case_check_target(&c);
		close(donor);
		close(target);
	}
	printf("%d ranges: %u in several transactions, %u failed and were finished later, %u went another way half way\n",
	       ROUNDS, split, failed, fell_back);
	CHECK(split > 20 && failed > 5 && fell_back > 10);
	return 0;
}
