// SPDX-License-Identifier: GPL-2.0
/*
 * EXT4_IOC_CHANGES against programs that go on writing in every way: a unit that differs between two moments in which the
 * file system was frozen is in the map that was taken at the second one.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "changes.h"

/*
 * What is mapped, and behind it what is cut off and grows again. At the beginning only direct writes and relinks change
 * anything: where direct writes find pages in the page cache that are dirty, they fail.
 */
#define DIRECT (64 * UNIT)
#define BODY   (1024 * UNIT)
#define TAIL   (64 * UNIT)
#define ALL    (BODY + TAIL)
#define UNITS  (ALL / UNIT)

/* Without DAX each of them takes seconds to write back. */
#define MOMENTS (env.dax ? 24 : 10)

static uint64_t random_below(uint64_t *state, uint64_t limit)
{
	return random_number(state) % limit;
}

static void write_calls(uint64_t *state, int flags)
{
	const int fd = open("target", O_RDWR | flags);
	uint8_t *data = aligned_alloc(UNIT, 4 * UNIT);

	check(fd >= 0 && data, "open");
	for (;;) {
		uint64_t at = DIRECT + random_below(state, BODY - DIRECT - 4 * UNIT),
			 length = 1 + random_below(state, 3 * UNIT);

		if (flags) {
			at = random_below(state, DIRECT / UNIT - 1) * UNIT;
			length = 2 * UNIT;
		}
		memset(data, (int)random_below(state, 256), length);
		check(pwrite(fd, data, length, (off_t)at) == (ssize_t)length, "write");
		usleep((unsigned int)random_below(state, 3000));
	}
}

static void writer(uint64_t *state)
{
	write_calls(state, 0);
}

static void direct_writer(uint64_t *state)
{
	write_calls(state, O_DIRECT);
}

/* Stores in bursts to the same pages, most of which do not fault. */
static void store_through(uint64_t *state, int flags)
{
	const int fd = open("target", O_RDWR);
	volatile uint8_t *map = mmap(NULL, BODY, PROT_READ | PROT_WRITE, flags, fd, 0);

	check(map != MAP_FAILED, "mmap");
	for (;;) {
		uint64_t page[4];

		for (int i = 0; i < 4; i++)
			page[i] = DIRECT + random_below(state, (BODY - DIRECT) / UNIT) * UNIT;
		for (int i = 0; i < 5000; i++)
			map[page[i % 4] + random_below(state, UNIT)] += 1;
	}
}

static void storer(uint64_t *state)
{
	store_through(state, MAP_SHARED);
}

static void synchronous_storer(uint64_t *state)
{
	store_through(state, env.dax ? MAP_SHARED_VALIDATE | MAP_SYNC : MAP_SHARED);
}

static void allocator(uint64_t *state)
{
	static const int modes[] = {FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
				    FALLOC_FL_KEEP_SIZE};
	const int fd = open("target", O_RDWR);

	for (;;) {
		check(fallocate(fd, modes[random_below(state, 3)],
				(off_t)(DIRECT + random_below(state, BODY - DIRECT - 4 * UNIT)),
				(off_t)(1 + random_below(state, 3 * UNIT))) == 0,
		      "fallocate");
		usleep((unsigned int)random_below(state, 20000));
	}
}

static void exchanger(uint64_t *state)
{
	struct file donor = file_new("donor", BODY);
	const int target = open("target", O_RDWR);

	for (;;) {
		const uint64_t at = random_below(state, BODY / UNIT - 2) * UNIT;
		struct ext4_relink r;
		int err;

		file_write(&donor, 0, 2 * UNIT, (unsigned int)random_below(state, 1 << 20));
		r = relink_args(&donor, 0, at, 2 * UNIT);
		r.flags = EXT4_RELINK_KEEP_SIZE | (random_below(state, 2) ? EXT4_RELINK_EXCHANGE : 0);
		r.new_size = 0;
		err = relink_call(target, &r);
		check(err == 0 || err == EAGAIN, "relink: %s", strerror(err));
		usleep((unsigned int)random_below(state, 10000));
	}
}

static void cutter(uint64_t *state)
{
	const int fd = open("target", O_RDWR);

	for (;;) {
		check(ftruncate(fd, (off_t)(BODY + random_below(state, TAIL))) == 0, "truncate");
		check(pwrite(fd, "tail", 4, (off_t)(BODY + random_below(state, TAIL - 4))) == 4, "write");
		usleep((unsigned int)random_below(state, 5000));
	}
}

static void (*const programs[])(uint64_t *state) = {writer,    direct_writer, storer, synchronous_storer,
						    allocator, exchanger,     cutter};
#define PROGRAMS (sizeof(programs) / sizeof(programs[0]))

static pid_t begin(unsigned long number)
{
	uint64_t state = env.seed * 1000 + number;
	pid_t pid = fork();

	check(pid >= 0, "fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		programs[number](&state);
		_exit(1);
	}
	return pid;
}

/* What the file holds at a moment, and what has changed since the one before. */
struct moment {
	uint8_t bytes[ALL];
	uint8_t map[UNITS / 8];
	uint64_t marked;
};

/* The file may have been shorter when it was begun; behind its units all counts as changed. */
static unsigned long units;

static void take(int fd, struct moment *m)
{
	int err, err_clean, err_map, err_thaw;
	ssize_t length;

	memset(m->bytes, 0, ALL);
	sync();
	err = freeze(fd);
	check(err == 0, "freeze: %s", strerror(err));
	err_clean = sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
	err_map = changes_take(fd, m->map, sizeof(m->map), &m->marked, &units);
	length = pread(fd, m->bytes, ALL, 0);
	err_thaw = thaw(fd);
	check(err_clean == 0 && err_map == 0 && length >= (ssize_t)BODY && err_thaw == 0, "a moment: %d, %s, %ld bytes, %d",
	      err_clean, strerror(err_map), (long)length, err_thaw);
}

struct counts {
	unsigned long differ, escaped, unmarked;
};

static void compare(const struct moment *before, const struct moment *now, struct counts *c)
{
	for (unsigned long unit = 0; unit < UNITS; unit++) {
		const bool marked = unit >= units || changes_has(now->map, unit);
		const bool differs = memcmp(before->bytes + unit * UNIT, now->bytes + unit * UNIT, UNIT);

		c->differ += differs;
		c->unmarked += !marked;
		c->escaped += differs && !marked;
		if (differs && !marked && c->escaped < 10)
			note("unit %lu differs and is not marked", unit);
	}
}

static void race(void)
{
	struct file f = file_new("target", ALL);
	struct moment *moments = calloc(2, sizeof(*moments)), *now = moments, *before = moments + 1;
	struct counts counts = {0}, control = {0};
	uint64_t state = env.seed;
	pid_t pids[PROGRAMS];
	int status;

	check(moments, "memory");
	file_write(&f, 0, ALL, 1);
	for (unsigned long i = 0; i < PROGRAMS; i++)
		pids[i] = begin(i);
	usleep(200000);
	changes_start(f.fd);
	take(f.fd, before); /* who had begun before START may not have marked */
	for (int i = 0; i < MOMENTS; i++) {
		struct moment *other = before;

		usleep((unsigned int)random_below(&state, 40000));
		take(f.fd, now);
		compare(before, now, &counts);
		before = now;
		now = other;
	}
	for (unsigned long i = 0; i < PROGRAMS; i++) {
		check(waitpid(pids[i], &status, WNOHANG) == 0, "program %lu has ended: %#x", i, (unsigned int)status);
		kill(pids[i], SIGKILL);
		check(waitpid(pids[i], &status, 0) == pids[i], "waitpid");
	}
	note("%d moments of %lu units: %lu differed, %lu were not marked", MOMENTS, UNITS, counts.differ, counts.unmarked);
	check(counts.escaped == 0, "%lu units changed unnoticed", counts.escaped);
	check(counts.differ > MOMENTS && counts.unmarked > MOMENTS, "nothing is shown");

	/* A change that is not in the map is seen. */
	take(f.fd, before);
	check(pwrite(f.fd, before->bytes[UNIT] ? "\0" : "x", 1, UNIT) == 1, "write");
	take(f.fd, now);
	check(now->marked == 1 && changes_has(now->map, 1), "%lu units are marked", (unsigned long)now->marked);
	memset(now->map, 0, sizeof(now->map));
	compare(before, now, &control);
	check(control.escaped == 1, "the control: %lu units", control.escaped);
}

const struct test_case changes_race_cases[] = {{"changes_race", race}, {0}};
