/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process without the library and a file that this one may only read. One that comes later is let in when the
 * snapshot has been copied, if it writes; if it reads the snapshot stays the file's own memory. One that has the file
 * open for writing already, or mapped, makes snapshots copies.
 */
#include <sys/mman.h>

#include "peek.h"

enum { SIZE = 30 * BLOCK + 5 };

static int fd, go[2], done[2];

static int open_unseen(int flags)
{
	const int f = (int)unseen(SYS_openat, AT_FDCWD, (long)"file", flags, 0);

	CHECK(f >= 0);
	return f;
}

/*
 * Runs in a process of its own, which has never told the agent of itself. before: what it opens before the snapshot
 * is taken.
 */
static pid_t other(int (*before)(void), void (*after)(int))
{
	const pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		const int f = before ? before() : -1;

		tell(done[1]);
		hear(go[0]);
		after(f);
		_exit(0);
	}
	hear(done[0]);
	return pid;
}

static void writes(int f)
{
	char buf[SIZE];

	f = f < 0 ? open_unseen(O_WRONLY) : f;
	memset(buf, 'w', sizeof(buf));
	CHECK(unseen(SYS_pwrite64, f, (long)buf, sizeof(buf), 0) == sizeof(buf));
	CHECK(unseen(SYS_ftruncate, f, 100, 0, 0) == 0);
}

static void reads(int f)
{
	char buf[100];

	f = open_unseen(O_RDONLY);
	CHECK(unseen(SYS_pread64, f, (long)buf, sizeof(buf), 0) == sizeof(buf));
	expect_snapshot(buf, 1, 0, sizeof(buf));
}

static int write_open(void)
{
	return open_unseen(O_RDWR);
}

static char *map;

/* mmap(2) of a first block, seen by no library. */
static char *map_unseen(int f)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = MAP_SHARED, r8 __asm__("r8") = f, r9 __asm__("r9") = 0;
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(SYS_mmap), "D"(0), "S"(BLOCK), "d"(PROT_READ | PROT_WRITE), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
#else
	register long x8 __asm__("x8") = SYS_mmap, r __asm__("x0") = 0, x1 __asm__("x1") = BLOCK;
	register long x2 __asm__("x2") = PROT_READ | PROT_WRITE, x3 __asm__("x3") = MAP_SHARED, x4 __asm__("x4") = f;
	register long x5 __asm__("x5") = 0;

	__asm__ volatile("svc #0" : "+r"(r) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory", "cc");
#endif
	CHECK(r > 0);
	return (char *)r;
}

static int maps(void)
{
	const int f = open_unseen(O_RDWR);

	map = map_unseen(f);
	CHECK(unseen(SYS_close, f, 0, 0, 0) == 0);
	return -1;
}

static void stores(int f)
{
	(void)f;
	memset(map, 's', BLOCK);
}

static void make_file(void)
{
	/* By another process: this one has never had it open for writing. */
	const pid_t pid = fork();

	if (pid == 0) {
		fd = open_unseen(O_WRONLY | O_CREAT | O_TRUNC);
		for (off_t at = 0; at < SIZE; at++) {
			const char c = (char)byte_at(1, (uint64_t)at);

			CHECK(unseen(SYS_pwrite64, fd, (long)&c, 1, at) == 1);
		}
		_exit(0);
	}
	CHECK(status_of(pid) == 0);
}

enum own { OWN, COPY };

static void try(int (*before)(void), void (*after)(int), enum own at_first, enum own at_last)
{
	const void *p;
	pid_t pid;

	unlink("file");
	CHECK(close((int)unseen(SYS_openat, AT_FDCWD, (long)"file", O_CREAT | O_RDONLY, 0600)) == 0);
	make_file();
	pid = other(before, after);
	fd = open("file", O_RDONLY);
	CHECK(fd >= 0);
	p = snapshot(fd, 1, 0, SIZE);
	if (served())
		CHECK(in_file(p, fd) == (at_first == OWN));
	CHECK(close(fd) == 0);
	tell(go[1]);
	CHECK(status_of(pid) == 0);
	expect_snapshot(p, 1, 0, SIZE);
	fd = open("file", O_RDONLY);
	if (served())
		CHECK(in_file(p, fd) == (at_last == OWN));
	CHECK(splitfs_unpeek(p) == 0 && close(fd) == 0);
}

int main(void)
{
	splitfs_flags(SPLITFS_COPY);
	CHECK(pipe(go) == 0 && pipe(done) == 0);
	try(NULL, reads, OWN, OWN);
	try(NULL, writes, OWN, COPY);
	try(write_open, writes, COPY, COPY);
	try(maps, stores, COPY, COPY);
	return 0;
}
