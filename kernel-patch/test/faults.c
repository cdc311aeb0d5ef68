// SPDX-License-Identifier: GPL-2.0
/*
 * Every call of a relink that can fail does so in turn, by kinds: memory, reading blocks and writing pages back, journal, quota,
 * blocks for the trees, and each change of a tree. Nothing has changed then, and the file system has noted no error, whatever it
 * would do about one. The files of some failures stay, for e2fsck to look at.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"

#define B env.block

/* More than any relink makes. */
enum { MANY_CALLS = 1000000, OTHER = 1001 };

static const struct shape shapes[] = {
	{"append", 4, 4, 0, 0, 0, MANY_CALLS, 1},
	{"overwrite", 4, 4, 4, 0, 0, MANY_CALLS, 1},
	{"exchange", 4, 4, 4, EXT4_RELINK_EXCHANGE, 0, MANY_CALLS, 1},
	{"overwrite, holes skipped", 4, 4, 8, EXT4_RELINK_SKIP_HOLES, 0, MANY_CALLS, 1},
	{"exchange, holes skipped", 4, 4, 8, EXT4_RELINK_SKIP_HOLES | EXT4_RELINK_EXCHANGE, 0, MANY_CALLS, 1},
	{"overwrite of another user's", 4, 4, 4, 0, OTHER, MANY_CALLS, 1},
	{"exchange with another user's", 4, 4, 4, EXT4_RELINK_EXCHANGE, OTHER, MANY_CALLS, 1},
	{"deep overwrite", 700, 2, 500, 0, 0, 8, 401},
	{"deep exchange", 700, 2, 500, EXT4_RELINK_EXCHANGE, 0, 8, 401},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static const struct kind {
	const char *what;
	unsigned int kind;
	int errors[2];
	unsigned int least; /* such calls, of all shapes together: fewer are none that were looked for */
	/* Calls that a relink does without: it looks whether it needs blocks, or waits for some. */
	unsigned int spared;
} kinds[] = {
	{"memory", FAIL_MEMORY, {ENOMEM, ENOMEM}, 100, 4},     {"reading and writing", FAIL_IO, {EIO, EIO}, 40, 12},
	{"the journal", FAIL_JOURNAL, {ENOMEM, ENOMEM}, 8, 0}, {"quota", FAIL_QUOTA, {EIO, EDQUOT}, 16, 0},
	{"blocks", FAIL_SPACE, {ENOSPC, ENOSPC}, 4, 3},	       {"a tree", FAIL_TREE, {EIO, EIO}, 100, 0},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

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

struct fault_pair fault_pair_new(const struct shape *s, const char *donor, const char *target)
{
	struct fault_pair p;

	fragments(&p.donor, donor, s, s->extents, s->length);
	fragments(&p.target, target, s, s->old, 2);
	check(!s->owner || fchown(p.target.fd, s->owner, s->owner) == 0, "fchown");
	/* Both edges within extents. */
	p.r = relink_args(&p.donor, B, 2 * B, p.donor.size - 3 * B);
	p.r.flags = s->flags;
	/*
	 * The blocks that will be dirty have been written before: writing them back changes no tree. Else the write-back
	 * that a relink without DAX begins with would take a failure that is meant for the relink itself, and lose data
	 * as it does on any ext4.
	 */
	fault_pair_touch(s, &p, 0);
	fsync(p.donor.fd);
	fsync(p.target.fd);
	p.donor_blocks = file_blocks(&p.donor, 0, p.donor.room, false);
	p.target_blocks = file_blocks(&p.target, 0, p.target.room, false);
	return p;
}

void fault_pair_touch(const struct shape *s, struct fault_pair *p, unsigned int tag)
{
	const unsigned int old = s->extents * (s->length + 1) / (s->old ? s->old : 1);

	file_write(&p->donor, B, B, tag);
	if (s->old)
		file_write(&p->target, old * B, B, tag);
}

enum outcome { FAILED, SPARED, NO_SUCH_CALL };

static enum outcome fails_at(const struct shape *s, const struct kind *k, struct fault_pair *p, unsigned int call)
{
	unsigned long before = 0, after = 0;
	struct ext4_relink r = p->r;
	bool failed;
	int err;

	fault_pair_touch(s, p, call);
	check(sysfs_read("errors_count", &before) && fail_call(k->kind, call, 0), "simulate_fail_call");
	err = relink_checked(&p->target, &p->donor, &r);
	failed = has_failed();
	check(fail_call(0, 0, 0) && sysfs_read("errors_count", &after), "simulate_fail_call");
	check(after == before, "%s, %s, call %u: the file system noted an error", s->what, k->what, call);
	if (!err)
		return failed ? SPARED : NO_SUCH_CALL;
	check(failed && (err == k->errors[0] || err == k->errors[1]), "%s, %s, call %u: error %d", s->what, k->what, call, err);
	check(file_blocks(&p->donor, 0, p->donor.room, false) == p->donor_blocks &&
		      file_blocks(&p->target, 0, p->target.room, false) == p->target_blocks,
	      "%s, %s, call %u: blocks are in the wrong file", s->what, k->what, call);
	return FAILED;
}

/* Returns how many such calls there are, or somewhat more where not all were tried. */
static unsigned int faults_of(const struct shape *s, const struct kind *k)
{
	struct fault_pair p = fault_pair_new(s, "donor", "target");
	unsigned int call, spared = 0;
	enum outcome outcome;

	for (call = 1; call < MANY_CALLS; call += call < s->each ? 1 : s->stride) {
		outcome = fails_at(s, k, &p, call);
		if (outcome == NO_SUCH_CALL)
			break;
		if (outcome == FAILED)
			continue;
		check(++spared <= k->spared, "%s, %s, call %u: nobody was told of its failure", s->what, k->what, call);
		file_free(&p.donor);
		file_free(&p.target);
		p = fault_pair_new(s, "donor", "target");
	}
	file_free(&p.donor);
	file_free(&p.target);
	note("%s, %s: %u calls%s, without %u of them it went on", s->what, k->what, call - 1,
	     call > s->each ? " or somewhat fewer" : "", spared);
	return call - 1;
}

/* Files that e2fsck will find. */
static void leave_some(const struct shape *s, unsigned int number)
{
	const struct kind *k = &kinds[KINDS - 1];
	char donor[16], target[16];
	struct fault_pair p;

	snprintf(donor, sizeof(donor), "left-donor-%u", number);
	snprintf(target, sizeof(target), "taken-target-%u", number);
	p = fault_pair_new(s, donor, target);
	check(fails_at(s, k, &p, 1 + random_number(&env.seed) % 8) == FAILED, "the one that is left");
	fsync(p.donor.fd);
	fsync(p.target.fd);
}

/* Of the deep shapes, which take long, one in each way to take errors. */
static void every_call_fails(const char *errors, const struct shape *not_this)
{
	unsigned int i, k, calls;

	take_errors(errors);
	note("%s", errors);
	for (k = 0; k < KINDS; k++) {
		for (i = calls = 0; i < SHAPES; i++)
			calls += &shapes[i] == not_this ? 0 : faults_of(&shapes[i], &kinds[k]);
		check(calls >= kinds[k].least, "only %u calls for %s", calls, kinds[k].what);
	}
}

static void every_step_fails(void)
{
	unsigned int i;

	if (!fail_call(0, 0, 0))
		skip("this module cannot be made to fail (kernel-patch/build --debug makes one)");
	every_call_fails("errors=continue", &shapes[SHAPES - 2]);
	every_call_fails("errors=remount-ro", &shapes[SHAPES - 1]);
	for (i = 0; i < SHAPES; i++)
		leave_some(&shapes[i], i);
	take_errors("errors=continue");
}

const struct test_case fault_cases[] = {{"every_step_fails", every_step_fails}, {0}};
