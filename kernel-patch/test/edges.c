// SPDX-License-Identifier: GPL-2.0
/* Deep trees, more than a transaction takes, and failures half way. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "testlib.h"

#define B env.block

/* Codes of the simulate_fail attribute. */
enum { FAIL_DETACH = 9, FAIL_INSERT = 10 };

/* Every second block of a file, unwritten and written by turns: an extent each. */
static void fragment(struct file *f, unsigned long extents, unsigned int tag)
{
	unsigned long i;

	for (i = 0; i < extents; i++) {
		if (i % 16 == 15)
			file_write(f, 2 * i * B, B, tag);
		else
			check(fallocate(f->fd, 0, 2 * i * B, B) == 0, "fallocate");
	}
	file_truncate(f, 2 * extents * B);
	fsync(f->fd);
}

static void deep_trees(void)
{
	unsigned long n = 3000;
	struct file donor = file_new("donor", 2 * n * B), target = file_new("target", 2 * n * B);
	uint64_t donor_blocks, target_blocks;
	struct ext4_relink r;

	fragment(&donor, n, 1);
	fragment(&target, n, 2);
	note("%lu extents in the donor, %lu in the target", file_extents(&donor), file_extents(&target));
	donor_blocks = file_stat(&donor).st_blocks;
	target_blocks = file_stat(&target).st_blocks;

	/* From the middle of one to the odd blocks of the other, replacing a third of it. */
	r = relink_args(&donor, 1001 * B, 2000 * B, 2000 * B);
	r.flags = EXT4_RELINK_SKIP_HOLES;
	r.new_size = 0;
	check(relink_checked(&target, &donor, &r) == 0, "relink with holes skipped");
	check(r.extents_moved == 1000 && r.extents_freed == 0, "moved %u, freed %u", r.extents_moved, r.extents_freed);

	r = relink_args(&donor, 0, 1500 * B, 3000 * B);
	check(relink_checked(&target, &donor, &r) == 0, "relink with holes");
	check(r.extents_moved == 501, "moved %u", r.extents_moved);
	check(file_blocks(&donor, 0, 2 * n * B, false) + file_blocks(&target, 0, 2 * n * B, false) > 0, "FIEMAP");

	/* Back: everything that is left of both in one file. */
	r = relink_args(&target, 0, 0, 2 * n * B);
	check(relink_checked(&donor, &target, &r) == 0, "all of it");
	check(file_blocks(&target, 0, 2 * n * B, false) == 0, "the donor is empty");
	check((uint64_t)file_stat(&target).st_blocks < target_blocks, "the tree of an empty file stayed");
	note("%u extents moved, %u freed; %lu and %lu sectors before, %lu and %lu now", r.extents_moved, r.extents_freed,
	     (unsigned long)donor_blocks, (unsigned long)target_blocks, (unsigned long)file_stat(&donor).st_blocks,
	     (unsigned long)file_stat(&target).st_blocks);
}

/* More extents than a transaction takes: refused as a whole, or moved piece by piece. */
static void too_much_for_a_transaction(void)
{
	unsigned long n, done, calls = 0;
	struct file donor, target;
	struct ext4_relink r;
	uint64_t room = 2 * 60000 * B;
	int err = 0;

	donor = file_new("donor", room);
	target = file_new("target", room);
	file_write(&target, 0, 3 * B, 2);
	for (n = 4000; n <= 60000; n *= 2) {
		fragment(&donor, n, 1);
		r = relink_args(&donor, 0, 0, 2 * n * B);
		err = relink_checked(&target, &donor, &r);
		if (err)
			break;
		file_truncate(&target, 0);
		file_write(&target, 0, 3 * B, 2);
	}
	if (!err)
		skip("60000 extents fit the journal");
	check(err == E2BIG && r.moved == 0, "%lu extents", n);
	note("%lu extents are too many", n);
	for (done = 0; done < 2 * n * B; done += r.moved) {
		r = relink_args(&donor, done, done, 2 * n * B - done);
		r.flags = EXT4_RELINK_PARTIAL;
		check(relink_checked(&target, &donor, &r) == 0, "partial relink at %lu", done);
		check(r.moved > 0 && r.moved % B == 0, "moved %lu", (unsigned long)r.moved);
		calls++;
	}
	check(calls > 1, "partial moved all at once");
	check(target.size == 2 * n * B, "size");
	note("moved by %lu calls", calls);
}

/* A failure half way leaves both files, their blocks and the file system as they were. */
static void undone(unsigned long code, unsigned int flags)
{
	struct file donor = file_new("donor", 2 * 1200 * B), target = file_new("target", 2 * 1200 * B);
	unsigned long errors_before = 0, errors = 0;
	struct stat donor_before, target_before;
	uint64_t donor_blocks, target_blocks;
	struct ext4_relink r;

	fragment(&donor, 1200, 1);
	fragment(&target, 600, 2);
	file_write(&target, 400 * B, 20 * B, 3);
	fsync(target.fd);
	donor_before = file_stat(&donor);
	target_before = file_stat(&target);
	donor_blocks = file_blocks(&donor, 0, donor.size, false);
	target_blocks = file_blocks(&target, 0, target.size, false);
	if (!sysfs_write("simulate_fail", code))
		skip("this module cannot be made to fail (kernel-patch/build --debug makes one)");
	sysfs_read("errors_count", &errors_before);
	r = relink_args(&donor, 101 * B, 150 * B, 2000 * B);
	r.flags = flags;
	check(relink_checked(&target, &donor, &r) == EIO, "relink has to fail");
	check(r.moved == 0, "moved %lu", (unsigned long)r.moved);
	check(sysfs_read("simulate_fail", &errors) && errors == 0, "nothing failed");
	check(sysfs_read("errors_count", &errors) && errors == errors_before, "the file system has noted an error");
	check(file_blocks(&donor, 0, donor.size, false) == donor_blocks, "the donor's blocks");
	check(file_blocks(&target, 0, target.size, false) == target_blocks, "the target's blocks");
	/* A tree that was taken apart and put together again may need some more blocks. */
	check(labs((long)file_stat(&donor).st_blocks - (long)donor_before.st_blocks) < 8L * (long)B / 64,
	      "the donor's sectors");
	check(labs((long)file_stat(&target).st_blocks - (long)target_before.st_blocks) < 8L * (long)B / 64,
	      "the target's sectors");
	r.flags = flags;
	check(relink_checked(&target, &donor, &r) == 0, "the second try");
	file_free(&donor);
	file_free(&target);
}

static void undone_after_detaching(void)
{
	undone(FAIL_DETACH, 0);
	undone(FAIL_DETACH, EXT4_RELINK_SKIP_HOLES);
}

static void undone_while_inserting(void)
{
	undone(FAIL_INSERT, 0);
	undone(FAIL_INSERT, EXT4_RELINK_SKIP_HOLES);
}

/* The simplest failure: an empty target, one extent. */
static void undone_simple(void)
{
	struct file donor = file_new("donor", 8 * B), target = file_new("target", 8 * B);
	struct ext4_relink r;

	file_write(&donor, 0, 8 * B, 1);
	fsync(donor.fd);
	if (!sysfs_write("simulate_fail", FAIL_INSERT))
		skip("this module cannot be made to fail (kernel-patch/build --debug makes one)");
	r = relink_args(&donor, 0, 0, 8 * B);
	check(relink_checked(&target, &donor, &r) == EIO, "relink has to fail");
	check(file_stat(&target).st_blocks == 0 && file_stat(&target).st_size == 0, "the target is not empty");
	check(file_blocks(&donor, 0, 8 * B, false) == 8, "the donor's blocks");
	check(relink_checked(&target, &donor, &r) == 0, "the second try");
}

const struct test_case edge_cases[] = {
	{"deep_trees", deep_trees},
	{"too_much_for_a_transaction", too_much_for_a_transaction},
	{"undone_simple", undone_simple},
	{"undone_after_detaching", undone_after_detaching},
	{"undone_while_inserting", undone_while_inserting},
	{0},
};
