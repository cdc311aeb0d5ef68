/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes look at snapshots of the same range while a third one changes the file: with the library or without, by overwriting,
 * truncating, replacing or removing it. Both live; one of them is killed before the change; or one is stopped, and goes on after it. Each
 * snapshot stays what it was, the change is there in the end, and of a process that is killed nothing is left: snapshots of the file are
 * without a copy again.
 */
#include <time.h>

#include "peek.h"

enum { SIZE = 20 * BLOCK + 77, WAIT_MS = 20000 };
enum fate { LIVES, KILLED, STOPPED };

struct peeker {
	pid_t pid;
	int go[2], said[2];
};

/* Asked once to take its snapshot, and a second time to look at it again and give it back. */
static void look(const struct peeker *k)
{
	const void *p;
	int fd;

	hear(k->go[0]);
	fd = open("file", O_RDONLY);
	CHECK(fd >= 0);
	p = snapshot(fd, 1, 0, SIZE);
	CHECK(write(k->said[1], in_file(p, fd) ? "f" : "c", 1) == 1);
	CHECK(close(fd) == 0);
	hear(k->go[0]);
	expect_snapshot(p, 1, 0, SIZE);
	CHECK(splitfs_unpeek(p) == 0);
	tell(k->said[1]);
	hear(k->go[0]);
	_exit(0);
}

static void start(struct peeker *k)
{
	CHECK(pipe(k->go) == 0 && pipe(k->said) == 0);
	k->pid = fork();
	CHECK(k->pid >= 0);
	if (k->pid == 0)
		look(k);
}

/* True: its snapshot is the file's own memory. */
static int ask(const struct peeker *k)
{
	char c;

	tell(k->go[1]);
	CHECK(read(k->said[0], &c, 1) == 1);
	return c == 'f';
}

static void end(const struct peeker *k, enum fate fate)
{
	if (fate != KILLED) {
		tell(k->go[1]);
		CHECK(status_of(k->pid) == 0);
	}
	for (int i = 0; i < 2; i++)
		CHECK(close(k->go[i]) == 0 && close(k->said[i]) == 0);
}

static void overwrites(void)
{
	const int fd = open("file", O_RDWR);

	CHECK(fd >= 0);
	put(fd, 2, 0, SIZE);
	CHECK(close(fd) == 0);
}

static void truncates(void)
{
	const int fd = open("file", O_RDWR);

	CHECK(fd >= 0 && ftruncate(fd, 0) == 0);
	put(fd, 2, 0, SIZE);
	CHECK(close(fd) == 0);
}

static void removes(void)
{
	int fd;

	CHECK(unlink("file") == 0);
	fd = open("file", O_RDWR | O_CREAT | O_EXCL, 0600);
	CHECK(fd >= 0);
	put(fd, 2, 0, SIZE);
	CHECK(close(fd) == 0);
}

static void replaces(void)
{
	const int fd = open("new", O_RDWR | O_CREAT | O_EXCL, 0600);

	CHECK(fd >= 0);
	put(fd, 2, 0, SIZE);
	CHECK(close(fd) == 0 && rename("new", "file") == 0);
}

static void overwrites_unseen(void)
{
	const int fd = (int)unseen(SYS_openat, AT_FDCWD, (long)"file", O_WRONLY, 0);
	char buf[SIZE];

	CHECK(fd >= 0);
	fill(buf, sizeof(buf), 2, 0);
	CHECK(unseen(SYS_pwrite64, fd, (long)buf, sizeof(buf), 0) == sizeof(buf));
	CHECK(unseen(SYS_close, fd, 0, 0, 0) == 0);
}

static int own; /* snapshots without a copy */

static unsigned long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (unsigned long)t.tv_sec * 1000 + (unsigned long)t.tv_nsec / 1000000;
}

/* Whoever is gone keeps the file from nobody. An agent that is not root's may not watch files, and snapshots are copies then. */
static void expect_own(void)
{
	const unsigned long limit = now_ms() + WAIT_MS;
	int again = !served() || geteuid() != 0;

	while (!again) {
		const int fd = open("file", O_RDONLY);
		const void *p = snapshot(fd, 2, 0, SIZE);

		again = in_file(p, fd);
		CHECK(splitfs_unpeek(p) == 0 && close(fd) == 0);
		CHECK(again || now_ms() < limit);
		usleep(again ? 0 : 5000);
	}
}

static void try(void (*changes)(void), enum fate fate, int first_one)
{
	struct peeker two[2], *one = &two[!first_one];
	int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
	pid_t third;

	put(fd, 1, 0, SIZE);
	CHECK(close(fd) == 0);
	for (int i = 0; i < 2; i++)
		start(&two[i]);
	for (int i = 0; i < 2; i++)
		own += ask(&two[i]);
	if (fate == KILLED)
		CHECK(kill(one->pid, SIGKILL) == 0 && status_of(one->pid) == 128 + SIGKILL);
	if (fate == STOPPED)
		CHECK(kill(one->pid, SIGSTOP) == 0 && waitpid(one->pid, NULL, WUNTRACED) == one->pid);
	third = fork();
	if (third == 0) {
		changes();
		_exit(0);
	}
	/* It may wait for the one that is stopped, and the other one's snapshot stays meanwhile, too. */
	if (fate == STOPPED) {
		usleep(100000);
		ask(&two[first_one]);
		CHECK(kill(one->pid, SIGCONT) == 0);
	}
	CHECK(status_of(third) == 0);
	for (int i = 0; i < 2; i++)
		if ((fate != KILLED || &two[i] != one) && (fate != STOPPED || &two[i] == one))
			ask(&two[i]);
	fd = open("file", O_RDONLY);
	expect(fd, 2, 0, SIZE);
	CHECK(close(fd) == 0);
	for (int i = 0; i < 2; i++)
		end(&two[i], &two[i] == one ? fate : LIVES);
	expect_own();
	CHECK(unlink("file") == 0);
}

int main(void)
{
	static void (*const changes[])(void) = {overwrites, truncates, removes, replaces, overwrites_unseen};

	splitfs_flags(SPLITFS_COPY);
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)
		for (enum fate fate = LIVES; fate <= STOPPED; fate++)
			for (int first_one = 0; first_one < 2; first_one++)
				try(changes[i], fate, first_one);
	CHECK(own > 0 || !served() || geteuid() != 0);
	return 0;
}
