// SPDX-License-Identifier: GPL-2.0
/*
 * Stress of EXT4_IOC_RELINK: processes that relink, fault, write, truncate, punch and read with O_DIRECT through mappings, all on
 * the same few files. Every word that is written carries the number of the group of files it is meant for, so that a block
 * that turns up in a file of another group, through a stale mapping or a block that belongs to two files, is found.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../uapi/ext4_relink.h"

enum { GROUPS = 3, FILES = 2, BLOCK = 4096, SIZE = 8 << 20, WORKERS = 9 };
#define MARK 0x5b11f50000000000u /* the upper bytes of every word */

enum counter { RELINKS, REFUSED, STORES, BUS, LOADS, TRUNCATES, PUNCHES, WRITES, DIRECT, COUNTERS };
static const char *const counter_names[COUNTERS] = {"relinks",	 "relinks refused", "stores", "SIGBUS",	     "loads",
						    "truncates", "punches",	    "writes", "direct reads"};

static struct shared {
	volatile bool stop;
	volatile uint64_t bad; /* words of a wrong group */
	uint64_t counters[COUNTERS];
} * shared;

static int fds[GROUPS][FILES];
static uint8_t *maps[GROUPS][FILES];
static uint64_t state;
static sigjmp_buf bus;

static uint64_t below(uint64_t n)
{
	uint64_t z = state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return (z ^ z >> 31) % n;
}

static void count(enum counter c)
{
	__atomic_fetch_add(&shared->counters[c], 1, __ATOMIC_RELAXED);
}

static void on_bus(int signal)
{
	(void)signal;
	siglongjmp(bus, 1);
}

static uint64_t mark(int group, uint64_t at)
{
	return MARK | (uint64_t)(group + 1) << 32 | (at / 8 & 0xffffffff);
}

/*
 * A word is zero or has the mark of its group. While others are writing, one may be seen half written: then it has no group or the
 * right one, and the rest of it is not judged.
 */
static void examine(int group, const uint64_t *words, size_t n, bool at_rest, const char *where)
{
	uint64_t differs = at_rest ? ~(uint64_t)0 << 32 : (uint64_t)0xff << 32;
	size_t i;

	for (i = 0; i < n; i++) {
		if (words[i] & differs && (words[i] ^ mark(group, 0)) & differs) {
			if (__atomic_fetch_add(&shared->bad, 1, __ATOMIC_RELAXED) < 5)
				printf("# group %d: %s holds %016lx\n", group, where, (unsigned long)words[i]);
			return;
		}
	}
}

static void relink_one(int group)
{
	int d = below(FILES), blocks = 1 + below(below(4) ? 16 : SIZE / BLOCK / 2);
	struct ext4_relink r = {
		.version = EXT4_RELINK_VERSION,
		.flags = (below(2) ? EXT4_RELINK_SKIP_HOLES : 0) | (below(2) ? EXT4_RELINK_PARTIAL : 0) |
			 (below(32) ? 0 : EXT4_RELINK_SYNC) | (below(2) ? EXT4_RELINK_DATA_PERSISTENT : 0) |
			 (below(3) ? 0 : EXT4_RELINK_EXCHANGE),
		.donor_fd = fds[group][d],
		.donor_offset = below(SIZE / BLOCK - blocks + 1) * BLOCK,
		.target_offset = below(SIZE / BLOCK - blocks + 1) * BLOCK,
		.length = (uint64_t)blocks * BLOCK,
	};

	r.new_size = r.target_offset + r.length;
	if (ioctl(fds[group][1 - d], EXT4_IOC_RELINK, &r) == 0) {
		count(RELINKS);
	} else if (errno == EINVAL || errno == ENOSPC || errno == E2BIG || errno == EAGAIN) {
		count(REFUSED); /* the donor is shorter now, the others have taken the space, or pages stay pinned */
	} else {
		printf("# relink: %s\n", strerror(errno));
		__atomic_fetch_add(&shared->bad, 1, __ATOMIC_RELAXED);
	}
}

static void touch(int group, bool write)
{
	int f = below(FILES);
	volatile uint64_t at = below(SIZE / BLOCK) * BLOCK + below(BLOCK / 8) * 8;
	volatile uint64_t word;

	if (sigsetjmp(bus, 1)) {
		count(BUS); /* behind the end of the file */
		return;
	}
	if (write) {
		*(volatile uint64_t *)(maps[group][f] + at) = mark(group, at);
		count(STORES);
	} else {
		word = *(volatile uint64_t *)(maps[group][f] + at);
		examine(group, (const uint64_t[]){word}, 1, false, "a mapping");
		count(LOADS);
	}
}

static void truncate_one(int group)
{
	int f = below(FILES);

	if (ftruncate(fds[group][f], below(SIZE / 8) * 8) == 0 && ftruncate(fds[group][f], SIZE - below(4) * BLOCK) == 0)
		count(TRUNCATES);
}

static void punch_one(int group)
{
	uint64_t at = below(SIZE / 8) * 8, length = 8 + below((SIZE - at) / 8) * 8; /* whole words */
	int mode = below(2) ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE : FALLOC_FL_ZERO_RANGE;

	if (fallocate(fds[group][below(FILES)], mode, at, length) == 0)
		count(PUNCHES);
}

static void write_one(int group)
{
	static uint64_t words[64 * 1024 / 8];
	uint64_t at = below(SIZE / 8 - 8192) * 8, n = 1 + below(8192), i;

	for (i = 0; i < n; i++)
		words[i] = mark(group, at + 8 * i);
	if (pwrite(fds[group][below(FILES)], words, 8 * n, at) > 0)
		count(WRITES);
}

static void read_one(int group)
{
	static uint64_t words[64 * 1024 / 8];
	ssize_t n = pread(fds[group][below(FILES)], words, sizeof(words), below(SIZE / 8) * 8);

	if (n > 0)
		examine(group, words, n / 8, false, "a read");
}

/* O_DIRECT from one file into the mapping of the other: its pages are pinned while the device fills them. */
static void direct_one(int group)
{
	int f = below(FILES), fd;
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[group][f]);
	fd = open(path, O_RDONLY | O_DIRECT);
	if (fd < 0)
		return;
	n = pread(fd, maps[group][1 - f] + below(SIZE / BLOCK - 16) * BLOCK, 16 * BLOCK, below(SIZE / BLOCK - 16) * BLOCK);
	if (n > 0)
		count(DIRECT);
	close(fd);
}

static void work(int kind, uint64_t seed)
{
	struct sigaction action = {.sa_handler = on_bus, .sa_flags = SA_NODEFER};

	state = seed + kind * 7919;
	sigaction(SIGBUS, &action, NULL);
	while (!shared->stop) {
		int group = below(GROUPS);

		switch (kind) {
		case 0:
		case 1:
		case 2:
			relink_one(group);
			break;
		case 3:
			touch(group, true);
			break;
		case 4:
			touch(group, false);
			read_one(group);
			break;
		case 5:
			truncate_one(group);
			usleep(20000);
			break;
		case 6:
			punch_one(group);
			usleep(10000);
			break;
		case 7:
			write_one(group);
			break;
		default:
			direct_one(group);
			touch(group, below(2));
			break;
		}
	}
	_exit(0);
}

static void open_files(const char *dir)
{
	char path[4096];
	int g, f;

	for (g = 0; g < GROUPS; g++) {
		for (f = 0; f < FILES; f++) {
			snprintf(path, sizeof(path), "%s/stress-%d-%d", dir, g, f);
			fds[g][f] = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
			if (fds[g][f] < 0 || ftruncate(fds[g][f], SIZE)) {
				fprintf(stderr, "relink_stress: %s: %s\n", path, strerror(errno));
				exit(1);
			}
			maps[g][f] = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fds[g][f], 0);
			if (maps[g][f] == MAP_FAILED) {
				perror("relink_stress: mmap");
				exit(1);
			}
		}
	}
}

/* Everything at rest: read all of it once more. */
static void examine_all(void)
{
	uint64_t *words = malloc(SIZE);
	int g, f;

	for (g = 0; g < GROUPS; g++) {
		for (f = 0; f < FILES; f++) {
			ssize_t n = pread(fds[g][f], words, SIZE, 0);

			if (n > 0)
				examine(g, words, n / 8, true, "a file at the end");
		}
	}
	free(words);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"seconds", required_argument, 0, 's'},
						{"seed", required_argument, 0, 'r'},
						{"help", no_argument, 0, 'h'},
						{0}};
	int option, i, status, failed = 0, seconds = 10;
	uint64_t seed = 1;
	pid_t pids[WORKERS];

	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (option) {
		case 's':
			seconds = atoi(optarg);
			break;
		case 'r':
			seed = strtoull(optarg, NULL, 0);
			break;
		default:
			fprintf(option == 'h' ? stdout : stderr, "Usage: relink_stress [--seconds N] [--seed N] DIR\n");
			return option == 'h' ? 0 : 2;
		}
	}
	if (optind + 1 != argc) {
		fprintf(stderr, "Usage: relink_stress [--seconds N] [--seed N] DIR\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED) {
		perror("relink_stress: mmap");
		return 1;
	}
	open_files(argv[optind]);
	for (i = 0; i < WORKERS; i++) {
		pids[i] = fork();
		if (pids[i] < 0) {
			perror("relink_stress: fork");
			shared->stop = true;
			return 1;
		}
		if (pids[i] == 0)
			work(i, seed);
	}
	for (i = 0; i < seconds && !shared->bad; i++)
		sleep(1);
	shared->stop = true;
	for (i = 0; i < WORKERS; i++) {
		waitpid(pids[i], &status, 0);
		if (status) {
			printf("# worker %d ended with status %#x\n", i, status);
			failed = 1;
		}
	}
	examine_all();
	printf("# stress of %d s, seed %lu:", seconds, (unsigned long)seed);
	for (i = 0; i < COUNTERS; i++)
		printf("%s %lu %s", i ? "," : "", (unsigned long)shared->counters[i], counter_names[i]);
	printf("\n");
	if (!shared->counters[RELINKS]) {
		printf("# not one relink\n");
		failed = 1;
	}
	failed |= shared->bad != 0;
	printf("%s - stress: %lu words of a wrong file\n", failed ? "not ok" : "ok", (unsigned long)shared->bad);
	return failed;
}
