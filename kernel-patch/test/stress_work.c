// SPDX-License-Identifier: GPL-2.0
/* What the processes of the stress do. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "space.h"
#include "stress.h"

#define B env.block

/* Words of one read or write. */
enum { CHUNK = 64 * KIB / 8, FILE_WORDS = FILE_SIZE / 8 };

static uint64_t state;
static sigjmp_buf bus;

static uint64_t below(uint64_t n)
{
	return random_number(&state) % n;
}

static void on_bus(int signal)
{
	(void)signal;
	siglongjmp(bus, 1);
}

/* A call that writes may find no room, for all or for one user, and nothing else. */
static bool done(bool ok, const char *what, enum counter c)
{
	if (ok)
		count(c, 1);
	else if (errno == ENOSPC)
		count(NO_ROOM, 1);
	else if (errno == EDQUOT)
		count(AT_QUOTA, 1);
	else
		wrong("%s: %s", what, strerror(errno));
	return ok;
}

static void relink_one(unsigned int group)
{
	const uint64_t all = FILE_SIZE / B;
	int d = below(FILES), blocks = 1 + below(below(4) ? 16 : all / 2), err;
	struct ext4_relink r = {
		.version = EXT4_RELINK_VERSION,
		.flags = (below(2) ? EXT4_RELINK_SKIP_HOLES : 0) | (below(2) ? EXT4_RELINK_PARTIAL : 0) |
			 (below(32) ? 0 : EXT4_RELINK_SYNC) | (below(2) ? EXT4_RELINK_DATA_PERSISTENT : 0) |
			 (below(3) ? 0 : EXT4_RELINK_EXCHANGE),
		.donor_fd = group_fds[group][d],
		.donor_offset = below(all - blocks + 1) * B,
		.target_offset = below(all - blocks + 1) * B,
		.length = blocks * B,
	};

	r.new_size = r.target_offset + r.length;
	err = relink_call(group_fds[group][1 - d], &r);
	errno = err;
	if (err == EINVAL || err == E2BIG || err == EAGAIN)
		count(REFUSED, 1);
	else
		done(!err, "relink", RELINKS);
}

static void touch(unsigned int group, bool write)
{
	const int f = below(FILES);
	volatile uint64_t at = below(FILE_WORDS) * 8;
	volatile uint64_t *place = (volatile uint64_t *)(group_maps[group][f] + at);

	if (sigsetjmp(bus, 1)) {
		count(BUS, 1);
		return;
	}
	if (write) {
		*place = mark(group, at);
		count(STORES, 1);
	} else {
		look_at_moving(group, (const uint64_t[]){*place}, 1, at);
		count(LOADS, 1);
	}
}

static void store_one(unsigned int group)
{
	touch(group, true);
}

static void truncate_one(unsigned int group)
{
	const int fd = group_fds[group][below(FILES)];

	if (done(ftruncate(fd, below(FILE_WORDS) * 8) == 0, "ftruncate", TRUNCATES))
		done(ftruncate(fd, FILE_SIZE - below(4) * B) == 0, "ftruncate", TRUNCATES);
}

/* Whole words. */
static void punch_one(unsigned int group)
{
	const uint64_t at = below(FILE_WORDS) * 8, length = 8 + below(FILE_WORDS - at / 8) * 8;
	const int mode = below(2) ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE : FALLOC_FL_ZERO_RANGE;

	done(fallocate(group_fds[group][below(FILES)], mode, at, length) == 0, "fallocate", PUNCHES);
}

static void write_one(unsigned int group)
{
	static uint64_t words[CHUNK];
	const uint64_t at = below(FILE_WORDS - CHUNK) * 8, n = 1 + below(CHUNK);
	uint64_t i;

	for (i = 0; i < n; i++)
		words[i] = mark(group, at + 8 * i);
	done(pwrite(group_fds[group][below(FILES)], words, 8 * n, at) > 0, "pwrite", WRITES);
}

static void read_one(unsigned int group)
{
	static uint64_t words[CHUNK];
	const uint64_t at = below(FILE_WORDS) * 8;
	const ssize_t n = pread(group_fds[group][below(FILES)], words, sizeof(words), at);

	if (n < 0)
		wrong("pread: %s", strerror(errno));
	else
		look_at_moving(group, words, n / 8, at);
}

static void load_one(unsigned int group)
{
	touch(group, false);
	read_one(group);
}

/* O_DIRECT from one file into the mapping of the other: its pages are pinned while the device fills them. */
static void direct_one(unsigned int group)
{
	const uint64_t places = FILE_SIZE / B - 16;
	const int f = below(FILES);
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", group_fds[group][f]);
	fd = open(path, O_RDONLY | O_DIRECT);
	if (fd < 0) {
		wrong("open with O_DIRECT: %s", strerror(errno));
		return;
	}
	n = pread(fd, group_maps[group][1 - f] + below(places) * B, 16 * B, below(places) * B);
	/*
	 * The mapping's file is shorter, or has no block to get; and without DAX a block that is read may have been stored to
	 * meanwhile, and have no place yet.
	 */
	if (n >= 0)
		count(DIRECT, 1);
	else if (errno != EFAULT && errno != EIO)
		wrong("pread with O_DIRECT: %s", strerror(errno));
	close(fd);
	touch(group, below(2));
}

/* Page tables are copied while blocks move, and both processes go on with what they got. */
static void fork_one(unsigned int group)
{
	int status = -1, i;
	pid_t pid = fork();

	if (pid < 0) {
		wrong("fork: %s", strerror(errno));
		return;
	}
	state += pid == 0;
	for (i = 0; i < 16; i++) {
		touch(group, below(2));
		if (i % 4 == 0)
			relink_one(group);
	}
	if (pid == 0)
		_exit(0);
	if (waitpid(pid, &status, 0) != pid || status)
		wrong("a child ended with status %#x", status);
	count(FORKS, 1);
}

/* Until nothing is free, for a while. The others find no room meanwhile. */
static void fill_one(unsigned int group)
{
	const int fd = open("stress-filler", O_RDWR | O_CREAT, 0600);

	(void)group;
	if (fd < 0) {
		done(false, "open", FILLED);
		return;
	}
	errno = take_all(fd);
	if (errno != ENOSPC)
		wrong("filling the file system: %s", strerror(errno));
	count(FILLED, 1);
	usleep(below(200000));
	done(ftruncate(fd, 0) == 0, "ftruncate", TRUNCATES);
	close(fd);
}

static void watch_one(unsigned int group)
{
	static uint64_t words[CHUNK];
	const unsigned int b = below(BYSTANDERS);
	const uint64_t at = below(BYSTANDER_SIZE / sizeof(words)) * sizeof(words);

	(void)group;
	if (below(2))
		look_at_bystander(b, (const uint64_t *)(bystander_maps[b] + at), CHUNK, at);
	else if (pread(bystander_fds[b], words, sizeof(words), at) == sizeof(words))
		look_at_bystander(b, words, CHUNK, at);
	else
		wrong("pread of a bystander: %s", strerror(errno));
}

/* A user who has all that he may have. */
static void user_one(unsigned int group)
{
	static void (*const steps[])(unsigned int) = {relink_one, relink_one, relink_one, relink_one, write_one, write_one,
						      store_one,  store_one,  load_one,	  load_one,   fork_one,	 punch_one};

	if (below(64))
		steps[below(sizeof(steps) / sizeof(steps[0]))](group);
	else
		truncate_one(group);
}

static const struct worker {
	void (*step)(unsigned int group);
	unsigned int pause; /* microseconds between its steps */
	unsigned int user;
} workers[] = {
	{relink_one, 0, 0},	   {relink_one, 0, 0},
	{relink_one, 0, 0},	   {store_one, 0, 0},
	{load_one, 0, 0},	   {truncate_one, 20000, 0},
	{punch_one, 10000, 0},	   {write_one, 0, 0},
	{direct_one, 0, 0},	   {fork_one, 0, 0},
	{fill_one, 200000, 0},	   {watch_one, 1000, 0},
	{user_one, 0, FIRST_USER}, {user_one, 0, FIRST_USER + 1},
};
const unsigned int stress_workers = sizeof(workers) / sizeof(workers[0]);

void stress_work(unsigned int worker, uint64_t seed)
{
	struct sigaction action = {.sa_handler = on_bus, .sa_flags = SA_NODEFER};
	const struct worker *w = &workers[worker];

	state = seed + worker * 7919;
	sigaction(SIGBUS, &action, NULL);
	check(!w->user || setresuid(w->user, w->user, w->user) == 0, "setresuid");
	/* Once at least, however slow the machine is. */
	do {
		w->step(w->user ? LIMITED : below(LIMITED));
		if (w->pause)
			usleep(w->pause);
	} while (!stress->stop);
	_exit(0);
}
