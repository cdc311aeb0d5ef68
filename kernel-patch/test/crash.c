// SPDX-License-Identifier: GPL-2.0
/*
 * What is found after the file system was shut down without writing out what it had in memory, as after a power cut. Each case
 * has two parts: one that ends with the shutdown, and one that looks when the journal has been replayed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <linux/falloc.h>
#include <unistd.h>

#include "space.h"

#define B env.block

#define SHUTDOWN	_IOR('X', 125, uint32_t)
#define WITHOUT_JOURNAL 2

static void shut_down(void)
{
	uint32_t how = WITHOUT_JOURNAL;
	int dir = open(".", O_RDONLY | O_DIRECTORY);

	check(dir >= 0 && ioctl(dir, SHUTDOWN, &how) == 0, "shutting the file system down");
	close(dir);
}

/* A block that says which file and place it was written for. */
static void stamp(uint8_t *block, char file, unsigned int i)
{
	memset(block, file, B);
	block[0] = i;
}

static int stamped_file(const char *name, unsigned int blocks, int flags)
{
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | flags, 0600);
	uint8_t *block = aligned_alloc(4096, 4096);
	unsigned int i;

	check(fd >= 0 && block, "%s", name);
	for (i = 0; i < blocks; i++) {
		stamp(block, name[0], i);
		check(pwrite(fd, block, B, i * B) == (ssize_t)B, "writing %s", name);
	}
	free(block);
	return fd;
}

/* Reads a block; what file it was written for, or 0 for zeros. */
static char stamp_of(int fd, unsigned int at, unsigned int *i)
{
	uint8_t *block = malloc(B);
	char file;

	check(block && pread(fd, block, B, at * B) == (ssize_t)B, "reading block %u", at);
	file = block[1];
	*i = block[0];
	free(block);
	return file;
}

static void relink_blocks(int target, int donor, unsigned int blocks, uint32_t flags)
{
	struct ext4_relink r = {
		.version = EXT4_RELINK_VERSION,
		.flags = flags,
		.donor_fd = donor,
		.length = blocks * B,
		.new_size = flags & EXT4_RELINK_KEEP_SIZE ? 0 : blocks * B,
	};

	check(relink_call(target, &r) == 0, "relink");
}

/* A write behind a hole is still delayed, and the hole is filled durably: the size on disk has to cover that. */
static void filled_hole(void)
{
	int donor = stamped_file("donor", 4, 0), target = open("target", O_RDWR | O_CREAT | O_TRUNC, 0600);

	fsync(donor);
	fsync(target);
	check(pwrite(target, "x", 1, 40 * B) == 1, "a write that is delayed");
	relink_blocks(target, donor, 4, EXT4_RELINK_KEEP_SIZE | EXT4_RELINK_SYNC);
	shut_down();
}

static void filled_hole_after(void)
{
	int target = open("target", O_RDONLY);
	unsigned int i, at;

	for (i = 0; i < 4; i++)
		check(stamp_of(target, i, &at) == 'd' && at == i, "block %u of the target is lost", i);
}

/*
 * A full file system: what a relink has replaced is all there is. Nobody may write to it while a crash can bring it back, whatever
 * the mode of data.
 */
enum { REPLACED = 64, ROOM = 20 /* for the trees */ };

static void replaced_blocks(void)
{
	int donor = stamped_file("donor", REPLACED, 0), target = stamped_file("target", REPLACED, 0), other;
	uint8_t *block = aligned_alloc(4096, 4096);
	unsigned int i;

	check(sysfs_write("reserved_clusters", 0), "the reserve");
	fsync(donor);
	fsync(target);
	other = open("other", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	check(other >= 0 && block, "other");
	fsync(other);
	check(fallocate(open("room", O_RDWR | O_CREAT, 0600), 0, 0, ROOM * B) == 0, "room");
	fill_up();
	check(truncate("room", 0) == 0, "room");
	sync();
	relink_blocks(target, donor, REPLACED, 0);
	stamp(block, 'o', 0);
	for (i = 0; i < REPLACED + ROOM; i++)
		if (pwrite(other, block, B, i * B) != (ssize_t)B)
			break;
	note("%u blocks were written to another file", i);
	shut_down();
}

static void replaced_blocks_after(void)
{
	int target = open("target", O_RDONLY);
	unsigned int i, at;
	char file;

	for (i = 0; i < REPLACED; i++) {
		file = stamp_of(target, i, &at);
		check((file == 't' || file == 'd') && at == i, "block %u of the target holds '%c'", i, file);
	}
	fill_away();
}

/*
 * All of a range in one transaction, or nothing of it: blocks of many extents are exchanged again and again, until the shutdown.
 */
enum { EXCHANGED = 64 };

static void exchanged(void)
{
	int donor = stamped_file("donor", EXCHANGED, 0), target = stamped_file("target", EXCHANGED, 0);
	int i, err, status, pipes[2];
	char byte;
	struct ext4_relink r = {
		.version = EXT4_RELINK_VERSION,
		.flags = EXT4_RELINK_EXCHANGE,
		.donor_fd = donor,
		.length = EXCHANGED * B,
		.new_size = EXCHANGED * B,
	};
	pid_t pid;

	for (i = 0; i < EXCHANGED; i += 2) /* unwritten and written ones, to have extents */
		check(fallocate(target, FALLOC_FL_ZERO_RANGE, i * B, B) == 0 &&
			      fallocate(donor, FALLOC_FL_ZERO_RANGE, i * B, B) == 0,
		      "fallocate");
	fsync(donor);
	fsync(target);
	check(pipe(pipes) == 0, "pipe");
	pid = fork();
	check(pid >= 0, "fork");
	if (pid == 0) {
		for (i = 0; (err = relink_call(target, &r)) == 0; i++)
			if ((i == 1 && write(pipes[1], "", 1) != 1) || random_number(&env.seed) % 4 == 0)
				fsync(target);
		note("%d exchanges, then error %d", i, err);
		_exit(0);
	}
	close(pipes[1]);
	check(read(pipes[0], &byte, 1) == 1, "nothing was exchanged");
	usleep(random_number(&env.seed) % 300000);
	shut_down();
	check(waitpid(pid, &status, 0) == pid && status == 0, "the exchanger's status %#x", status);
}

static void exchanged_after(void)
{
	int donor = open("donor", O_RDONLY), target = open("target", O_RDONLY);
	unsigned int i, at_target, at_donor;
	char first = 0, t, d;

	for (i = 1; i < EXCHANGED; i += 2) {
		t = stamp_of(target, i, &at_target);
		d = stamp_of(donor, i, &at_donor);
		first = first ? first : t;
		check(at_target == i && at_donor == i && t + d == 't' + 'd' && t == first,
		      "block %u: the target has '%c' of %u, the donor '%c' of %u", i, t, at_target, d, at_donor);
	}
	note("the target has what was the %s's", first == 't' ? "target" : "donor");
}

const struct test_case crash_cases[] = {
	{"filled_hole", filled_hole}, {"replaced_blocks", replaced_blocks}, {"exchanged", exchanged}, {0}};
const struct test_case crashed_cases[] = {
	{"filled_hole", filled_hole_after}, {"replaced_blocks", replaced_blocks_after}, {"exchanged", exchanged_after}, {0}};
