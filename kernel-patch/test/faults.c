// SPDX-License-Identifier: GPL-2.0
/*
 * Every step of a relink fails in turn: each block taken for a tree, each leaf emptied, each extent inserted, and what comes before
 * and after. Nothing has changed then. The files of the last failure stay, for e2fsck to look at.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "testlib.h"

#define B env.block

/* Values of simulate_fail above this one count steps. */
enum { FIRST_STEP = 1000, MANY_STEPS = 1000000 };

struct shape {
	const char *what;
	unsigned int extents, length; /* of the donor: extents of `length` blocks with a hole of one behind each */
	unsigned int old;	      /* extents of the target */
	unsigned int flags;
	unsigned int stride; /* of the steps that are tried */
};

static const struct shape shapes[] = {
	{"append", 4, 4, 0, 0, 1},
	{"overwrite", 4, 4, 4, 0, 1},
	{"exchange", 4, 4, 4, EXT4_RELINK_EXCHANGE, 1},
	{"overwrite, holes skipped", 4, 4, 8, EXT4_RELINK_SKIP_HOLES, 1},
	{"exchange, holes skipped", 4, 4, 8, EXT4_RELINK_SKIP_HOLES | EXT4_RELINK_EXCHANGE, 1},
	{"deep overwrite", 700, 2, 500, 0, 61},
	{"deep exchange", 700, 2, 500, EXT4_RELINK_EXCHANGE, 61},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

struct pair {
	struct file donor, target;
	struct ext4_relink r;
	uint64_t donor_blocks, target_blocks;
};

static void fragments(struct file *f, const char *name, const struct shape *s, unsigned int extents, unsigned int length)
{
	const uint64_t span = (uint64_t)s->extents * (s->length + 1) * B, step = span / (extents ? extents : 1) / B * B;
	unsigned int i;

	*f = file_new(name, span + 8 * B);
	for (i = 0; i < extents; i++) {
		file_allocate(f, i * step, length * B);
		if (i % 16 == 0 || s->extents < 16)
			file_write(f, i * step, length * B, i + 1);
	}
	if (extents)
		file_truncate(f, span);
	fsync(f->fd);
}

static struct pair pair_new(const struct shape *s, const char *donor, const char *target)
{
	struct pair p;

	fragments(&p.donor, donor, s, s->extents, s->length);
	fragments(&p.target, target, s, s->old, 2);
	/* Both edges within extents. */
	p.r = relink_args(&p.donor, B, 2 * B, p.donor.size - 3 * B);
	p.r.flags = s->flags;
	p.donor_blocks = file_blocks(&p.donor, 0, p.donor.room, false);
	p.target_blocks = file_blocks(&p.target, 0, p.target.room, false);
	return p;
}

/* The step fails; false if the relink has fewer steps. */
static bool fails_at(const struct shape *s, struct pair *p, unsigned int step)
{
	unsigned long before = 0, after = 0, left = 0;
	struct ext4_relink r = p->r;
	int err;

	check(sysfs_read("errors_count", &before) && sysfs_write("simulate_fail", FIRST_STEP + step), "simulate_fail");
	err = relink_checked(&p->target, &p->donor, &r);
	check(sysfs_read("simulate_fail", &left) && sysfs_read("errors_count", &after), "simulate_fail");
	sysfs_write("simulate_fail", 0);
	check(after == before, "%s, step %u: the file system noted an error", s->what, step);
	if (!err) {
		check(left > FIRST_STEP, "%s, step %u failed and nobody was told", s->what, step);
		return false;
	}
	check(left == 0 && (err == EIO || err == ENOSPC || err == ENOMEM), "%s, step %u: error %d", s->what, step, err);
	check(file_blocks(&p->donor, 0, p->donor.room, false) == p->donor_blocks &&
		      file_blocks(&p->target, 0, p->target.room, false) == p->target_blocks,
	      "%s, step %u: blocks are in the wrong file", s->what, step);
	return true;
}

static void faults_of(const struct shape *s, unsigned int number)
{
	struct pair p = pair_new(s, "donor", "target");
	unsigned int step, most;
	char donor[16], target[16];

	for (step = 1; step < MANY_STEPS && fails_at(s, &p, step); step += step < 40 ? 1 : s->stride)
		;
	most = step - 1;
	note("%s: %u steps or somewhat fewer", s->what, most);
	check(most >= 8, "%s: only %u steps", s->what, most);
	file_free(&p.donor);
	file_free(&p.target);
	snprintf(donor, sizeof(donor), "left-donor-%u", number);
	snprintf(target, sizeof(target), "taken-target-%u", number);
	p = pair_new(s, donor, target);
	check(fails_at(s, &p, 1 + random_number(&env.seed) % (most * 3 / 4)), "the one that is left");
	fsync(p.donor.fd);
	fsync(p.target.fd);
}

static void every_step_fails(void)
{
	unsigned int i;

	if (!sysfs_write("simulate_fail", FIRST_STEP + 1))
		skip("this module cannot be made to fail (kernel-patch/build --debug makes one)");
	for (i = 0; i < SHAPES; i++)
		faults_of(&shapes[i], i);
}

const struct test_case fault_cases[] = {{"every_step_fails", every_step_fails}, {0}};
