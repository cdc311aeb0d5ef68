/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A volume that somebody else has filled while staging space was ready for what may come. What was acknowledged is there for a process that opens
 * the file now, and programs that begin now write over what their files have. The runner gives this one a small file system of its own.
 */
#include "check.h"

#include <linux/magic.h>
#include <stdbool.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#define BLOCK	  4096ul
#define MIB	  (1ul << 20)
#define LATE	  (8 * MIB) /* written and not fsynced when the volume is full */
#define SPARE	  (3 * MIB)
#define NEWCOMERS 8  /* more than there are logs ready */
#define SECONDS	  60 /* for a call that waits for ever */
#define FILLED_US 50000

static uint64_t free_bytes(void)
{
	struct statvfs fs;

	CHECK(statvfs(".", &fs) == 0);
	return (uint64_t)fs.f_bavail * fs.f_frsize;
}

/* By a program without the library, so that nothing of ours is given up for it. */
static void take_space(uint64_t left)
{
	const int fd = open("filler", O_RDWR | O_CREAT, 0644);
	off_t at;

	CHECK(fd >= 0);
	at = unseen_size(fd);
	for (uint64_t have = free_bytes(), piece; have > left + BLOCK; have = free_bytes()) {
		/* Halves where it does not have it all: a file system needs some for itself. */
		for (piece = (have - left) / BLOCK * BLOCK; piece > 0; piece = piece / 2 / BLOCK * BLOCK)
			if (unseen(SYS_fallocate, fd, 0, at, (long)piece) == 0)
				break;
		if (piece == 0)
			break;
		at += (off_t)piece;
	}
	CHECK(close(fd) == 0);
}

/* Writes, fills the volume, and holds the file until it is told to close it. forced: it does not wait until another process asks. */
static void writer(int report, int go, bool forced)
{
	char *buf = malloc(MIB);
	size_t size = 0;
	ssize_t n;
	int fd;

	alarm(SECONDS);
	CHECK(buf && (fd = open("late", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
	put(fd, 1, 0, BLOCK);
	take_space(LATE + SPARE);
	do {
		fill(buf, MIB, 1, size);
		n = pwrite(fd, buf, MIB, (off_t)size);
		CHECK(n > 0 || errno == ENOSPC);
		size += n > 0 ? (size_t)n : 0;
	} while (n > 0 && size < LATE);
	take_space(0);
	CHECK(!forced || fsync(fd) == 0);
	CHECK(write(report, &size, sizeof(size)) == sizeof(size));
	hear(go);
	expect(fd, 1, 0, size);
	CHECK(close(fd) == 0);
	exit(0);
}

static void reader(size_t size)
{
	const int fd = open("late", O_RDONLY);

	alarm(SECONDS);
	CHECK(fd >= 0 && size_of(fd) >= (off_t)size);
	expect(fd, 1, 0, size);
	exit(0);
}

/* Whatever is made ready in the background is ready. */
static void settled(void)
{
	uint64_t was = free_bytes();

	for (int same = 0; same < 20; same++) {
		const uint64_t now = free_bytes();

		usleep(FILLED_US);
		same = now == was ? same : 0;
		was = now;
	}
}

static void seen_by_another(bool forced)
{
	int report[2], go[2];
	pid_t writes, reads;
	size_t size;

	settled();
	CHECK(pipe(report) == 0 && pipe(go) == 0);
	writes = fork();
	if (writes == 0)
		writer(report[1], go[0], forced);
	close(report[1]);
	CHECK(writes > 0 && read(report[0], &size, sizeof(size)) == sizeof(size));
	reads = fork();
	if (reads == 0)
		reader(size);
	CHECK(reads > 0 && status_of(reads) == 0);
	tell(go[1]);
	CHECK(status_of(writes) == 0);
}

static int over(int i, int flags)
{
	char name[16];
	int fd;

	snprintf(name, sizeof(name), "over-%d", i);
	fd = open(name, O_RDWR | flags, 0644);
	CHECK(fd >= 0);
	return fd;
}

static void newcomer(int i, int report, int go)
{
	int fd;

	alarm(SECONDS);
	fd = over(i, 0);
	put(fd, 2, BLOCK, BLOCK);
	tell(report);
	hear(go);
	expect(fd, 2, BLOCK, BLOCK);
	CHECK(close(fd) == 0);
	exit(0);
}

/* All of them live at once. */
static void newcomers(void)
{
	pid_t pid[NEWCOMERS];
	int report[2], go[2];

	CHECK(pipe(report) == 0 && pipe(go) == 0);
	for (int i = 0; i < NEWCOMERS; i++) {
		pid[i] = fork();
		if (pid[i] == 0)
			newcomer(i, report[1], go[0]);
		CHECK(pid[i] > 0);
	}
	close(report[1]);
	for (int i = 0; i < NEWCOMERS; i++)
		hear(report[0]);
	for (int i = 0; i < NEWCOMERS; i++)
		tell(go[1]);
	for (int i = 0; i < NEWCOMERS; i++)
		CHECK(status_of(pid[i]) == 0);
}

int main(int argc, char **argv)
{
	const char *config = getenv("SPLITFS_CONFIG");
	struct statfs fs;

	/* Nothing is brought in by itself before the volume is full: what is given up for that would be the filler's. */
	if (argc == 1) {
		CHECK(setenv("SPLITFS_VISIBILITY_MS", "60000", 1) == 0);
		execl(argv[0], argv[0], "full", NULL);
		CHECK(!"exec");
	}
	CHECK(statfs(".", &fs) == 0);
	if ((uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize > 512ull << 20)
		SKIP("the file system is too large to be filled");
	alarm(SECONDS);
	for (int i = 0; i < NEWCOMERS; i++) {
		const int fd = over(i, O_CREAT);

		put(fd, 1, 0, 16 * BLOCK);
		CHECK(fsync(fd) == 0 && close(fd) == 0);
	}
	for (int forced = 0; forced < 2; forced++) {
		seen_by_another(forced);
		CHECK(unlink("late") == 0 && unlink("filler") == 0);
	}
	/* Where relink copies an atomic write may find no staging space on a full volume. */
	if (fs.f_type == TMPFS_MAGIC && config && strncmp(config, "strict:", 7) == 0)
		return 0;
	for (int i = 0; i < 20; i++) {
		usleep(FILLED_US); /* the agent makes staging files ready meanwhile */
		if (i % 10 == 9)
			take_space(0);
	}
	newcomers();
	return 0;
}
