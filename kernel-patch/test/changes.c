// SPDX-License-Identifier: GPL-2.0
/* EXT4_IOC_CHANGES: what it refuses, which units each way of changing a file marks, and how tracking ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "changes.h"
#include "space.h"

#ifndef FALLOC_FL_KEEP_SIZE
#include <linux/falloc.h>
#endif

#define UNITS 64UL
#define SIZE  (UNITS * UNIT)

struct move_extent {
	uint32_t reserved, donor_fd;
	uint64_t orig_start, donor_start, len, moved_len;
};
#define EXT4_IOC_MOVE_EXT  _IOWR('f', 15, struct move_extent)
#define EXT4_IOC_SWAP_BOOT _IO('f', 17)

int changes_call(int fd, unsigned int operation, struct ext4_changes *c)
{
	c->version = EXT4_CHANGES_VERSION;
	c->operation = operation;
	return ioctl(fd, EXT4_IOC_CHANGES, c) ? errno : 0;
}

void changes_start(int fd)
{
	struct ext4_changes c = {0};
	int err;

	if (geteuid() != 0)
		skip("needs root");
	err = changes_call(fd, EXT4_CHANGES_START, &c);
	check(err == 0, "START: %s", strerror(err));
}

int changes_take(int fd, void *map, unsigned long bytes, uint64_t *marked, unsigned long *units)
{
	struct ext4_changes c = {.map = (uintptr_t)map, .map_bytes = bytes};
	int err = changes_call(fd, EXT4_CHANGES_TAKE, &c);

	if (marked)
		*marked = c.marked;
	if (units)
		*units = c.units;
	return err;
}

int freeze(int fd)
{
	return ioctl(fd, FIFREEZE, 0) ? errno : 0;
}

int thaw(int fd)
{
	return ioctl(fd, FITHAW, 0) ? errno : 0;
}

/* The units of the file that have been marked are those from first on, and no others. */
static void marks(const struct file *f, unsigned long first, unsigned long count, const char *what)
{
	uint8_t map[UNITS / 8];
	uint64_t marked;
	int err = changes_take(f->fd, map, sizeof(map), &marked, NULL);

	check(err == 0, "%s: TAKE: %s", what, strerror(err));
	for (unsigned long unit = 0; unit < UNITS; unit++)
		check(changes_has(map, unit) == (unit >= first && unit < first + count), "%s: unit %lu of %s is%s marked", what,
		      unit, f->name, changes_has(map, unit) ? "" : " not");
	check(marked == count, "%s: %lu units are marked, it says", what, (unsigned long)marked);
	err = changes_take(f->fd, map, sizeof(map), &marked, NULL);
	check(err == 0 && marked == 0, "%s: after it was taken %lu units are marked", what, (unsigned long)marked);
}

/* A file of UNITS units that is tracked, and of which nothing is dirty. */
static struct file tracked(const char *name)
{
	struct file f = file_new(name, SIZE + UNIT);

	file_write(&f, 0, SIZE, 1);
	check(fsync(f.fd) == 0, "fsync");
	changes_start(f.fd);
	marks(&f, 0, 0, "begun");
	return f;
}

static void refuses(void)
{
	struct file f = file_new("target", SIZE);
	const int other = open("target", O_RDONLY), dir = open(".", O_RDONLY);
	struct ext4_changes c = {0};
	uint8_t map[UNITS / 8];
	uint64_t marked;

	if (geteuid() != 0)
		skip("needs root");
	file_write(&f, 0, SIZE, 1);
	check(seteuid(65534) == 0, "setuid");
	check(changes_call(f.fd, EXT4_CHANGES_START, &c) == EPERM, "without the right to");
	check(seteuid(0) == 0, "setuid");
	check(changes_call(f.fd, 0, &c) == EINVAL && changes_call(f.fd, 4, &c) == EINVAL, "no operation");
	c.version = EXT4_CHANGES_VERSION + 1;
	c.operation = EXT4_CHANGES_START;
	check(ioctl(f.fd, EXT4_IOC_CHANGES, &c) < 0 && errno == EINVAL, "a version of the future");
	for (int i = 0; i < 2; i++) {
		c = (struct ext4_changes){.reserved = {i, !i}};
		check(changes_call(f.fd, EXT4_CHANGES_START, &c) == EINVAL, "a reserved field");
	}
	c = (struct ext4_changes){0};
	check(changes_call(dir, EXT4_CHANGES_START, &c) == EINVAL, "a directory");
	check(ioctl(f.fd, EXT4_IOC_CHANGES, NULL) < 0 && errno == EFAULT, "a bad structure");
	check(changes_call(f.fd, EXT4_CHANGES_STOP, &c) == ENODATA, "STOP without START");
	check(changes_take(f.fd, map, sizeof(map), NULL, NULL) == ENODATA, "TAKE without START");

	check(changes_call(f.fd, EXT4_CHANGES_START, &c) == 0, "START");
	check(changes_call(f.fd, EXT4_CHANGES_START, &c) == EBUSY, "twice");
	check(changes_call(other, EXT4_CHANGES_START, &c) == EBUSY, "a second one");
	check(changes_take(other, map, sizeof(map), NULL, NULL) == ENODATA, "TAKE by another");
	check(changes_call(other, EXT4_CHANGES_STOP, &c) == ENODATA, "STOP by another");
	check(pwrite(f.fd, "x", 1, 5 * UNIT) == 1, "write");
	check(changes_take(f.fd, map, sizeof(map) - 1, NULL, NULL) == ERANGE, "a map that is too small");
	marks(&f, 5, 1, "after that");
	/* What has not arrived counts as changed, all of it. */
	check(changes_take(f.fd, (void *)16, sizeof(map), NULL, NULL) == EFAULT, "a bad map");
	marks(&f, 0, UNITS, "after a bad map");
	check(changes_call(f.fd, EXT4_CHANGES_STOP, &c) == 0, "STOP");
	check(changes_take(f.fd, map, sizeof(map), &marked, NULL) == ENODATA, "TAKE after STOP");
	check(changes_call(other, EXT4_CHANGES_START, &c) == 0, "the other one");
}

/* A unit is a page, and larger only where the map would have more than 2^20 of them. */
static void sizes(void)
{
	static const struct {
		uint64_t size, unit, units;
	} expected[] = {
		{0, UNIT, 1},
		{1, UNIT, 1},
		{UNIT, UNIT, 1},
		{UNIT + 1, UNIT, 2},
		{4096 * MIB, UNIT, 1 << 20},
		{4096 * MIB + 1, 2 * UNIT, (1 << 19) + 1},
		{65536 * MIB, 16 * UNIT, 1 << 20},
		{3 * 65536 * MIB + 5, 64 * UNIT, 3 * (1 << 18) + 1},
	};
	struct file f = file_new("target", UNIT);
	uint8_t *map = malloc(MIB);
	uint64_t marked;

	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
		struct ext4_changes c = {0};
		const uint64_t size = expected[i].size, last = expected[i].units - 1;

		check(ftruncate(f.fd, (off_t)size) == 0, "truncate to %lu", (unsigned long)size);
		changes_start(f.fd);
		c.map = (uintptr_t)map;
		c.map_bytes = (expected[i].units + 63) / 64 * 8;
		check(changes_call(f.fd, EXT4_CHANGES_TAKE, &c) == 0, "TAKE");
		check(c.unit == expected[i].unit && c.units == expected[i].units && c.marked == 0,
		      "%lu bytes: %lu units of %lu, %lu marked", (unsigned long)size, (unsigned long)c.units,
		      (unsigned long)c.unit, (unsigned long)c.marked);
		/* Truncation marks to the end, in whole words. */
		check(ftruncate(f.fd, size > 70 * UNIT ? 70 * (off_t)c.unit : 0) == 0, "truncate");
		check(changes_take(f.fd, map, c.map_bytes, &marked, NULL) == 0, "TAKE");
		check(marked == (last < 70 ? last + 1 : last - 69), "%lu of %lu units", (unsigned long)marked,
		      (unsigned long)c.units);
		check(changes_has(map, last), "the last unit");
		check(changes_call(f.fd, EXT4_CHANGES_STOP, &c) == 0, "STOP");
	}
}

static void writes(void)
{
	struct file f = tracked("target"), other = file_new("other", SIZE);
	const int direct = open("target", O_RDWR | O_DIRECT), append = open("target", O_WRONLY | O_APPEND);
	char *aligned = aligned_alloc(UNIT, 2 * UNIT);
	off_t from, to;
	struct stat st;
	int ends[2];

	check(direct >= 0 && append >= 0 && aligned && pipe(ends) == 0, "open");
	memset(aligned, 7, 2 * UNIT);
	file_write(&other, 0, SIZE, 2);

	check(pwrite(f.fd, "hello", 5, 3 * UNIT + 10) == 5, "write");
	marks(&f, 3, 1, "a write");
	check(pwrite(f.fd, "ab", 2, 5 * UNIT - 1) == 2, "write");
	marks(&f, 4, 2, "a write to two units");
	check(pwrite(direct, aligned, 2 * UNIT, 8 * UNIT) == 2 * UNIT, "direct write");
	marks(&f, 8, 2, "a direct write");
	check(write(ends[1], aligned, UNIT) == UNIT, "pipe");
	to = 62 * UNIT;
	check(splice(ends[0], NULL, f.fd, &to, UNIT, 0) == UNIT, "splice");
	marks(&f, 62, 1, "splice");
	from = 0;
	to = 10 * UNIT;
	check(copy_file_range(other.fd, &from, f.fd, &to, 2 * UNIT, 0) == 2 * UNIT, "copy_file_range");
	marks(&f, 10, 2, "copy_file_range");

	check(pread(f.fd, aligned, UNIT, 0) == UNIT && pread(direct, aligned, UNIT, 0) == UNIT, "read");
	from = UNIT;
	check(copy_file_range(f.fd, &from, other.fd, NULL, UNIT, 0) == UNIT, "copy_file_range from it");
	check(fchmod(f.fd, 0640) == 0 && futimens(f.fd, NULL) == 0 && fsync(f.fd) == 0 && fstat(f.fd, &st) == 0, "the rest");
	marks(&f, 0, 0, "what changes no byte");

	check(write(append, "behind", 6) == 6, "append");
	marks(&f, 0, 0, "behind the map");
	check(ftruncate(f.fd, 60 * UNIT + 5) == 0, "truncate");
	marks(&f, 60, 4, "truncation");
	check(ftruncate(f.fd, SIZE) == 0, "truncate");
	marks(&f, 60, 4, "truncation to more");
	check(ftruncate(f.fd, 60 * UNIT + 5) == 0, "truncate");
	marks(&f, 60, 4, "truncation");
	check(pwrite(f.fd, "x", 1, 62 * UNIT) == 1, "write");
	marks(&f, 60, 3, "a write behind the end");
}

static void allocations(void)
{
	struct file f = tracked("target");

	check(fallocate(f.fd, 0, 3 * UNIT, 20 * UNIT) == 0, "fallocate");
	check(fallocate(f.fd, FALLOC_FL_KEEP_SIZE, SIZE, UNIT) == 0, "fallocate");
	marks(&f, 0, 0, "allocation");
	check(fallocate(f.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 30 * UNIT + 1, UNIT) == 0, "punch");
	marks(&f, 30, 2, "a hole");
	check(fallocate(f.fd, 0, 30 * UNIT, 2 * UNIT) == 0, "fallocate");
	marks(&f, 0, 0, "its allocation");
	check(fallocate(f.fd, FALLOC_FL_ZERO_RANGE, 33 * UNIT, UNIT) == 0, "zero");
	marks(&f, 33, 1, "zeroing");
	check(fallocate(f.fd, FALLOC_FL_COLLAPSE_RANGE, 40 * UNIT, UNIT) == 0, "collapse: %s", strerror(errno));
	marks(&f, 40, 24, "collapsing");
	check(fallocate(f.fd, FALLOC_FL_INSERT_RANGE, 40 * UNIT, UNIT) == 0, "insert: %s", strerror(errno));
	marks(&f, 40, 24, "inserting");
	check(ftruncate(f.fd, 60 * UNIT) == 0, "truncate");
	marks(&f, 60, 4, "truncation");
	check(fallocate(f.fd, 0, 58 * UNIT, 4 * UNIT) == 0, "fallocate");
	marks(&f, 60, 2, "allocation behind the end");
	check(fallocate(f.fd, FALLOC_FL_ZERO_RANGE, 61 * UNIT, 2 * UNIT) == 0, "zero");
	marks(&f, 61, 2, "zeroing behind the end");
}

static uint8_t *map_of(const struct file *f, int protection, int flags)
{
	uint8_t *map = mmap(NULL, SIZE, protection, flags, f->fd, 0);

	check(map != MAP_FAILED, "mmap: %s", strerror(errno));
	return map;
}

/* One unit; or, in the page cache of kernels that have large folios there, all of the folio that it is in. */
static void marks_stored(const struct file *f, unsigned long unit, const char *what)
{
	uint8_t map[UNITS / 8];
	unsigned long first;
	uint64_t marked;

	if (env.dax) {
		marks(f, unit, 1, what);
		return;
	}
	check(changes_take(f->fd, map, sizeof(map), &marked, NULL) == 0, "%s: TAKE", what);
	check(marked && !(marked & (marked - 1)), "%s: %lu units are marked", what, (unsigned long)marked);
	first = unit & ~(marked - 1);
	for (unsigned long i = 0; i < UNITS; i++)
		check(changes_has(map, i) == (i >= first && i < first + marked), "%s: unit %lu is%s marked", what, i,
		      changes_has(map, i) ? "" : " not");
}

static void stores_through(const struct file *f, volatile uint8_t *map, const char *what)
{
	uint8_t seen = map[20 * UNIT];

	marks(f, 0, 0, "a load");
	map[20 * UNIT + 5] = seen + 1;
	marks_stored(f, 20, what);
	/* Nobody sees it, before the page is clean again. */
	map[20 * UNIT + 6] = seen + 2;
	marks(f, 0, 0, "a second store");
	check(fsync(f->fd) == 0, "fsync");
	map[20 * UNIT + 7] = seen + 3;
	marks_stored(f, 20, "a store to what was clean");
	check(fsync(f->fd) == 0, "fsync");
}

static void stores(void)
{
	struct file f = tracked("target");

	stores_through(&f, map_of(&f, PROT_READ | PROT_WRITE, MAP_SHARED), "a store");
	map_of(&f, PROT_READ | PROT_WRITE, MAP_PRIVATE)[UNIT] = 1;
	marks(&f, 0, 0, "a private store");
	if (env.dax)
		stores_through(&f, map_of(&f, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC), "a synchronous store");
}

/* With 2 MiB mapped at once one fault is for all of them. */
static void huge_stores(void)
{
	enum { HUGE = 2 * MIB, LENGTH = 8 * MIB };
	struct file f = file_new("target", LENGTH);
	uint8_t map[LENGTH / UNIT / 8], *space, *at;
	const unsigned long in_huge = HUGE / UNIT;
	uint64_t marked, again;

	if (!env.dax)
		skip("DAX only");
	check(fallocate(f.fd, 0, 0, LENGTH) == 0, "fallocate");
	file_write(&f, 0, LENGTH, 1);
	check(fsync(f.fd) == 0, "fsync");
	changes_start(f.fd);
	space = mmap(NULL, LENGTH + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	at = (uint8_t *)(((uintptr_t)space + HUGE - 1) & ~(HUGE - 1UL));
	at = mmap(at, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, f.fd, 0);
	check(at != MAP_FAILED, "mmap");
	for (int i = 0; i < 2; i++) {
		at[HUGE + 77 * UNIT + 5] = i;
		check(changes_take(f.fd, map, sizeof(map), &marked, NULL) == 0, "TAKE");
		if (marked == 1)
			skip("no 2 MiB are mapped at once here");
		check(marked == in_huge && changes_has(map, in_huge) && changes_has(map, 2 * in_huge - 1),
		      "%lu units are marked", (unsigned long)marked);
		at[HUGE + 400 * UNIT] = i;
		check(changes_take(f.fd, map, sizeof(map), &again, NULL) == 0 && again == 0, "%lu units more",
		      (unsigned long)again);
		check(sync_file_range(f.fd, 0, 0,
				      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) == 0,
		      "sync_file_range");
	}
}

static void moves(void)
{
	struct file f = tracked("target"), donor = tracked("donor");
	struct move_extent me = {.donor_fd = (uint32_t)donor.fd};
	struct ext4_relink r;

	r = relink_args(&donor, 2 * UNIT, 50 * UNIT, 2 * UNIT);
	r.new_size = SIZE;
	check(relink_call(f.fd, &r) == 0, "relink");
	marks(&f, 50, 2, "relink, the target");
	marks(&donor, 2, 2, "relink, the donor");
	r = relink_args(&donor, 6 * UNIT, 20 * UNIT, 3 * UNIT);
	r.flags = EXT4_RELINK_EXCHANGE;
	r.new_size = SIZE;
	check(relink_call(f.fd, &r) == 0, "exchange");
	marks(&f, 20, 3, "exchange, the target");
	marks(&donor, 6, 3, "exchange, the donor");
	check(ftruncate(f.fd, 40 * UNIT + 9) == 0, "truncate");
	marks(&f, 40, 24, "truncation");
	r = relink_args(&donor, 10 * UNIT, 41 * UNIT, UNIT);
	check(relink_call(f.fd, &r) == 0, "relink behind the end");
	marks(&f, 40, 2, "relink behind the end");
	marks(&donor, 10, 1, "its donor");
	r.version++;
	check(relink_call(f.fd, &r) == EINVAL, "relink");
	marks(&f, 0, 0, "a relink that was refused");
	if (env.dax)
		return;

	/* Stock ext4's ways, which DAX does not have. */
	me.orig_start = 12 * UNIT / env.block;
	me.donor_start = me.orig_start;
	me.len = 2 * UNIT / env.block;
	check(fsync(f.fd) == 0 && fsync(donor.fd) == 0, "fsync");
	check(ioctl(f.fd, EXT4_IOC_MOVE_EXT, &me) == 0, "MOVE_EXT: %s", strerror(errno));
	marks(&f, 12, 2, "MOVE_EXT");
	marks(&donor, 12, 2, "MOVE_EXT, the donor");
	me.len = ~0ULL;
	check(ioctl(f.fd, EXT4_IOC_MOVE_EXT, &me) != 0 || me.moved_len, "MOVE_EXT of all");
	marks(&f, 0, UNITS, "MOVE_EXT of more than there is");
	marks(&donor, 0, UNITS, "MOVE_EXT of more than there is, the donor");
	/* With quota it aborts the journal, here and upstream. */
	for (int i = 0; i < 2 && !has_quota(); i++) {
		check(ioctl(f.fd, EXT4_IOC_SWAP_BOOT) == 0, "SWAP_BOOT: %s", strerror(errno));
		marks(&f, 0, UNITS, "SWAP_BOOT");
	}
}

/* The map can be taken while the file system is frozen, and who waits for the end of that has marked nothing. */
static void frozen(void)
{
	struct file f = tracked("target");
	uint8_t map[UNITS / 8] = {0}, later[UNITS / 8] = {0};
	int err, err_take, err_later, err_thaw, status;
	uint64_t marked, marked_later;
	pid_t pid;

	check(pwrite(f.fd, "x", 1, 7 * UNIT) == 1, "write");
	err = freeze(f.fd);
	check(err == 0, "freeze: %s", strerror(err));
	err_take = changes_take(f.fd, map, sizeof(map), &marked, NULL);
	pid = fork();
	if (pid == 0)
		_exit(pwrite(f.fd, "y", 1, 9 * UNIT) != 1);
	usleep(300000);
	err_later = changes_take(f.fd, later, sizeof(later), &marked_later, NULL);
	err_thaw = thaw(f.fd);
	check(waitpid(pid, &status, 0) == pid && status == 0, "the writer");
	check(err_take == 0 && err_later == 0 && err_thaw == 0, "TAKE: %s, %s; thaw: %s", strerror(err_take),
	      strerror(err_later), strerror(err_thaw));
	check(marked == 1 && changes_has(map, 7), "%lu units are marked", (unsigned long)marked);
	check(marked_later == 0, "%lu units are marked while the writer waits", (unsigned long)marked_later);
	marks(&f, 9, 1, "the writer");
}

/* Tracking ends with the open file that has begun it, whoever closes it, and nothing is left of it. */
static void ends(void)
{
	struct file f = file_new("target", SIZE);
	int other, copy, status, drop;
	struct ext4_changes c = {0};
	uint8_t map[UNITS / 8];
	pid_t pid;

	file_write(&f, 0, SIZE, 1);
	other = open("target", O_RDONLY);
	changes_start(other);
	copy = dup(other);
	close(other);
	check(changes_call(f.fd, EXT4_CHANGES_START, &c) == EBUSY, "one of two descriptors is closed");
	check(pwrite(f.fd, "x", 1, 0) == 1 && changes_take(copy, map, sizeof(map), NULL, NULL) == 0 && changes_has(map, 0),
	      "TAKE by the other");
	close(copy);
	check(changes_call(f.fd, EXT4_CHANGES_START, &c) == 0, "both are closed");
	check(changes_call(f.fd, EXT4_CHANGES_STOP, &c) == 0, "STOP");

	pid = fork();
	if (pid == 0) {
		other = open("target", O_RDONLY);
		_exit(changes_call(other, EXT4_CHANGES_START, &c) ? 1 : (raise(SIGKILL), 2));
	}
	check(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status), "the child that is killed");
	check(changes_call(f.fd, EXT4_CHANGES_START, &c) == 0, "who began it was killed");

	/* The inode goes and comes back without it. */
	check(pwrite(f.fd, "x", 1, 3 * UNIT) == 1 && fsync(f.fd) == 0 && close(f.fd) == 0, "close");
	drop = open("/proc/sys/vm/drop_caches", O_WRONLY);
	check(drop < 0 || write(drop, "3\n", 2) == 2, "drop_caches");
	f.fd = open("target", O_RDWR);
	check(changes_take(f.fd, map, sizeof(map), NULL, NULL) == ENODATA, "after the inode was evicted");
	changes_start(f.fd);
	marks(&f, 0, 0, "begun again");
	/* A file without a name. */
	check(unlink("target") == 0 && pwrite(f.fd, "x", 1, 2 * UNIT) == 1, "unlink");
	marks(&f, 2, 1, "without a name");
	close(f.fd);
}

const struct test_case changes_cases[] = {{"changes_refuses", refuses},	 {"changes_sizes", sizes},
					  {"changes_of_writes", writes}, {"changes_of_allocations", allocations},
					  {"changes_of_stores", stores}, {"changes_of_huge_stores", huge_stores},
					  {"changes_of_moves", moves},	 {"changes_while_frozen", frozen},
					  {"changes_end", ends},	 {0}};
