// SPDX-License-Identifier: GPL-2.0
/* Mappings: what they show after a relink, what they must not reach, and what they cost. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "testlib.h"

#define B    env.block
#define HUGE (2 * MIB)

static uint8_t *map_file(const struct file *f, uint64_t length, int protection, int flags)
{
	uint8_t *map = mmap(NULL, length, protection, flags, f->fd, 0);

	check(map != MAP_FAILED, "mmap of %s", f->name);
	return map;
}

/* Where 2 MiB of the file are 2 MiB of the address space. */
static uint8_t *map_huge(const struct file *f, uint64_t length, int flags)
{
	uint8_t *space = mmap(NULL, length + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *at = (uint8_t *)(((uintptr_t)space + HUGE - 1) & ~(HUGE - 1));

	check(space != MAP_FAILED, "no addresses");
	at = mmap(at, length, PROT_READ | PROT_WRITE, flags | MAP_FIXED, f->fd, 0);
	check(at != MAP_FAILED, "mmap of %s", f->name);
	return at;
}

static long faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt + usage.ru_majflt;
}

static long faults_of_reading(const uint8_t *map, uint64_t length)
{
	long before = faults();
	uint64_t i;

	for (i = 0; i < length; i += 4096)
		(void)*(volatile const uint8_t *)(map + i);
	return faults() - before;
}

/* Mappings made before the call show what the files are afterwards. */
static void old_mappings_show_the_files(void)
{
	struct file donor = file_new("donor", 16 * MIB), target = file_new("target", 16 * MIB);
	uint64_t offsets[] = {0, 5 * 64 * KIB, 4 * MIB, 6 * MIB + 64 * KIB},
		 lengths[] = {64 * KIB, 192 * KIB, 2 * MIB, 3 * MIB};
	uint8_t *donor_map, *target_map;
	struct ext4_relink r;
	bool *allocated;
	unsigned int i;

	file_write(&donor, 0, 16 * MIB, 1);
	file_write(&target, 0, 16 * MIB, 2);
	donor_map = map_huge(&donor, 16 * MIB, MAP_SHARED);
	target_map = map_huge(&target, 16 * MIB, MAP_SHARED);
	faults_of_reading(donor_map, 16 * MIB);
	for (i = 0; i < 16 * MIB; i += 8192)
		target_map[i] = target.bytes[i] = 0xee;
	for (i = 0; i < 4; i++) {
		r = relink_args(&donor, offsets[i], 16 * MIB - offsets[i] - lengths[i], lengths[i]);
		allocated = relink_map(&donor, r.donor_offset, r.length);
		check(relink_call(target.fd, &r) == 0, "relink %u", i);
		relink_model(&target, &donor, &r, allocated);
		free(allocated);
		check(!memcmp(target_map, target.bytes, 16 * MIB), "the target's mapping after relink %u", i);
		check(!memcmp(donor_map, donor.bytes, 16 * MIB), "the donor's mapping after relink %u", i);
	}
	/* Stores go where they belong. */
	for (i = 0; i < 16 * MIB; i += 64 * KIB) {
		donor_map[i] = donor.bytes[i] = 0x11;
		target_map[i + 1] = target.bytes[i + 1] = 0x22;
	}
	file_verify(&target, "stored to");
	file_verify(&donor, "stored to");
	fsync(donor.fd);
	fsync(target.fd);
	check(!memcmp(target_map, target.bytes, 16 * MIB), "the target's mapping at the end");
	check(!memcmp(donor_map, donor.bytes, 16 * MIB), "the donor's mapping at the end");
}

/* Private copies are the process's own. */
/*
 * Of an extent of a few unwritten blocks ext4 makes written ones when the first is written to. What shows zeros by then has to
 * show what is written later. Nothing of relink, but found by its tests.
 */
static void zeroed_out_blocks_show(void)
{
	struct file f = file_new("zeroed", 8 * B);
	uint8_t *map;
	unsigned int i;

	if (!env.dax)
		skip("DAX only");
	file_allocate(&f, 0, 8 * B);
	map = map_file(&f, 8 * B, PROT_READ, MAP_SHARED);
	faults_of_reading(map, 8 * B);
	for (i = 0; i < 8; i++)
		file_write(&f, i * B, B, i + 1);
	for (i = 0; i < 8; i++)
		check(!memcmp(map + i * B, f.bytes + i * B, B), "block %u of a mapping is not what was written", i);
	file_verify(&f, "at the end");
}

/* Input and output that never ends must not keep a relink, and with it all who write to the files, for ever. */
static void pinned_pages(void)
{
	struct file donor = file_new("donor", 16 * B), target = file_new("target", 16 * B);
	struct ext4_relink r;
	struct timespec begin, end;
	struct iovec page;
	uint8_t byte[4096];
	int pipes[2], err;
	uint8_t *map;

	if (!env.dax)
		skip("DAX only");
	file_write(&donor, 0, 16 * B, 1);
	file_write(&target, 0, 8 * B, 2);
	map = map_file(&donor, 16 * B, PROT_READ | PROT_WRITE, MAP_SHARED);
	faults_of_reading(map, 16 * B);
	check(pipe(pipes) == 0, "pipe");
	page = (struct iovec){map + 4 * B, 4096};
	check(vmsplice(pipes[1], &page, 1, 0) == 4096, "vmsplice");
	r = relink_args(&donor, 0, 0, 16 * B);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	err = relink_checked(&target, &donor, &r);
	clock_gettime(CLOCK_MONOTONIC, &end);
	check(err == EAGAIN, "a page is pinned: error %d", err);
	check(end.tv_sec - begin.tv_sec < 5, "waited for %ld s", (long)(end.tv_sec - begin.tv_sec));
	r = relink_args(&donor, 8 * B, 8 * B, 8 * B);
	check(relink_checked(&target, &donor, &r) == 0, "beside the pinned page");
	check(read(pipes[0], byte, sizeof(byte)) == (ssize_t)sizeof(byte), "read");
	r = relink_args(&donor, 0, 0, 8 * B);
	check(relink_checked(&target, &donor, &r) == 0, "the page is free again");
}

static void private_copies_stay(void)
{
	struct file donor = file_new("donor", MIB), target = file_new("target", MIB);
	struct ext4_relink r;
	uint8_t *map;

	file_write(&donor, 0, MIB, 1);
	map = map_file(&donor, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	map[0] = 0xaa;
	(void)*(volatile uint8_t *)(map + 4096);
	r = relink_args(&donor, 0, 0, MIB);
	check(relink_checked(&target, &donor, &r) == 0, "relink");
	check(map[0] == 0xaa && map[1] == target.bytes[1], "the private page is gone");
	check(map[4096] == 0, "the page that was not copied shows the target's block");
}

static sigjmp_buf bus;

static void on_bus(int signal)
{
	(void)signal;
	siglongjmp(bus, 1);
}

/*
 * A process keeps a mapping of the donor while its blocks go to the target, the target is removed and other files get the blocks.
 * None of its stores may arrive there.
 */
static void stale(uint64_t page_size)
{
	enum { LENGTH = 8 * MIB, FILES = 512 };
	struct file donor = file_new("donor", LENGTH), target = file_new("target", LENGTH);
	struct file victims[FILES];
	unsigned int n = 0, i;
	volatile unsigned int stored = 0, refused = 0;
	volatile uint64_t at;
	struct ext4_relink r;
	uint8_t *map;
	uint64_t bad = 0, k, size;

	file_write(&donor, 0, LENGTH, 1);
	fsync(donor.fd);
	map = page_size == HUGE ? map_huge(&donor, LENGTH, MAP_SHARED)
				: map_file(&donor, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED);
	madvise(map, LENGTH, page_size == HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	for (k = 0; k < LENGTH; k += 4096)
		map[k] = 0x44;
	r = relink_args(&donor, 0, 0, LENGTH);
	check(relink_call(target.fd, &r) == 0, "relink");
	file_free(&target);
	sync(); /* the blocks can be had now */
	for (size = LENGTH; size >= 64 * KIB && n < FILES;) {
		struct file *v = &victims[n];

		*v = file_new("victim", 1);
		unlink("victim");
		if (fallocate(v->fd, 0, 0, size)) {
			close(v->fd);
			size /= 2;
			continue;
		}
		free(v->bytes);
		v->bytes = map_file(v, size, PROT_READ | PROT_WRITE, MAP_SHARED);
		v->size = size;
		memset(v->bytes, 0x11, size);
		n++;
	}
	check(n > 0, "no room for other files");
	signal(SIGBUS, on_bus);
	for (at = 0; at < LENGTH; at += 4096) {
		if (sigsetjmp(bus, 1) == 0) {
			map[at] = 0x66;
			stored++;
		} else {
			refused++; /* full file system: a hole cannot be filled */
		}
	}
	for (i = 0; i < n; i++)
		for (k = 0; k < victims[i].size; k++)
			bad += victims[i].bytes[k] != 0x11;
	note("%u files, %u stores done, %u not: %lu bytes of others changed", n, stored, refused, (unsigned long)bad);
	check(bad == 0, "stores through the old mapping reached other files");
}

static void stale_small_pages(void)
{
	stale(4096);
}

static void stale_huge_pages(void)
{
	stale(HUGE);
}

/* The donor's old mapping reads zeros and writes to blocks of its own. */
static void donor_mapping_is_a_hole(void)
{
	struct file donor = file_new("donor", 4 * MIB), target = file_new("target", 4 * MIB);
	struct ext4_relink r;
	uint8_t *map;
	uint64_t i;

	file_write(&donor, 0, 4 * MIB, 1);
	map = map_huge(&donor, 4 * MIB, MAP_SHARED);
	for (i = 0; i < 4 * MIB; i += 4096)
		map[i] = 0xaa;
	r = relink_args(&donor, MIB, 0, MIB);
	check(relink_call(target.fd, &r) == 0, "relink");
	for (i = MIB; i < 2 * MIB; i++)
		check(map[i] == 0, "byte %lu is %02x", (unsigned long)i, map[i]);
	memset(map + MIB, 0xbb, MIB);
	check(file_blocks(&donor, MIB, MIB, false) == MIB / B, "the hole was not filled");
	for (i = 0; i < MIB; i++)
		target.bytes[i] = i % 4096 ? donor.bytes[MIB + i] : 0xaa;
	target.size = MIB;
	file_verify(&target, "after stores to the donor");
}

/* True if all of the file lies in pieces of 2 MiB that are aligned in the file and on the device. */
static bool lies_in_huge_pages(const struct file *f, uint64_t length)
{
	struct fiemap *map = calloc(1, sizeof(*map) + 64 * sizeof(map->fm_extents[0]));
	bool aligned = true;
	unsigned int i;

	map->fm_length = length;
	map->fm_extent_count = 64;
	check(ioctl(f->fd, FS_IOC_FIEMAP, map) == 0, "FIEMAP");
	for (i = 0; i < map->fm_mapped_extents; i++)
		aligned &= !((map->fm_extents[i].fe_physical ^ map->fm_extents[i].fe_logical) & (HUGE - 1));
	aligned &= map->fm_mapped_extents > 0;
	free(map);
	return aligned;
}

/* 2 MiB that are aligned on both sides are one fault before and after. */
static void huge_faults(void)
{
	enum { LENGTH = 32 * MIB };
	struct file donor = file_new("donor", LENGTH), target = file_new("target", LENGTH);
	uint8_t *donor_map, *target_map;
	struct ext4_relink r;
	long before, after;

	if (!env.dax)
		skip("DAX only");
	check(fallocate(donor.fd, 0, 0, LENGTH) == 0, "fallocate");
	file_write(&donor, 0, LENGTH, 1);
	if (!lies_in_huge_pages(&donor, LENGTH))
		skip("the file system has no aligned 2 MiB to give (mke2fs -E stride=512,stripe_width=512 helps)");
	donor_map = map_huge(&donor, LENGTH, MAP_SHARED);
	before = faults_of_reading(donor_map, LENGTH);
	check(before <= LENGTH / (long)HUGE + 2, "%ld faults before, huge pages don't work here", before);
	/* The target is mapped from the start, as the library does it. */
	target_map = map_huge(&target, LENGTH, MAP_SHARED);
	for (r.target_offset = 0; r.target_offset < LENGTH; r.target_offset += 4 * MIB) {
		r = relink_args(&donor, r.target_offset, r.target_offset, 4 * MIB);
		check(relink_call(target.fd, &r) == 0, "relink");
	}
	check(lies_in_huge_pages(&target, LENGTH), "the target is not aligned");
	after = faults_of_reading(target_map, LENGTH);
	note("%d MiB: %ld faults in the donor before, %ld in the target after", (int)(LENGTH / MIB), before, after);
	check(after <= LENGTH / (long)HUGE + 2, "%ld faults", after);
	check(!memcmp(target_map, donor.bytes, LENGTH), "content");
	before = faults();
	memset(target_map, 1, LENGTH);
	check(faults() - before <= LENGTH / (long)HUGE + 2, "%ld faults of writing", faults() - before);
}

/* Replaced 2 MiB that were mapped huge are huge again. */
static void huge_faults_after_replacing(void)
{
	enum { LENGTH = 16 * MIB };
	struct file donor = file_new("donor", LENGTH), target = file_new("target", LENGTH);
	struct ext4_relink r;
	uint8_t *map;
	long n;

	if (!env.dax)
		skip("DAX only");
	check(fallocate(donor.fd, 0, 0, LENGTH) == 0 && fallocate(target.fd, 0, 0, LENGTH) == 0, "fallocate");
	file_write(&donor, 0, LENGTH, 1);
	file_write(&target, 0, LENGTH, 2);
	if (!lies_in_huge_pages(&donor, LENGTH) || !lies_in_huge_pages(&target, LENGTH))
		skip("the file system has no aligned 2 MiB to give");
	map = map_huge(&target, LENGTH, MAP_SHARED);
	memset(map, 3, LENGTH);
	r = relink_args(&donor, 0, 4 * MIB, 8 * MIB);
	check(relink_call(target.fd, &r) == 0, "relink");
	n = faults_of_reading(map + 4 * MIB, 8 * MIB);
	note("%ld faults for 8 MiB that were replaced", n);
	check(n <= 4 + 1, "%ld faults", n);
	n = faults_of_reading(map, 4 * MIB) + faults_of_reading(map + 12 * MIB, 4 * MIB);
	note("%ld faults for 8 MiB beside it", n);
	check(n == 0, "neighbours lost their mappings");
}

/* MAP_SYNC mappings of both, as the library has them; the data is not written back by the call. */
static void synchronous_mappings(void)
{
	struct file donor = file_new("donor", 4 * MIB), target = file_new("target", 4 * MIB);
	struct ext4_relink r;
	uint8_t *map, *seen;

	if (!env.dax)
		skip("DAX only");
	file_write(&donor, 0, 4 * MIB, 1);
	map = map_file(&donor, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC);
	seen = map_file(&target, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC);
	for (uint64_t at = 0; at < 4 * MIB; at += 64 * KIB) {
		memset(map + at, 0x5a, 64 * KIB);
		r = relink_args(&donor, at, at, 64 * KIB);
		r.flags = EXT4_RELINK_DATA_PERSISTENT;
		check(relink_call(target.fd, &r) == 0, "relink at %lu", (unsigned long)at);
		check(seen[at] == 0x5a && seen[at + 64 * KIB - 1] == 0x5a, "the new end of the target at %lu",
		      (unsigned long)at);
	}
	for (uint64_t at = 0; at < 4 * MIB; at++)
		check(seen[at] == 0x5a, "byte %lu", (unsigned long)at);
}

const struct test_case mapping_cases[] = {
	{"old_mappings_show_the_files", old_mappings_show_the_files},
	{"zeroed_out_blocks_show", zeroed_out_blocks_show},
	{"pinned_pages", pinned_pages},
	{"private_copies_stay", private_copies_stay},
	{"donor_mapping_is_a_hole", donor_mapping_is_a_hole},
	{"synchronous_mappings", synchronous_mappings},
	{"huge_faults", huge_faults},
	{"huge_faults_after_replacing", huge_faults_after_replacing},
	{"stale_small_pages", stale_small_pages},
	{"stale_huge_pages", stale_huge_pages},
	{0},
};
