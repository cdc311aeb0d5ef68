/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that only write over what they have go on when the volume is full: a database with a log of fixed size. Two processes, each with a file of
 * its own, after one and then the other has appended to another file until it was told that there is no space.
 */
#include "check.h"

#include <linux/magic.h>
#include <sys/statfs.h>

#define WRITERS 2
#define BLOCK	4096
#define BLOCKS	256
#define WRITES	1500
#define LONGEST (3 * BLOCK)
#define SECONDS 100 /* for a call that waits for ever */

static uint64_t next(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return *seed >> 33;
}

static void name_of(char name[8], const char *what, int me)
{
	CHECK(snprintf(name, 8, "%s-%d", what, me) == 6);
}

static void fill_volume(int me)
{
	const size_t piece = 1 << 20;
	char *buf = malloc(piece);
	off_t size = 0;
	ssize_t n;
	char name[8];
	int fd;

	name_of(name, "rest", me);
	CHECK(buf && (fd = open(name, O_WRONLY)) >= 0);
	fill(buf, piece, 9, 0);
	while ((n = write(fd, buf, piece)) > 0)
		size += n;
	CHECK(n < 0 && errno == ENOSPC && (size > 0 || me > 0));
	CHECK(close(fd) == 0);
}

static void writer(int me, int go, int report)
{
	char *model = malloc(BLOCKS * BLOCK), *found = malloc(BLOCKS * BLOCK), name[8];
	uint64_t seed = (uint64_t)me + 1;
	int fd;

	alarm(SECONDS);
	name_of(name, "over", me);
	CHECK(model && found && (fd = open(name, O_RDWR)) >= 0);
	fill(model, BLOCKS * BLOCK, (unsigned)me, 0);
	hear(go);
	fill_volume(me);
	tell(report);
	hear(go);
	for (int i = 0; i < WRITES; i++) {
		const size_t n = next(&seed) % LONGEST + 1, off = next(&seed) % (BLOCKS * BLOCK - n);

		fill(model + off, n, (unsigned)(i + 7), off);
		CHECK(pwrite(fd, model + off, n, (off_t)off) == (ssize_t)n);
		if (i % 100 == 0)
			CHECK(fsync(fd) == 0);
	}
	CHECK(pread(fd, found, BLOCKS * BLOCK, 0) == BLOCKS * BLOCK);
	CHECK(memcmp(found, model, BLOCKS * BLOCK) == 0);
	CHECK(close(fd) == 0);
	CHECK((fd = open(name, O_RDONLY)) >= 0);
	memset(found, 0, BLOCKS * BLOCK);
	CHECK(pread(fd, found, BLOCKS * BLOCK, 0) == BLOCKS * BLOCK);
	CHECK(memcmp(found, model, BLOCKS * BLOCK) == 0);
	exit(0);
}

int main(void)
{
	int go[WRITERS][2], report[2];
	pid_t pid[WRITERS];
	const char *config = getenv("SPLITFS_CONFIG");
	struct statfs fs;

	CHECK(statfs(".", &fs) == 0);
	if ((uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize > 512ull << 20)
		SKIP("the file system is too large to be filled");
	if (fs.f_type == TMPFS_MAGIC && config && strncmp(config, "strict:", 7) == 0)
		SKIP("where relink copies an atomic write may find no staging space on a full volume");
	alarm(SECONDS);
	CHECK(pipe(report) == 0);
	for (int i = 0; i < WRITERS; i++) {
		char name[8];
		int fd;

		/* On a full volume there may be no inode for it. */
		name_of(name, "rest", i);
		CHECK((fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644)) >= 0 && close(fd) == 0);
		name_of(name, "over", i);
		CHECK((fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
		put(fd, (unsigned)i, 0, BLOCKS * BLOCK);
		CHECK(fsync(fd) == 0 && close(fd) == 0);
		CHECK(pipe(go[i]) == 0);
		pid[i] = fork();
		if (pid[i] == 0)
			writer(i, go[i][0], report[1]);
		CHECK(pid[i] > 0);
	}
	close(report[1]);
	for (int i = 0; i < WRITERS; i++) {
		tell(go[i][1]);
		hear(report[0]);
	}
	for (int i = 0; i < WRITERS; i++)
		tell(go[i][1]);
	for (int i = 0; i < WRITERS; i++)
		CHECK(status_of(pid[i]) == 0);
	return 0;
}
