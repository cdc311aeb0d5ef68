// SPDX-License-Identifier: GPL-2.0
/* Random calls on some files, against a model of each in memory; the files are read and looked at through mappings. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "testlib.h"

#define B env.block

enum { FILES = 4, BLOCKS = 1024 };

static uint64_t state;
static struct file files[FILES];
static uint8_t *maps[FILES];

static uint64_t below(uint64_t n)
{
	return random_number(&state) % n;
}

/* A number of blocks, small ones more often. */
static uint64_t some_blocks(uint64_t most)
{
	uint64_t n = 1 + below(below(3) ? 8 : 400);

	return n < most ? n : most;
}

/* What the call has to answer; the rules of ext4_relink.h, without those no random call can break. */
static int expected(const struct file *target, const struct file *donor, const struct ext4_relink *r)
{
	uint64_t size = target->size, end = r->target_offset + r->length;

	if (r->donor_offset + r->length > donor->size)
		return EINVAL;
	if (!(r->flags & EXT4_RELINK_KEEP_SIZE) && r->new_size > size)
		size = r->new_size;
	if (end > size || (r->length % B && end != size))
		return EINVAL;
	return 0;
}

static struct ext4_relink some_relink(const struct file *target, const struct file *donor)
{
	uint64_t donor_blocks = donor->size / B, blocks, at;
	struct ext4_relink r;

	blocks = some_blocks(donor_blocks ? donor_blocks : 1);
	at = below(3) ? below(BLOCKS - blocks) : (target->size + B - 1) / B;
	if (at + blocks > BLOCKS)
		at = BLOCKS - blocks;
	r = relink_args(donor, donor_blocks > blocks ? below(donor_blocks - blocks + 1) * B : 0, at * B, blocks * B);
	if (below(3) == 0) {
		r.length -= below(B);
		r.new_size = r.target_offset + r.length;
	}
	if (below(8) == 0)
		r.new_size += below(3 * B);
	if (r.new_size > BLOCKS * B)
		r.new_size = BLOCKS * B;
	r.flags = (below(3) ? 0 : EXT4_RELINK_SKIP_HOLES) | (below(3) ? 0 : EXT4_RELINK_PARTIAL) |
		  (below(16) ? 0 : EXT4_RELINK_SYNC) | (below(3) ? 0 : EXT4_RELINK_EXCHANGE);
	if (below(6) == 0) {
		r.flags |= EXT4_RELINK_KEEP_SIZE;
		r.new_size = 0;
	}
	return r;
}

static void some_change(struct file *f, unsigned int tag)
{
	uint64_t blocks = some_blocks(BLOCKS), at = below(BLOCKS - blocks + 1) * B, length = blocks * B;

	switch (below(6)) {
	case 0:
		file_truncate(f, below(BLOCKS * B));
		break;
	case 1:
		file_punch(f, at, length);
		break;
	case 2:
		file_allocate(f, at, length);
		break;
	case 3:
		if (f->size > at + 1)
			file_store(f, at, 1 + below(f->size - at - 1), tag);
		break;
	default:
		file_write(f, at + below(B), 1 + below(length - B + 1), tag);
		break;
	}
}

/* Through the mapping of a file that is there from the beginning: a range, and what lies beside it. */
static void look_mapped(int k, uint64_t offset, uint64_t length)
{
	const uint64_t beside = 2 * sysconf(_SC_PAGESIZE), from = offset > beside ? offset - beside : 0;

	file_verify_mapping(&files[k], maps[k], from, offset + length + beside - from, "random calls");
}

static void look_at_all(const char *when)
{
	int k;

	for (k = 0; k < FILES; k++) {
		file_verify(&files[k], when);
		file_verify_mapping(&files[k], maps[k], 0, BLOCKS * B, when);
	}
}

/* Returns what the call has said, after looking at both files. */
static int random_relink(int t, unsigned long operation)
{
	const int d = (t + 1 + below(FILES - 1)) % FILES;
	struct ext4_relink r = some_relink(&files[t], &files[d]);
	const int want = expected(&files[t], &files[d], &r);
	bool *allocated = relink_map(&files[d], r.donor_offset, r.length);
	const int err = relink_call(files[t].fd, &r);

	check(err == want, "operation %lu: error %d, not %d (offsets %lu, %lu, length %lu, size %lu, flags %#x)", operation,
	      err, want, (unsigned long)r.donor_offset, (unsigned long)r.target_offset, (unsigned long)r.length,
	      (unsigned long)r.new_size, r.flags);
	if (!err)
		relink_model(&files[t], &files[d], &r, allocated);
	free(allocated);
	look_mapped(t, r.target_offset, r.length);
	look_mapped(d, r.donor_offset, r.length);
	file_verify(&files[t], "random calls");
	return err;
}

static void random_calls(void)
{
	static const char *const names[FILES] = {"a", "b", "c", "d"};
	unsigned long i, relinks = 0, refusals = 0;
	int k, t, err;

	state = env.seed;
	for (k = 0; k < FILES; k++) {
		files[k] = file_new(names[k], BLOCKS * B);
		maps[k] = mmap(NULL, BLOCKS * B, PROT_READ, MAP_SHARED, files[k].fd, 0);
		check(maps[k] != MAP_FAILED, "mmap of %s", names[k]);
		file_write(&files[k], 0, (1 + below(BLOCKS)) * B, k);
	}
	for (i = 0; i < env.ops; i++) {
		t = below(FILES);
		if (below(3) == 0) {
			some_change(&files[t], i);
		} else {
			err = random_relink(t, i);
			relinks += !err;
			refusals += !!err;
		}
		if (i % 8 == 0)
			look_at_all("random calls");
	}
	note("seed %lu: %lu operations, %lu relinks, %lu refusals", (unsigned long)env.seed, env.ops, relinks, refusals);
	for (k = 0; k < FILES; k++)
		fsync(files[k].fd);
	look_at_all("at the end");
	for (k = 0; k < FILES; k++) {
		munmap(maps[k], BLOCKS * B);
		file_free(&files[k]);
	}
}

const struct test_case random_cases[] = {{"random_calls", random_calls}, {0}};
