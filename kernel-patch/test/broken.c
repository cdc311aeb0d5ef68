// SPDX-License-Identifier: GPL-2.0
/*
 * Relinks that cannot be undone: the journal aborts at one of the calls for access to a block, or the undoing itself fails. Each has
 * two parts, one that breaks a relink, and one that looks when the file system has been checked and mounted again. What the files
 * held before is kept outside.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"

#define B env.block

#define KEPT "/tmp/relink_test."

static const struct shape shapes[] = {
	{"overwrite", 12, 4, 12, 0, 0, 0, 0},
	{"exchange", 12, 4, 12, EXT4_RELINK_EXCHANGE, 0, 0, 0},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static void keep(const struct file *f)
{
	char path[64];
	FILE *out;

	snprintf(path, sizeof(path), KEPT "%s", f->name);
	out = fopen(path, "w");
	check(out && fwrite(f->bytes, 1, f->size, out) == f->size && fclose(out) == 0, "%s", path);
}

static struct file kept(const char *name)
{
	struct file f = {.name = name, .room = 4 * MIB};
	char path[64];
	FILE *in;

	snprintf(path, sizeof(path), KEPT "%s", name);
	in = fopen(path, "r");
	f.fd = open(name, O_RDONLY);
	f.bytes = calloc(1, f.room);
	check(in && f.bytes && f.fd >= 0, "%s", name);
	f.size = fread(f.bytes, 1, f.room, in);
	fclose(in);
	return f;
}

/* Breaks a relink; exits with SKIPPED where it does not make so many calls. */
void break_relink(unsigned int number, unsigned int kinds, unsigned int call, unsigned int again)
{
	struct file bystander = file_new("bystander", 64 * B);
	struct fault_pair p = fault_pair_new(&shapes[number % SHAPES], "donor", "target");
	int err;

	file_write(&bystander, 0, 64 * B, 1);
	fault_pair_touch(&shapes[number % SHAPES], &p, call + again);
	sync();
	keep(&bystander);
	keep(&p.donor);
	keep(&p.target);
	check(fail_call(kinds, call, again), "this module cannot be made to fail (kernel-patch/build --debug makes one)");
	err = relink_call(p.target.fd, &p.r);
	if (!has_failed())
		skip("there are no %u and %u calls", call, again);
	/* The first failure may have been one that needed no undoing. */
	check(err, "%s, calls %u and %u: nobody was told of the failures", shapes[number % SHAPES].what, call, again);
	note("%s, calls %u and %u: error %d", shapes[number % SHAPES].what, call, again, err);
}

static bool is_zero(const uint8_t *block)
{
	unsigned long i;

	for (i = 0; i < B && !block[i]; i++)
		;
	return i == B;
}

/* Each block is the file's own, or what it would have got from the other one, or a hole; nothing of anybody else's. */
static void look_at(const struct file *f, const struct file *other, int64_t delta)
{
	uint8_t *block = malloc(B);
	uint64_t at, place;
	ssize_t n;

	check(block && (uint64_t)file_stat(f).st_size >= f->size, "%s has %lu bytes", f->name,
	      (unsigned long)file_stat(f).st_size);
	for (at = 0; at < f->size; at += B) {
		n = pread(f->fd, block, B, at);
		check(n > 0, "reading %s at %lu", f->name, (unsigned long)at);
		memset(block + n, 0, B - n);
		place = at + delta;
		check(is_zero(block) || !memcmp(block, f->bytes + at, B) ||
			      (place < other->size && !memcmp(block, other->bytes + place, B)),
		      "block %lu of %s is nobody's", (unsigned long)(at / B), f->name);
	}
	free(block);
}

/* With a journal that has aborted nothing has happened; else at most the pair is not what it was. */
void look_at_broken(bool undone)
{
	struct file donor = kept("donor"), target = kept("target"), bystander = kept("bystander");

	file_verify(&bystander, "afterwards");
	if (undone) {
		file_verify(&donor, "afterwards");
		file_verify(&target, "afterwards");
	} else {
		look_at(&donor, &target, B);
		look_at(&target, &donor, -(int64_t)B);
	}
	file_free(&donor);
	file_free(&target);
	file_free(&bystander);
}
