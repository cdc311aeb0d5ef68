// SPDX-License-Identifier: GPL-2.0
/* What relink does to content, sizes and blocks. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "testlib.h"

#define B env.block

static void query(void)
{
	struct file f = file_new("target", B);
	struct ext4_relink r;
	int fd;

	memset(&r, 0xff, sizeof(r));
	r.flags = EXT4_RELINK_QUERY;
	check(relink_call(f.fd, &r) == 0, "query with anything in the other fields");
	check(r.version == EXT4_RELINK_VERSION, "version %u", r.version);
	check(r.known_flags == EXT4_RELINK_FLAGS, "flags %#x", r.known_flags);
	check(r.length == UINT64_MAX && r.donor_fd == -1, "query changed other fields");
	fd = open("target", O_RDONLY);
	r = (struct ext4_relink){.flags = EXT4_RELINK_QUERY};
	check(relink_call(fd, &r) == 0, "query on a descriptor for reading");
	fd = open(".", O_RDONLY);
	check(relink_call(fd, &r) == 0, "query on a directory");
}

/* Content goes, the donor has a hole and keeps its size, blocks are neither lost nor doubled. */
static void moves(uint64_t target_blocks, uint64_t at, uint64_t from, uint64_t blocks)
{
	struct file donor = file_new("donor", 64 * B), target = file_new("target", 256 * B);
	uint64_t size, replaced;
	struct ext4_relink r;

	file_write(&donor, 0, 64 * B, 1);
	if (target_blocks)
		file_write(&target, 0, target_blocks * B, 2);
	fsync(donor.fd);
	fsync(target.fd);
	size = donor.size;
	replaced = file_blocks(&target, at * B, blocks * B, false);
	r = relink_args(&donor, from * B, at * B, blocks * B);
	check(relink_checked(&target, &donor, &r) == 0, "relink of %lu blocks to block %lu", (unsigned long)blocks,
	      (unsigned long)at);
	check(r.moved == blocks * B, "moved %lu", (unsigned long)r.moved);
	check(r.extents_moved > 0, "no extent moved");
	check(!replaced == !r.extents_freed, "freed %u extents of %lu blocks", r.extents_freed, (unsigned long)replaced);
	check(donor.size == size, "the donor's size changed");
	check(file_blocks(&donor, from * B, blocks * B, false) == 0, "no hole in the donor");
	check(file_blocks(&donor, 0, 64 * B, false) == 64 - blocks, "the donor lost more than the range");
	check(file_blocks(&target, at * B, blocks * B, false) == blocks, "the target lacks blocks");
	fsync(target.fd);
	file_verify(&target, "after fsync");
	/* Both are ordinary files afterwards. */
	file_write(&donor, from * B, blocks * B, 3);
	file_write(&target, at * B, blocks * B, 4);
	file_verify(&donor, "written again");
	file_verify(&target, "written again");
	file_free(&donor);
	file_free(&target);
}

static void to_empty_file(void)
{
	moves(0, 0, 0, 64);
}

static void append_at_eof(void)
{
	moves(16, 16, 8, 1);
}

static void replace_inside(void)
{
	moves(64, 16, 8, 24);
}

static void across_eof(void)
{
	moves(20, 10, 3, 40);
}

static void beyond_eof(void)
{
	moves(3, 100, 0, 10);
}

static void whole_target(void)
{
	moves(64, 0, 0, 64);
}

static void one_block_each(void)
{
	moves(64, 0, 63, 1);
	moves(64, 63, 0, 1);
}

/* Stores to the rest of the page that the end of the file is in: nobody may ever see them. */
static void store_behind_end(const struct file *f)
{
	uint64_t page = sysconf(_SC_PAGESIZE), start = f->size / page * page;
	uint8_t *map = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, start);

	check(map != MAP_FAILED, "mmap");
	memset(map + (f->size - start), 0xdd, page - (f->size - start));
	munmap(map, page);
}

/* What lies between an odd end of file and the new data is zero, even if somebody stored there. */
static void beyond_odd_eof(void)
{
	struct file donor = file_new("donor", 4 * B), target = file_new("target", 16 * B);
	struct ext4_relink r;

	file_write(&donor, 0, 4 * B, 1);
	file_write(&target, 0, 3 * B, 2);
	file_truncate(&target, 2 * B + 100);
	store_behind_end(&target);
	r = relink_args(&donor, 0, 8 * B, 4 * B);
	check(relink_checked(&target, &donor, &r) == 0, "relink");
	check(target.size == 12 * B, "size");
}

/* The same where the file grows, but not by the range. */
static void size_behind_odd_eof(void)
{
	struct file donor = file_new("donor", 4 * B), target = file_new("target", 32 * B);
	struct ext4_relink r;

	file_write(&donor, 0, 4 * B, 1);
	file_write(&target, 0, 10 * B + 5, 2);
	store_behind_end(&target);
	r = relink_args(&donor, 0, B, 2 * B);
	r.new_size = 20 * B;
	check(relink_checked(&target, &donor, &r) == 0, "relink");
	check(target.size == 20 * B, "size");
}

/* The same where the range covers the end, but the donor has a hole there. */
static void hole_over_odd_eof(void)
{
	struct file donor = file_new("donor", 4 * B), target = file_new("target", 16 * B);
	struct ext4_relink r;

	file_write(&donor, 0, 4 * B, 1);
	file_punch(&donor, 0, 2 * B);
	file_write(&target, 0, 3 * B + 100, 2);
	store_behind_end(&target);
	r = relink_args(&donor, 0, 3 * B, 4 * B);
	r.flags = EXT4_RELINK_SKIP_HOLES;
	check(relink_checked(&target, &donor, &r) == 0, "relink");
	check(target.size == 7 * B, "size");
}

/* Nothing has been written back yet, in neither file: what was written is what moves. */
static void dirty_pages(void)
{
	struct file donor = file_new("donor", 64 * B), target = file_new("target", 64 * B);
	struct ext4_relink r;

	file_write(&donor, 0, 64 * B, 1);
	file_write(&target, 0, 40 * B, 2);
	r = relink_args(&donor, 3 * B, 11 * B, 50 * B);
	/* Not by relink_checked(): asking for the donor's extents would write it back. */
	check(relink_call(target.fd, &r) == 0, "relink");
	relink_model(&target, &donor, &r, NULL);
	file_verify(&target, "after relink");
	file_verify(&donor, "after relink");
	fsync(target.fd);
	file_verify(&target, "after fsync");
}

static void hole_in_target(void)
{
	struct file donor = file_new("donor", 8 * B), target = file_new("target", 64 * B);
	struct ext4_relink r;

	file_write(&donor, 0, 8 * B, 1);
	file_truncate(&target, 64 * B);
	r = relink_args(&donor, 2 * B, 30 * B, 3 * B);
	r.new_size = 0; /* smaller than it is: no matter */
	check(relink_checked(&target, &donor, &r) == 0, "relink");
	check(file_blocks(&target, 0, 64 * B, false) == 3, "more than three blocks");
}

/* Unwritten blocks stay unwritten: they read as zeros, whatever they hold. */
static void unwritten(void)
{
	struct file donor = file_new("donor", 160 * B), target = file_new("target", 160 * B);
	uint64_t unwritten_blocks;
	struct ext4_relink r;

	file_allocate(&donor, 0, 160 * B);
	file_write(&donor, 4 * B, 4 * B, 1);
	file_write(&target, 0, 16 * B, 2);
	fsync(donor.fd);
	unwritten_blocks = file_blocks(&donor, 0, 120 * B, true); /* small ones ext4 zeroes instead */
	check(unwritten_blocks > 0, "no unwritten block in the donor");
	r = relink_args(&donor, 0, 0, 120 * B);
	check(relink_checked(&target, &donor, &r) == 0, "relink");
	check(file_blocks(&target, 0, 120 * B, false) == 120, "blocks");
	check(file_blocks(&target, 0, 120 * B, true) == unwritten_blocks, "unwritten blocks");
	file_write(&target, 2 * B, 4 * B, 3);
	file_verify(&target, "unwritten blocks written");
}

static void with_holes(struct file *donor, struct file *target)
{
	*donor = file_new("donor", 16 * B);
	*target = file_new("target", 16 * B);
	file_write(donor, 0, 16 * B, 1);
	file_punch(donor, 0, 2 * B);
	file_punch(donor, 5 * B, 3 * B);
	file_punch(donor, 15 * B, B);
	file_write(target, 0, 16 * B, 2);
}

/* By default the target gets what the donor has, holes included. */
static void holes_move(void)
{
	struct file donor, target;
	struct ext4_relink r;

	with_holes(&donor, &target);
	r = relink_args(&donor, 0, 0, 16 * B);
	check(relink_checked(&target, &donor, &r) == 0, "relink");
	check(file_blocks(&target, 0, 16 * B, false) == 10, "blocks");
	check(file_blocks(&target, 5 * B, 3 * B, false) == 0, "the hole was not moved");
}

/* With SKIP_HOLES the target keeps what it has, and the second call does nothing. */
static void holes_skipped(void)
{
	struct file donor, target;
	struct ext4_relink r;

	with_holes(&donor, &target);
	r = relink_args(&donor, 0, 0, 16 * B);
	r.flags = EXT4_RELINK_SKIP_HOLES;
	check(relink_checked(&target, &donor, &r) == 0, "relink");
	check(file_blocks(&target, 0, 16 * B, false) == 16, "blocks");
	r.flags = EXT4_RELINK_SKIP_HOLES;
	check(relink_checked(&target, &donor, &r) == 0, "the same again");
	check(r.extents_moved == 0 && r.extents_freed == 0, "the second call moved something");
	check(r.moved == 16 * B, "moved %lu", (unsigned long)r.moved);
}

/* A hole in all of the range, and a size: nothing but the size. */
static void nothing_but_size(void)
{
	struct file donor = file_new("donor", 16 * B), target = file_new("target", 64 * B);
	struct ext4_relink r;

	file_truncate(&donor, 16 * B);
	file_write(&target, 0, 3 * B, 1);
	r = relink_args(&donor, 0, 0, 16 * B);
	r.flags = EXT4_RELINK_SKIP_HOLES;
	r.new_size = 50 * B + 7;
	check(relink_checked(&target, &donor, &r) == 0, "relink");
	check(target.size == 50 * B + 7, "size");
}

/* A length that ends within a block: the rest of the block is zero, however the file grows. */
static void odd_length(uint64_t length, bool donor_goes_on)
{
	struct file donor = file_new("donor", 8 * B), target = file_new("target", 16 * B);
	struct ext4_relink r;

	file_write(&donor, 0, donor_goes_on ? 8 * B : length, 1);
	file_write(&target, 0, 2 * B, 2);
	r = relink_args(&donor, 0, 2 * B, length);
	check(relink_checked(&target, &donor, &r) == 0, "relink of %lu bytes", (unsigned long)length);
	check(r.moved == length, "moved %lu", (unsigned long)r.moved);
	check(target.size == 2 * B + length, "size");
	file_truncate(&target, 16 * B);
	file_verify(&target, "grown by truncate");
	file_write(&target, 12 * B, B, 3);
	file_verify(&target, "grown by a write");
	file_free(&donor);
	file_free(&target);
}

static void odd_lengths(void)
{
	odd_length(1, true);
	odd_length(300, false); /* less might be inline */
	odd_length(B - 1, true);
	odd_length(3 * B + 17, true);
	odd_length(3 * B + 17, false);
}

/* The same when the end of the donor was stored through a mapping. */
static void odd_length_of_stores(void)
{
	struct file donor = file_new("donor", 4 * B), target = file_new("target", 16 * B);
	struct ext4_relink r;

	file_write(&donor, 0, 4 * B, 1);
	fsync(donor.fd);
	file_store(&donor, 0, 4 * B, 2);
	r = relink_args(&donor, 0, 0, B + B / 2);
	check(relink_checked(&target, &donor, &r) == 0, "relink");
	file_truncate(&target, 16 * B);
	file_verify(&target, "grown");
}

/* Only the end of a file may be odd; what is not moved keeps its content. */
static void odd_length_replaces_end(void)
{
	struct file donor = file_new("donor", 8 * B), target = file_new("target", 16 * B);
	struct ext4_relink r;

	file_write(&donor, 0, 8 * B, 1);
	file_write(&target, 0, 6 * B + 10, 2);
	r = relink_args(&donor, 0, 4 * B, 2 * B + 10);
	check(relink_checked(&target, &donor, &r) == 0, "relink to exactly the end");
	file_truncate(&target, 16 * B);
	file_verify(&target, "grown");
}

static void keep_size(void)
{
	struct file donor = file_new("donor", 8 * B), target = file_new("target", 16 * B);
	struct ext4_relink r;

	file_write(&donor, 0, 8 * B, 1);
	file_write(&target, 0, 10 * B, 2);
	r = relink_args(&donor, 0, 2 * B, 8 * B);
	r.flags = EXT4_RELINK_KEEP_SIZE;
	r.new_size = 0;
	check(relink_checked(&target, &donor, &r) == 0, "relink");
	check(target.size == 10 * B, "size");
}

static void larger_new_size(void)
{
	struct file donor = file_new("donor", 8 * B), target = file_new("target", 64 * B);
	struct ext4_relink r;

	file_write(&donor, 0, 8 * B, 1);
	r = relink_args(&donor, 0, 0, 8 * B);
	r.new_size = 40 * B + 3;
	check(relink_checked(&target, &donor, &r) == 0, "relink");
	check(target.size == 40 * B + 3, "size");
	check(file_blocks(&target, 0, 64 * B, false) == 8, "blocks");
}

static void times_change(void)
{
	struct file donor = file_new("donor", B), target = file_new("target", 4 * B);
	struct stat donor_before, target_before, after;
	struct timespec pause = {.tv_nsec = 50000000};
	struct ext4_relink r;

	file_write(&donor, 0, B, 1);
	donor_before = file_stat(&donor);
	target_before = file_stat(&target);
	nanosleep(&pause, NULL);
	r = relink_args(&donor, 0, 0, B);
	check(relink_checked(&target, &donor, &r) == 0, "relink");
#define LATER(a, b) ((a).tv_sec > (b).tv_sec || ((a).tv_sec == (b).tv_sec && (a).tv_nsec > (b).tv_nsec))
	after = file_stat(&target);
	check(LATER(after.st_mtim, target_before.st_mtim) && LATER(after.st_ctim, target_before.st_ctim), "the target's times");
	after = file_stat(&donor);
	check(LATER(after.st_mtim, donor_before.st_mtim) && LATER(after.st_ctim, donor_before.st_ctim), "the donor's times");
}

/* Whoever may not keep set-user-ID over a write doesn't keep it over a relink. */
static void privileges_go(void)
{
	struct file donor = file_new("donor", B), target = file_new("target", B);
	struct ext4_relink r;

	if (geteuid())
		skip("needs root");
	file_write(&donor, 0, B, 1);
	check(fchown(target.fd, 1000, 1000) == 0 && fchmod(target.fd, 04755) == 0, "set-user-ID");
	check(seteuid(1000) == 0, "seteuid");
	r = relink_args(&donor, 0, 0, B);
	check(relink_call(target.fd, &r) == 0, "relink");
	check(seteuid(0) == 0, "seteuid");
	check(!(file_stat(&target).st_mode & 06000), "mode %o", file_stat(&target).st_mode);
}

static void synchronous(void)
{
	struct file donor = file_new("donor", 16 * B), target = file_new("target", 16 * B);
	struct ext4_relink r;

	file_write(&donor, 0, 16 * B, 1);
	r = relink_args(&donor, 0, 0, 8 * B);
	r.flags = EXT4_RELINK_SYNC;
	check(relink_checked(&target, &donor, &r) == 0, "with SYNC");
	r = relink_args(&donor, 8 * B, 8 * B, 8 * B);
	r.flags = EXT4_RELINK_DATA_PERSISTENT;
	check(relink_checked(&target, &donor, &r) == 0, "with DATA_PERSISTENT");
}

static void unlinked_files(void)
{
	struct file donor = file_new("donor", 8 * B), target = file_new("target", 8 * B);
	struct ext4_relink r;
	int fd;

	file_write(&donor, 0, 8 * B, 1);
	fd = open("target", O_WRONLY);
	r = relink_args(&donor, 0, 0, 4 * B);
	check(fd >= 0 && relink_call(fd, &r) == 0, "a target opened with O_WRONLY");
	check(unlink("donor") == 0 && unlink("target") == 0, "unlink");
	r = relink_args(&donor, 4 * B, 4 * B, 4 * B);
	check(relink_call(target.fd, &r) == 0, "files without a name");
	check(file_stat(&target).st_size == (off_t)(8 * B), "size");
}

#define TRACING "/sys/kernel/tracing/"

static void trace_switch(const char *file, const char *value)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), TRACING "%s", file);
	fd = open(path, O_WRONLY | O_TRUNC);
	check(fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value), "%s", path);
	close(fd);
}

/* The tracepoints say what was asked for and what was done. */
static void traced(void)
{
	struct file donor = file_new("donor", 8 * B), target = file_new("target", 8 * B);
	struct ext4_relink r = relink_args(&donor, 2 * B, 0, 4 * B);
	static char text[64 * KIB];
	char enter[200], leave[200];
	ssize_t n, got = 0;
	int fd;

	if (geteuid())
		skip("needs root");
	if (access(TRACING "events", F_OK))
		check(mount("tracefs", TRACING, "tracefs", 0, NULL) == 0, "tracefs");
	file_write(&donor, 0, 8 * B, 1);
	trace_switch("trace", "\n");
	trace_switch("events/ext4_splitfs/ext4_relink_enter/enable", "1");
	trace_switch("events/ext4_splitfs/ext4_relink_exit/enable", "1");
	check(relink_checked(&target, &donor, &r) == 0, "relink");
	trace_switch("events/ext4_splitfs/ext4_relink_enter/enable", "0");
	trace_switch("events/ext4_splitfs/ext4_relink_exit/enable", "0");
	fd = open(TRACING "trace", O_RDONLY);
	while (fd >= 0 && (n = read(fd, text + got, sizeof(text) - 1 - got)) > 0)
		got += n;
	snprintf(enter, sizeof(enter), "ino %lu offset 0 donor %lu offset %lu len %lu flags 0", file_stat(&target).st_ino,
		 file_stat(&donor).st_ino, 2 * B, 4 * B);
	snprintf(leave, sizeof(leave), "ino %lu donor %lu moved %lu extents %u freed 0 ret 0", file_stat(&target).st_ino,
		 file_stat(&donor).st_ino, 4 * B, r.extents_moved);
	check(strstr(text, enter), "no '%s' in:\n%s", enter, text);
	check(strstr(text, leave), "no '%s' in:\n%s", leave, text);
}

/* 16 pieces of 2 MiB, moved one by one to the other end of the target and back again. */
static void there_and_back(void)
{
	struct file a = file_new("a", 32 * MIB), b = file_new("b", 32 * MIB);
	struct ext4_relink r;
	unsigned int i;

	file_write(&a, 0, 32 * MIB, 1);
	fsync(a.fd);
	for (i = 0; i < 16; i++) {
		r = relink_args(&a, i * 2 * MIB, (15 - i) * 2 * MIB, 2 * MIB);
		check(relink_call(b.fd, &r) == 0, "piece %u", i);
		relink_model(&b, &a, &r, NULL);
	}
	file_verify(&a, "there");
	file_verify(&b, "there");
	for (i = 0; i < 16; i++) {
		r = relink_args(&b, i * 2 * MIB, (15 - i) * 2 * MIB, 2 * MIB);
		check(relink_call(a.fd, &r) == 0, "piece %u back", i);
		relink_model(&a, &b, &r, NULL);
	}
	file_verify(&a, "back");
	file_verify(&b, "back");
}

static void large(void)
{
	struct file donor = file_new("donor", 128 * MIB), target = file_new("target", 128 * MIB);
	struct timespec t0, t1;
	struct ext4_relink r;

	file_write(&donor, 0, 128 * MIB, 1);
	fsync(donor.fd);
	r = relink_args(&donor, 0, 0, 128 * MIB);
	clock_gettime(CLOCK_MONOTONIC, &t0);
	check(relink_call(target.fd, &r) == 0, "relink of 128 MiB");
	clock_gettime(CLOCK_MONOTONIC, &t1);
	note("128 MiB in %u extents: %ld us", r.extents_moved,
	     (t1.tv_sec - t0.tv_sec) * 1000000 + (t1.tv_nsec - t0.tv_nsec) / 1000);
	relink_model(&target, &donor, &r, NULL);
	file_verify(&target, "moved");
	file_verify(&donor, "moved");
}

const struct test_case semantics_cases[] = {
	{"query", query},
	{"to_empty_file", to_empty_file},
	{"append_at_eof", append_at_eof},
	{"replace_inside", replace_inside},
	{"across_eof", across_eof},
	{"beyond_eof", beyond_eof},
	{"whole_target", whole_target},
	{"one_block_each", one_block_each},
	{"beyond_odd_eof", beyond_odd_eof},
	{"hole_over_odd_eof", hole_over_odd_eof},
	{"size_behind_odd_eof", size_behind_odd_eof},
	{"dirty_pages", dirty_pages},
	{"hole_in_target", hole_in_target},
	{"unwritten", unwritten},
	{"holes_move", holes_move},
	{"holes_skipped", holes_skipped},
	{"nothing_but_size", nothing_but_size},
	{"odd_lengths", odd_lengths},
	{"odd_length_of_stores", odd_length_of_stores},
	{"odd_length_replaces_end", odd_length_replaces_end},
	{"keep_size", keep_size},
	{"larger_new_size", larger_new_size},
	{"times_change", times_change},
	{"privileges_go", privileges_go},
	{"synchronous", synchronous},
	{"unlinked_files", unlinked_files},
	{"traced", traced},
	{"there_and_back", there_and_back},
	{"large", large},
	{0},
};
