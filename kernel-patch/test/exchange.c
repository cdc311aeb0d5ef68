// SPDX-License-Identifier: GPL-2.0
/* EXT4_RELINK_EXCHANGE: the donor gets what the target had. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/quota.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "space.h"

#define B env.block

enum { OWNER = 1006, OTHER = 1007 };

static int exchange(struct file *target, struct file *donor, uint64_t donor_block, uint64_t target_block, uint64_t length,
		    unsigned int flags)
{
	struct ext4_relink r = relink_args(donor, donor_block * B, target_block * B, length);

	r.flags = EXT4_RELINK_EXCHANGE | flags;
	return relink_checked(target, donor, &r);
}

static void two_full(struct file *donor, struct file *target, uint64_t donor_blocks, uint64_t target_blocks)
{
	*donor = file_new("donor", 256 * B);
	*target = file_new("target", 256 * B);
	file_write(donor, 0, donor_blocks * B, 1);
	file_write(target, 0, target_blocks * B, 2);
}

/* Nothing is freed or allocated, and twice is never. */
static void exchange_and_back(void)
{
	struct file donor, target;
	struct stat before, after;
	unsigned int i;

	two_full(&donor, &target, 64, 64);
	fsync(donor.fd);
	fsync(target.fd);
	before = file_stat(&target);
	for (i = 0; i < 2; i++) {
		check(exchange(&target, &donor, 16, 8, 32 * B, 0) == 0, "exchange");
		check(file_blocks(&donor, 0, 64 * B, false) == 64 && file_blocks(&target, 0, 64 * B, false) == 64,
		      "every block has its file");
	}
	after = file_stat(&target);
	check(before.st_size == after.st_size && before.st_blocks == after.st_blocks, "the target's size and blocks");
	check(exchange(&target, &donor, 0, 0, 64 * B, EXT4_RELINK_SYNC) == 0, "all of both");
}

/* Holes and unwritten blocks go the same way as others. */
static void exchange_holes(void)
{
	struct file donor, target;

	two_full(&donor, &target, 64, 64);
	file_punch(&donor, 8 * B, 4 * B);
	file_punch(&target, 20 * B, 4 * B);
	file_punch(&target, 30 * B, 2 * B);
	file_allocate(&target, 30 * B, 2 * B);
	check(exchange(&target, &donor, 0, 0, 64 * B, 0) == 0, "exchange");
	check(file_blocks(&target, 8 * B, 4 * B, false) == 0, "the target's hole");
	check(file_blocks(&donor, 20 * B, 4 * B, false) == 0, "the donor's hole");
	check(file_blocks(&donor, 30 * B, 2 * B, true) == 2, "unwritten blocks");
}

static void exchange_holes_skipped(void)
{
	struct file donor, target;

	two_full(&donor, &target, 64, 64);
	file_punch(&donor, 8 * B, 40 * B);
	check(exchange(&target, &donor, 0, 0, 64 * B, EXT4_RELINK_SKIP_HOLES) == 0, "exchange");
	check(file_blocks(&donor, 0, 64 * B, false) == 24, "the donor got blocks where it had none");
	check(file_blocks(&target, 0, 64 * B, false) == 64, "the target's blocks");
}

/* Behind the target's end there is nothing to get, whatever was stored there. */
static void exchange_over_the_end(void)
{
	struct file donor, target;
	uint8_t *map;

	two_full(&donor, &target, 64, 16);
	file_write(&target, 16 * B, 100, 3);
	map = mmap(NULL, 17 * B, PROT_READ | PROT_WRITE, MAP_SHARED, target.fd, 0);
	check(map != MAP_FAILED, "mmap");
	memset(map + 16 * B + 100, 'x', B - 100);
	check(exchange(&target, &donor, 0, 8, 40 * B, 0) == 0, "exchange");
	check(file_blocks(&donor, 9 * B, 31 * B, false) == 0, "blocks from behind the end");
	munmap(map, 17 * B);
}

/* The whole last block moves, with a rest that was stored behind the end of either file. */
static void exchange_odd_lengths(void)
{
	struct file donor, target;
	uint8_t *map;

	two_full(&donor, &target, 64, 8);
	check(exchange(&target, &donor, 4, 4, 10 * B + 77, 0) == 0, "a target that grows");
	check(target.size == 14 * B + 77, "size");
	map = mmap(NULL, 15 * B, PROT_READ | PROT_WRITE, MAP_SHARED, target.fd, 0);
	check(map != MAP_FAILED, "mmap");
	memset(map + 14 * B + 77, 'x', B - 77);
	check(exchange(&target, &donor, 30, 12, 2 * B + 77, 0) == 0, "a target that keeps its size");
	check(exchange(&target, &donor, 50, 12, 2 * B + 77, EXT4_RELINK_KEEP_SIZE) == EINVAL, "a size that is not 0");
	munmap(map, 15 * B);
}

/* Both files' mappings show what the files hold, and stores go where they show. */
static void exchange_mappings(void)
{
	struct file donor, target;
	uint8_t *d, *t;

	two_full(&donor, &target, 64, 64);
	d = mmap(NULL, 64 * B, PROT_READ | PROT_WRITE, MAP_SHARED, donor.fd, 0);
	t = mmap(NULL, 64 * B, PROT_READ | PROT_WRITE, MAP_SHARED, target.fd, 0);
	check(d != MAP_FAILED && t != MAP_FAILED, "mmap");
	memset(d, 'd', 64 * B);
	memset(t, 't', 64 * B);
	memset(donor.bytes, 'd', 64 * B);
	memset(target.bytes, 't', 64 * B);
	check(exchange(&target, &donor, 8, 16, 32 * B, 0) == 0, "exchange");
	check(!memcmp(d, donor.bytes, 64 * B) && !memcmp(t, target.bytes, 64 * B), "a mapping shows something else");
	memset(d + 8 * B, 'D', 32 * B);
	memset(t + 16 * B, 'T', 32 * B);
	memset(donor.bytes + 8 * B, 'D', 32 * B);
	memset(target.bytes + 16 * B, 'T', 32 * B);
	file_verify(&donor, "after stores");
	file_verify(&target, "after stores");
	munmap(d, 64 * B);
	munmap(t, 64 * B);
}

static void exchange_deep_trees(void)
{
	struct file donor = file_new("donor", 2048 * B), target = file_new("target", 2048 * B);
	struct ext4_relink r;
	unsigned int i, k;

	for (i = 0; i < 1024; i++) {
		file_allocate(&donor, 2 * i * B, B);
		file_allocate(&target, (2 * i + 1) * B, B);
		if (i % 8 == 0) {
			file_write(&donor, 2 * i * B, B, i);
			file_write(&target, (2 * i + 1) * B, B, i);
		}
	}
	file_truncate(&donor, 2048 * B);
	for (k = 0; k < 4; k++) {
		r = relink_args(&donor, 101 * B, 202 * B, 1700 * B);
		r.flags = EXT4_RELINK_EXCHANGE;
		check(relink_checked(&target, &donor, &r) == 0, "exchange");
		check(r.moved == 1700 * B && r.extents_moved > 800 && r.extents_freed > 800, "%u and %u extents",
		      r.extents_moved, r.extents_freed);
	}
	check(file_blocks(&donor, 0, 2048 * B, false) + file_blocks(&target, 0, 2048 * B, false) == 2048, "blocks");
}

/* The same number of blocks changes owner in both directions: charged is the difference, of either side. */
static void exchange_and_quota(void)
{
	uint64_t donor_used, target_used;
	struct file donor, target;
	struct ext4_relink r;

	need_quota();
	donor = owned("donor", OTHER, 64);
	target = owned("target", OWNER, 32);
	donor_used = quota_used(USRQUOTA, OTHER);
	target_used = quota_used(USRQUOTA, OWNER);
	quota_limit(USRQUOTA, OWNER, target_used);
	quota_limit(USRQUOTA, OTHER, donor_used);
	r = relink_args(&donor, 0, 0, 32 * B);
	r.flags = EXT4_RELINK_EXCHANGE;
	check(relink_as(OWNER, &target, &donor, &r) == 0, "32 for 32, both at their limits");
	r = relink_args(&donor, 0, 16 * B, 32 * B);
	r.flags = EXT4_RELINK_EXCHANGE;
	check(relink_as(OWNER, &target, &donor, &r) == EDQUOT, "32 for 16, at the limit");
	file_punch(&donor, 0, 16 * B);
	r = relink_args(&donor, 0, 0, 32 * B);
	r.flags = EXT4_RELINK_EXCHANGE;
	check(relink_as(OWNER, &target, &donor, &r) == 0, "16 for 32");
	check(quota_used(USRQUOTA, OTHER) == donor_used && quota_used(USRQUOTA, OWNER) == target_used - 16 * B, "charges");
	quota_limit(USRQUOTA, OTHER, donor_used);
	quota_limit(USRQUOTA, OWNER, 0);
	r = relink_args(&donor, 16 * B, 0, 8 * B);
	r.flags = EXT4_RELINK_EXCHANGE;
	file_punch(&donor, 16 * B, 8 * B);
	file_write(&target, 0, 8 * B, 9);
	quota_limit(USRQUOTA, OTHER, donor_used - 8 * B + 7 * B);
	check(relink_as(OWNER, &target, &donor, &r) == EDQUOT, "none for 8, where the donor's owner has room for 7");
	quota_limit(USRQUOTA, OTHER, donor_used);
	check(relink_as(OWNER, &target, &donor, &r) == 0, "none for 8, where the donor's owner has room for 8");
	quota_limit(USRQUOTA, OTHER, 0);
}

enum { READ_BLOCKS = 4 };

/* Reads blocks of the file until killed; exits when one holds what is in neither file. */
__attribute__((noreturn)) static void read_on(uint64_t offset)
{
	const int fd = open("target", O_RDONLY);
	const size_t length = READ_BLOCKS * B;
	uint8_t *bytes = malloc(length);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (fd >= 0 && bytes && pread(fd, bytes, length, (off_t)offset) == (ssize_t)length) {
		for (uint64_t i = 0; i < length; i++) {
			const uint8_t first = bytes[i / B * B];

			if (bytes[i] != first || (first != 0x11 && first != 0x22))
				_exit(1);
		}
	}
	_exit(2);
}

static void fill(const struct file *f, int byte)
{
	memset(f->bytes, byte, f->room);
	check(pwrite(f->fd, f->bytes, f->room, 0) == (ssize_t)f->room && fsync(f->fd) == 0, "write: %s", strerror(errno));
}

/* Whoever reads meanwhile sees a block of the one or of the other, also where a large folio holds more than the range. */
static void exchange_seen_by_readers(void)
{
	struct file donor = file_new("donor", MIB), target = file_new("target", MIB);
	struct ext4_relink r;
	int status = 0, i;
	pid_t reader;

	fill(&donor, 0x11);
	fill(&target, 0x22);
	reader = fork();
	if (reader == 0)
		read_on(MIB / 2);
	for (i = 0; i < 100 && waitpid(reader, &status, WNOHANG) == 0; i++) {
		/* Read at once, where that is possible the page cache has a folio that is larger than the range. */
		check(posix_fadvise(target.fd, 0, 0, POSIX_FADV_DONTNEED) == 0, "fadvise");
		check(pread(target.fd, target.bytes, MIB, 0) == (ssize_t)MIB, "read");
		r = relink_args(&donor, MIB / 2, MIB / 2, READ_BLOCKS * B);
		r.flags = EXT4_RELINK_EXCHANGE;
		check(relink_call(target.fd, &r) == 0, "exchange: %s", strerror(errno));
	}
	check(i == 100, "the reader has ended after %d exchanges: %#x", i, (unsigned int)status);
	kill(reader, SIGKILL);
	waitpid(reader, &status, 0);
}

const struct test_case exchange_cases[] = {
	{"exchange_and_back", exchange_and_back},
	{"exchange_holes", exchange_holes},
	{"exchange_holes_skipped", exchange_holes_skipped},
	{"exchange_over_the_end", exchange_over_the_end},
	{"exchange_odd_lengths", exchange_odd_lengths},
	{"exchange_mappings", exchange_mappings},
	{"exchange_deep_trees", exchange_deep_trees},
	{"exchange_and_quota", exchange_and_quota},
	{"exchange_seen_by_readers", exchange_seen_by_readers},
	{0},
};
