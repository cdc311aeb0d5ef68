// SPDX-License-Identifier: GPL-2.0
/*
 * Limits are swept, not sampled: a relink whose extent trees have to grow, with 0, 1, 2, ... free blocks or blocks of quota, until
 * it has worked three times. Below that it is refused and has changed nothing, and the file system has no error to report.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/quota.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "space.h"

#define B env.block

enum {
	FRAGMENTED = 4,	   /* the first layout with more extents than an inode has room for */
	MOST_BLOCKS = 320, /* more than any sweep needs */
	OWNER = 1004,
	OTHER = 1005,
};

/* Files whose relink makes trees grow: the donor's range ends in the middle of an extent, where its tree is full. */
struct layout {
	const char *what;
	unsigned int extents; /* of the donor: of `length` blocks, a hole of a block behind each */
	unsigned int length;
	unsigned int old; /* extents of the target in the range, which go */
	unsigned int flags;
};

static const struct layout layouts[] = {
	{"four extents in the inode", 4, 4, 0, 0},
	{"four extents, over four others", 4, 4, 4, 0},
	{"four extents, over four others, holes skipped", 4, 4, 4, EXT4_RELINK_SKIP_HOLES},
	{"four extents for four others", 4, 4, 4, EXT4_RELINK_EXCHANGE},
	{"680 extents", 680, 2, 0, 0},
	{"680 extents over 340 others", 680, 2, 340, 0},
	{"680 extents for 340 others", 680, 2, 340, EXT4_RELINK_EXCHANGE},
};
#define LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

static uint64_t span(const struct layout *l)
{
	return (uint64_t)l->extents * (l->length + 1) * B;
}

/* All but the last block of the donor's last extent. */
static struct ext4_relink layout_range(const struct layout *l, const struct file *donor)
{
	struct ext4_relink r = relink_args(donor, 0, 2 * B, span(l) - 2 * B);

	r.flags = l->flags;
	return r;
}

/* Every other block is taken by files that go again, so that neighbours in a file are not neighbours on the device. */
static void scatter(const char *name, const struct layout *l, unsigned int extents, unsigned int length, unsigned int owner,
		    struct file *f)
{
	const uint64_t step = span(l) / extents;
	struct file other = file_new("between", B);
	unsigned int i;

	*f = file_new(name, span(l) + 8 * B);
	if (owner)
		check(fchown(f->fd, owner, owner) == 0, "fchown");
	for (i = 0; i < extents; i++) {
		check(fallocate(other.fd, 0, i * B, B) == 0, "fallocate");
		check(fallocate(f->fd, 0, i * step, length * B) == 0, "fallocate");
		file_write(f, i * step, length * B, i + 1);
	}
	fsync(f->fd);
	file_free(&other);
}

struct pair {
	struct file donor, target;
};

static struct pair lay_out(const struct layout *l, unsigned int donor_owner, unsigned int target_owner)
{
	struct pair p;

	scatter("donor", l, l->extents, l->length, donor_owner, &p.donor);
	if (l->old) {
		scatter("target", l, l->old, 3, target_owner, &p.target);
	} else {
		p.target = file_new("target", span(l) + 8 * B);
		if (target_owner)
			check(fchown(p.target.fd, target_owner, target_owner) == 0, "fchown");
	}
	file_truncate(&p.donor, span(l));
	fsync(p.donor.fd);
	fsync(p.target.fd);
	return p;
}

static void pair_free(struct pair *p)
{
	file_free(&p->donor);
	file_free(&p->target);
	sync();
}

static void spare_name(char name[16], unsigned int i)
{
	snprintf(name, 16, "spare%u", i);
}

/* `count` files of a block, each of which is a free block when it is removed. */
static void make_spares(unsigned int count)
{
	unsigned int i;
	char name[16];
	int fd;

	for (i = 0; i < count; i++) {
		spare_name(name, i);
		fd = open(name, O_RDWR | O_CREAT, 0600);
		check(fd >= 0 && fallocate(fd, 0, 0, B) == 0, "%s", name);
		close(fd);
	}
}

static void remove_spares(unsigned int from, unsigned int to)
{
	unsigned int i;
	char name[16];

	for (i = from; i < to; i++) {
		spare_name(name, i);
		unlink(name);
	}
}

static unsigned long errors_noted(void)
{
	unsigned long n = 0;

	check(sysfs_read("errors_count", &n), "errors_count");
	return n;
}

/* In both ways that a file system can take an error, so that one shows. */
/* Fresh files on a file system with no free block, and `spares` files that are one each. */
static struct pair full_with(const struct layout *l, unsigned int spares)
{
	struct pair p;

	fill_away();
	make_spares(spares);
	p = lay_out(l, 0, 0);
	fill_up();
	return p;
}

/*
 * Once, with so many free blocks. They have become free just before, in a transaction that has committed or not. True if it
 * worked.
 */
static bool relinked_with(const struct layout *l, struct pair *p, unsigned int room, bool committed)
{
	unsigned long errors = errors_noted();
	struct ext4_relink r = layout_range(l, &p->donor);
	struct statvfs vfs;
	int err;

	if (committed)
		sync();
	check(statvfs(".", &vfs) == 0 && vfs.f_bfree == room, "%lu blocks are free, not %u", (unsigned long)vfs.f_bfree, room);
	err = relink_checked(&p->target, &p->donor, &r);
	check(err == 0 || err == ENOSPC, "%s, %u free blocks: error %d", l->what, room, err);
	check(errors_noted() == errors, "%s, %u free blocks: the file system noted an error", l->what, room);
	return !err;
}

/* The least number of free blocks that is enough; two more are, too. After a refusal the same files are tried again. */
static unsigned int sweep_layout(const struct layout *l, bool committed)
{
	struct pair p = full_with(l, MOST_BLOCKS);
	unsigned int room, least;

	for (room = 0; !relinked_with(l, &p, room, committed); room++) {
		check(room < MOST_BLOCKS, "%s: refused with %u free blocks", l->what, room);
		remove_spares(room, room + 1);
	}
	pair_free(&p);
	remove_spares(room, MOST_BLOCKS);
	least = room;
	for (room = least + 1; room <= least + 2; room++) {
		p = full_with(l, room);
		remove_spares(0, room);
		check(relinked_with(l, &p, room, committed), "%s: refused with %u free blocks, not with %u", l->what, room,
		      least);
		pair_free(&p);
	}
	return least;
}

/* Where free blocks are swept, what the file system keeps in reserve must not help. */
static void sweep_room(bool committed, unsigned int first, unsigned int last)
{
	unsigned long reserved = 0;
	unsigned int i;

	if (geteuid())
		skip("needs root");
	check(sysfs_read("reserved_clusters", &reserved) && sysfs_write("reserved_clusters", 0), "the reserve");
	for (i = first; i < last; i++)
		note("%s: refused with fewer than %u free blocks", layouts[i].what, sweep_layout(&layouts[i], committed));
	fill_away();
	check(sysfs_write("reserved_clusters", reserved), "the reserve");
}

static void free_blocks_swept(void)
{
	take_errors("errors=continue");
	sweep_room(true, 0, FRAGMENTED);
	take_errors("errors=remount-ro");
	sweep_room(true, 0, 1);
}

static void free_blocks_swept_fragmented(void)
{
	take_errors("errors=continue");
	sweep_room(true, FRAGMENTED, LAYOUTS);
}

/* Blocks that a transaction has freed are counted as free, and cannot be had before it has committed. */
static void free_blocks_not_committed(void)
{
	take_errors("errors=continue");
	sweep_room(false, 0, 2);
}

/*
 * A relink of few extents, whose trees have room, needs no free block at all; nor does its undoing, wherever it fails. In the
 * deep trees the range is in the last leaf, which is not full.
 */
static void no_free_blocks(void)
{
	static const struct {
		const char *what;
		unsigned int donor, target; /* extents of 4 blocks with a hole of one behind each */
		unsigned int at, flags;	    /* of the range, in such extents */
	} few[] = {
		{"append", 1, 0, 0, 0},
		{"overwrite", 1, 1, 0, EXT4_RELINK_SKIP_HOLES},
		{"exchange", 1, 1, 0, EXT4_RELINK_EXCHANGE},
		{"deep overwrite", 600, 600, 590, EXT4_RELINK_SKIP_HOLES},
		{"deep exchange", 600, 600, 590, EXT4_RELINK_EXCHANGE | EXT4_RELINK_SKIP_HOLES},
	};
	const bool faults = fail_call(0, 0, 0);
	unsigned long reserved = 0, errors;
	unsigned int i, step;
	struct ext4_relink r;
	struct layout l = {"", 0, 4, 0, 0};
	struct pair p;
	int err;

	if (geteuid())
		skip("needs root");
	take_errors("errors=continue");
	check(sysfs_read("reserved_clusters", &reserved) && sysfs_write("reserved_clusters", 0), "the reserve");
	for (i = 0; i < sizeof(few) / sizeof(few[0]); i++) {
		fill_away();
		l.extents = few[i].donor;
		l.old = few[i].target;
		p = lay_out(&l, 0, 0);
		fill_up();
		errors = errors_noted();
		for (step = 1; step < 1000; step++) {
			r = relink_args(&p.donor, (few[i].at * 5 + 1) * B, (few[i].at * 5 + 1) * B, 2 * B);
			r.flags = few[i].flags;
			if (faults)
				check(fail_call(FAIL_SPACE | FAIL_TREE, step, 0), "simulate_fail_call");
			err = relink_checked(&p.target, &p.donor, &r);
			check(errors_noted() == errors, "%s, step %u: the file system noted an error", few[i].what, step);
			if (!err)
				break;
			check(faults && err != EINVAL, "%s, step %u: error %d", few[i].what, step, err);
		}
		if (faults)
			check(fail_call(0, 0, 0) && step > 4, "%s: only %u steps", few[i].what, step);
		pair_free(&p);
	}
	fill_away();
	check(sysfs_write("reserved_clusters", reserved), "the reserve");
}

/* One user's blocks, at his hard limit: nothing is his that was not before, but for blocks of the trees, which don't count. */
static void quota_swept(void)
{
	unsigned long errors;
	struct ext4_relink r;
	unsigned int i, room;
	uint64_t before;
	struct pair p;
	int err;

	need_quota();
	for (i = 0; i < LAYOUTS; i++) {
		take_errors(i % 2 ? "errors=continue" : "errors=remount-ro");
		for (room = 0; room < (layouts[i].extents > 4 ? 3 : 16); room++) {
			p = lay_out(&layouts[i], OWNER, OWNER);
			before = quota_used(USRQUOTA, OWNER);
			errors = errors_noted();
			quota_limit(USRQUOTA, OWNER, before + room * B);
			r = layout_range(&layouts[i], &p.donor);
			err = relink_as(OWNER, &p.target, &p.donor, &r);
			quota_limit(USRQUOTA, OWNER, 0);
			check(err == 0, "%s, %u blocks below the limit: error %d", layouts[i].what, room, err);
			check(errors_noted() == errors, "%s, %u blocks below the limit: the file system noted an error",
			      layouts[i].what, room);
			pair_free(&p);
			check(quota_used(USRQUOTA, OWNER) == 0, "%s: %lu bytes stay charged", layouts[i].what,
			      (unsigned long)quota_used(USRQUOTA, OWNER));
		}
	}
}

/* Somebody else's blocks: refused by exactly what is new to the target's owner, blocks of the trees not counted. */
static void quota_of_another_swept(void)
{
	uint64_t moved, replaced, before, donor_before, need;
	unsigned long errors;
	struct ext4_relink r;
	unsigned int i, room;
	struct pair p;
	int err;

	need_quota();
	take_errors("errors=continue");
	for (i = 0; i < LAYOUTS; i++) {
		if (layouts[i].flags & EXT4_RELINK_SKIP_HOLES)
			continue; /* how much is replaced is not looked at here */
		for (room = 0; room < 5; room++) {
			p = lay_out(&layouts[i], OTHER, OWNER);
			r = layout_range(&layouts[i], &p.donor);
			moved = file_blocks(&p.donor, r.donor_offset, r.length, false);
			replaced = file_blocks(&p.target, r.target_offset, r.length, false);
			need = moved - replaced;
			before = quota_used(USRQUOTA, OWNER);
			donor_before = quota_used(USRQUOTA, OTHER);
			errors = errors_noted();
			quota_limit(USRQUOTA, OWNER, before + (need - 2 + room) * B);
			err = relink_as(OWNER, &p.target, &p.donor, &r);
			quota_limit(USRQUOTA, OWNER, 0);
			check(err == (room < 2 ? EDQUOT : 0), "%s, %u blocks of %lu: error %d", layouts[i].what, room,
			      (unsigned long)need, err);
			check(errors_noted() == errors, "%s: the file system noted an error", layouts[i].what);
			check(!err || (quota_used(USRQUOTA, OWNER) == before && quota_used(USRQUOTA, OTHER) == donor_before),
			      "%s: refused, and charges changed", layouts[i].what);
			pair_free(&p);
			check(quota_used(USRQUOTA, OWNER) == 0 && quota_used(USRQUOTA, OTHER) == 0, "charges are left");
		}
	}
}

const struct test_case limit_cases[] = {
	{"free_blocks_swept", free_blocks_swept},
	{"free_blocks_swept_fragmented", free_blocks_swept_fragmented},
	{"free_blocks_not_committed", free_blocks_not_committed},
	{"no_free_blocks", no_free_blocks},
	{"quota_swept", quota_swept},
	{"quota_of_another_swept", quota_of_another_swept},
	{0},
};
