/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last free block, between processes: two writers append to two files in turn until the file system is full. Each is told ENOSPC, nobody
 * waits for ever, what was acknowledged is there for everybody, and room that is made can be used. So it is with any number of free blocks
 * left, and when one writer is stopped or killed meanwhile. The runner gives this one a small file system of its own.
 */
#include "check.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/statvfs.h>

#define BLOCK	   4096u
#define WRITERS	   2
#define FILES	   2
#define BEFORE	   8 /* appends of each writer before the file system is full */
#define AFTER	   8 /* and when there is room again */
#define LEFT_MOST  18
#define FATES_EACH 4   /* with every so many blocks left one is stopped, and one is killed */
#define SECONDS	   120 /* for one round: a call that waits for ever ends the test */

enum fate { GOES_ON, STOPPED, KILLED };

/* What a writer has been told is written, in records, for each file. */
struct told {
	uint32_t records[FILES];
	uint32_t full; /* how often it was told ENOSPC */
};
static struct told *told;

struct record {
	uint32_t writer, number;
	char rest[BLOCK - 8];
};

static int open_file(int file, int flags)
{
	const char name[2] = {(char)('a' + file), 0};
	int fd = open(name, flags, 0644);

	CHECK(fd >= 0);
	return fd;
}

/* False: there is no space. */
static bool append(int fd, int me, int file)
{
	struct record r = {.writer = (uint32_t)me, .number = told[me].records[file]};
	ssize_t n;

	fill(r.rest, sizeof(r.rest), r.writer, r.number);
	n = write(fd, &r, sizeof(r));
	CHECK(n == (ssize_t)sizeof(r) || (n == -1 && errno == ENOSPC));
	if (n > 0)
		__atomic_add_fetch(&told[me].records[file], 1, __ATOMIC_RELEASE);
	return n > 0;
}

static void writer(int me, int orders, int report)
{
	int fd[FILES];

	alarm(SECONDS);
	for (int f = 0; f < FILES; f++)
		fd[f] = open_file(f, O_RDWR | O_APPEND);
	for (int i = 0; i < BEFORE; i++)
		CHECK(append(fd[i % FILES], me, i % FILES));
	tell(report);
	hear(orders);
	for (int i = 0; told[me].full < FILES; i++)
		if (!append(fd[i % FILES], me, i % FILES))
			__atomic_add_fetch(&told[me].full, 1, __ATOMIC_RELEASE);
	tell(report);
	hear(orders);
	for (int i = 0; i < AFTER; i++)
		CHECK(append(fd[i % FILES], me, i % FILES));
	exit(0);
}

/* Each writer's records are in the file, in their order. Of a killed one the last may have been written and not acknowledged. */
static void check_file(int file, const enum fate *fate)
{
	uint32_t found[WRITERS] = {0};
	struct record r;
	char rest[sizeof(r.rest)];
	int fd = open_file(file, O_RDONLY);
	ssize_t n;

	while ((n = read(fd, &r, sizeof(r))) != 0) {
		CHECK(n == (ssize_t)sizeof(r) && r.writer < WRITERS);
		CHECK(r.number == found[r.writer]);
		fill(rest, sizeof(rest), r.writer, r.number);
		CHECK(memcmp(rest, r.rest, sizeof(rest)) == 0);
		found[r.writer]++;
	}
	for (int w = 0; w < WRITERS; w++) {
		const uint32_t sure = __atomic_load_n(&told[w].records[file], __ATOMIC_ACQUIRE);

		if (found[w] != sure && !(fate[w] == KILLED && found[w] == sure + 1))
			fprintf(stderr, "file %d, writer %d: %u acknowledged, %u there\n", file, w, sure, found[w]);
		CHECK(found[w] == sure || (fate[w] == KILLED && found[w] == sure + 1));
	}
	CHECK(close(fd) == 0);
}

/* Take all space but for so many blocks. */
static void take_space(uint64_t left)
{
	struct statvfs fs;
	int fd = open("filler", O_RDWR | O_CREAT, 0644);

	CHECK(fd >= 0);
	for (int i = 0; i < 64; i++) {
		uint64_t have, piece;

		CHECK(fstatvfs(fd, &fs) == 0);
		have = (uint64_t)fs.f_bavail * fs.f_frsize / BLOCK;
		if (have <= left)
			break;
		/* Halves where it does not have it all: a file system needs some for itself. */
		for (piece = have - left; piece > 0; piece /= 2)
			if (fallocate(fd, 0, size_of(fd), (off_t)(piece * BLOCK)) == 0)
				break;
		if (piece == 0)
			break;
	}
	CHECK(close(fd) == 0);
}

static void start(pid_t *pid, int orders[][2], int report[][2])
{
	for (int f = 0; f < FILES; f++)
		CHECK(close(open_file(f, O_RDWR | O_CREAT | O_TRUNC)) == 0);
	memset(told, 0, WRITERS * sizeof(*told));
	for (int w = 0; w < WRITERS; w++) {
		CHECK(pipe(orders[w]) == 0 && pipe(report[w]) == 0);
		pid[w] = fork();
		if (pid[w] == 0)
			writer(w, orders[w][0], report[w][1]);
		CHECK(pid[w] > 0);
		close(orders[w][0]);
		close(report[w][1]);
	}
	for (int w = 0; w < WRITERS; w++)
		hear(report[w][0]);
}

/* The first writer's fate overtakes it when it has been told that there is no space. */
static void meet_fate(enum fate fate, pid_t pid)
{
	for (int ms = 0; fate != GOES_ON && ms < SECONDS * 1000 && !__atomic_load_n(&told[0].full, __ATOMIC_ACQUIRE); ms++)
		usleep(1000);
	if (fate == KILLED)
		CHECK(kill(pid, SIGKILL) == 0 && status_of(pid) == 128 + SIGKILL);
	if (fate == STOPPED) {
		CHECK(kill(pid, SIGSTOP) == 0);
		usleep(300000);
		CHECK(kill(pid, SIGCONT) == 0);
	}
}

static void play(uint64_t left, enum fate first)
{
	const enum fate fate[WRITERS] = {first, GOES_ON};
	int orders[WRITERS][2], report[WRITERS][2];
	pid_t pid[WRITERS];

	start(pid, orders, report);
	take_space(left);
	for (int w = 0; w < WRITERS; w++)
		tell(orders[w][1]);
	meet_fate(first, pid[0]);
	for (int w = 0; w < WRITERS; w++)
		if (fate[w] != KILLED)
			hear(report[w][0]);
	for (int f = 0; f < FILES; f++)
		check_file(f, fate);
	CHECK(unlink("filler") == 0);
	for (int w = 0; w < WRITERS; w++)
		if (fate[w] != KILLED)
			tell(orders[w][1]);
	for (int w = 0; w < WRITERS; w++) {
		if (fate[w] != KILLED)
			CHECK(status_of(pid[w]) == 0);
		close(orders[w][1]);
		close(report[w][0]);
	}
	for (int f = 0; f < FILES; f++)
		check_file(f, fate);
}

int main(void)
{
	struct statvfs fs;

	CHECK(statvfs(".", &fs) == 0);
	if ((uint64_t)fs.f_blocks * fs.f_frsize > 512ull << 20)
		SKIP("the file system is too large to be filled");
	told = mmap(NULL, WRITERS * sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(told != MAP_FAILED);
	for (uint64_t left = 0; left <= LEFT_MOST; left++) {
		const enum fate worst = left % FATES_EACH == 0 ? KILLED : GOES_ON;

		for (enum fate fate = GOES_ON; fate <= worst; fate++) {
			alarm(SECONDS);
			fprintf(stderr, "%d blocks left, fate %d\n", (int)left, (int)fate);
			play(left, fate);
		}
	}
	return 0;
}
