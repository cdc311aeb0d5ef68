/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever this process does to a file, a snapshot of it stays what it was, and the file becomes what it should. */
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/sendfile.h>

#include "peek.h"

enum { SIZE = 40 * BLOCK + 123 };

static int fd;

static void overwrite(void)
{
	put(fd, 2, 0, SIZE);
}

static void overwrite_small(void)
{
	for (int i = 0; i < 30; i++)
		put(fd, 2, i * BLOCK + 99, 50);
	CHECK(fsync(fd) == 0);
	for (int i = 0; i < 30; i++)
		put(fd, 3, i * BLOCK + 99, 50);
}

static void append(void)
{
	put(fd, 1, SIZE, 3 * BLOCK);
	CHECK(fsync(fd) == 0);
	put(fd, 1, SIZE + 3 * BLOCK, 10);
}

static void truncated(void)
{
	CHECK(ftruncate(fd, 10 * BLOCK + 11) == 0);
	put(fd, 4, 10 * BLOCK + 11, SIZE);
}

static void truncated_by_name(void)
{
	CHECK(truncate("file", 0) == 0);
	put(fd, 4, 0, SIZE);
}

static void opened_anew(void)
{
	int other = open("file", O_WRONLY | O_TRUNC);

	put(other, 5, 0, 3 * BLOCK);
	CHECK(close(other) == 0);
}

static void punched(void)
{
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, BLOCK, 20 * BLOCK) < 0)
		CHECK(errno == EOPNOTSUPP);
	CHECK(fallocate(fd, 0, 0, 2 * SIZE) == 0);
}

static void unlinked(void)
{
	CHECK(unlink("file") == 0);
	put(fd, 6, 5, SIZE);
}

static void replaced(void)
{
	int other = open("other", O_RDWR | O_CREAT, 0600);

	put(other, 7, 0, SIZE);
	CHECK(close(other) == 0 && rename("other", "file") == 0);
}

/* Closed, and the blocks given to others. */
static void closed(void)
{
	CHECK(unlink("file") == 0 && close(fd) == 0);
	for (int i = 0; i < 3; i++) {
		fd = open("next", O_RDWR | O_CREAT | O_TRUNC, 0600);
		put(fd, 8, 0, SIZE);
		CHECK(fsync(fd) == 0 && close(fd) == 0 && unlink("next") == 0);
	}
	fd = open("file", O_RDWR | O_CREAT, 0600);
}

static void closed_and_reopened(void)
{
	CHECK(close(fd) == 0);
	fd = open("file", O_RDWR);
	put(fd, 9, 3, 20 * BLOCK);
	CHECK(close(fd) == 0);
	fd = open("file", O_RDWR | O_TRUNC);
	put(fd, 9, 0, SIZE);
}

static void by_the_kernel(void)
{
	int other = open("source", O_RDWR | O_CREAT, 0600);
	struct iovec iov;
	char buf[3 * BLOCK];
	off_t from = 0, to = 0;

	fill(buf, sizeof(buf), 10, 0);
	iov = (struct iovec){buf, sizeof(buf)};
	put(other, 11, 0, SIZE);
	CHECK(pwritev2(fd, &iov, 1, 7 * BLOCK, RWF_HIPRI) == sizeof(buf));
	CHECK(copy_file_range(other, &from, fd, &to, 5 * BLOCK, 0) == 5 * BLOCK);
	CHECK(lseek(fd, 20 * BLOCK, SEEK_SET) == 20 * BLOCK && sendfile(fd, other, &from, 3 * BLOCK) == 3 * BLOCK);
	CHECK(close(other) == 0);
}

static void by_stdio(void)
{
	FILE *f = fopen("file", "w");

	CHECK(f && fputs("short", f) >= 0 && fclose(f) == 0);
}

static void by_mapping(void)
{
	char *m = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHECK(m != MAP_FAILED);
	memset(m, 'm', SIZE);
	CHECK(munmap(m, SIZE) == 0);
}

static void synced(void)
{
	put(fd, 12, 0, 3 * BLOCK);
	CHECK(fsync(fd) == 0);
	put(fd, 13, 1000, 9 * BLOCK);
	CHECK(fdatasync(fd) == 0);
	sync();
}

static void waited_for(void)
{
	put(fd, 14, 1000, 9 * BLOCK);
	usleep(250000);
}

static const struct {
	void (*change)(void);
	const char *name;
} changes[] = {
#define CHANGE(f)                                                                                                              \
	{                                                                                                                      \
		f, #f                                                                                                          \
	}
	CHANGE(overwrite),	   CHANGE(overwrite_small), CHANGE(append),
	CHANGE(truncated),	   CHANGE(synced),	    CHANGE(waited_for),
	CHANGE(truncated_by_name), CHANGE(opened_anew),	    CHANGE(punched),
	CHANGE(unlinked),	   CHANGE(replaced),	    CHANGE(closed),
	CHANGE(by_stdio),	   CHANGE(by_the_kernel),   CHANGE(closed_and_reopened),
	CHANGE(by_mapping),
};

enum { PIECES = 5 };
static const struct {
	off_t off;
	size_t n;
} piece[PIECES] = {{0, SIZE}, {0, BLOCK}, {7, 3 * BLOCK}, {10 * BLOCK - 5, 10}, {SIZE - 100, 100}};

/* Snapshots before the change, all of the file and parts of it; what they are before, in the middle and afterwards. */
static void try(void (*change)(void), int flags)
{
	const void *p[PIECES];

	unlink("file");
	fd = open("file", O_RDWR | O_CREAT, 0600);
	put(fd, 1, 0, SIZE);
	if (flags) {
		CHECK(fsync(fd) == 0);
		expect(fd, 1, 0, SIZE);
	}
	for (int i = 0; i < PIECES; i++)
		p[i] = snapshot(fd, 1, piece[i].off, piece[i].n);
	CHECK(splitfs_unpeek(p[1]) == 0);
	change();
	p[1] = p[0];
	for (int i = 0; i < PIECES; i++)
		expect_snapshot(p[i], 1, piece[i].off, piece[i].n);
	CHECK(store_faults(p[2]) == SIGSEGV);
	close(fd);
	for (int i = PIECES - 1; i >= 0; i--) {
		expect_snapshot(p[i], 1, piece[i].off, piece[i].n);
		if (i != 1)
			CHECK(splitfs_unpeek(p[i]) == 0);
	}
	FAILS(splitfs_unpeek(p[0]), EINVAL);
}

/* What comes after a change is what the next snapshot shows, and each keeps its own. */
static void layers(void)
{
	const void *p[20];

	unlink("file");
	fd = open("file", O_RDWR | O_CREAT, 0600);
	for (unsigned i = 0; i < 20; i++) {
		put(fd, i, 0, 8 * BLOCK);
		p[i] = snapshot(fd, i, 0, 8 * BLOCK);
		if (i % 3 == 0)
			CHECK(fsync(fd) == 0);
	}
	for (unsigned i = 0; i < 20; i++) {
		expect_snapshot(p[i], i, 0, 8 * BLOCK);
		expect(fd, 19, 0, 8 * BLOCK);
	}
	for (unsigned i = 0; i < 20; i += 2)
		CHECK(splitfs_unpeek(p[i]) == 0);
	for (unsigned i = 1; i < 20; i += 2) {
		expect_snapshot(p[i], i, 0, 8 * BLOCK);
		CHECK(splitfs_unpeek(p[i]) == 0);
	}
	CHECK(close(fd) == 0);
}

int main(void)
{
	splitfs_flags(served() ? 0 : SPLITFS_COPY);
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)
		for (int flags = 0; flags < 2; flags++) {
			fprintf(stderr, "%s %d\n", changes[i].name, flags);
			try(changes[i].change, flags);
		}
	layers();
	return 0;
}
