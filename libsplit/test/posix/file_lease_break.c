/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases of fcntl(2) among processes: an open or truncate that conflicts, by a program with the library or without,
 * breaks one: the holder gets its signal, the other waits until the lease is given up, and each sees what the other has
 * written. Who has closed the file, or has it open for reading only by now, is not in the way of one.
 */
#include "check.h"

#include <poll.h>
#include <signal.h>

enum { SIZE = 300000 };

enum how { OPEN_READS, OPEN_WRITES, OPEN_UNSEEN, TRUNCATES, HOWS };

static sigset_t io;

static int silent(int from)
{
	struct pollfd p = {from, POLLIN, 0};

	return poll(&p, 1, 0) == 0;
}

/*
 * The agent has a descriptor of a file for an instant when somebody else has opened or closed it, and a machine that is busy can
 * make any instant long: who is in nobody's way gets the lease in the end.
 */
static int lease(int fd, int type)
{
	int r = fcntl(fd, F_SETLEASE, type);

	for (int tries = 0; r < 0 && errno == EAGAIN && tries < 1000; tries++) {
		usleep(5000);
		r = fcntl(fd, F_SETLEASE, type);
	}
	return r;
}

static void breaker(enum how how, int from, int to)
{
	int fd;

	alarm(100);
	hear(from);
	if (how == TRUNCATES) {
		CHECK(truncate("broken", SIZE / 2) == 0);
		tell(to);
		return;
	}
	FAILS(open("broken", O_RDWR | O_NONBLOCK), EWOULDBLOCK);
	tell(to); /* the break has begun */
	hear(from);
	if (how == OPEN_UNSEEN)
		fd = (int)unseen(SYS_openat, AT_FDCWD, (long)"broken", O_RDWR, 0);
	else
		fd = open("broken", how == OPEN_READS ? O_RDONLY : O_RDWR);
	CHECK(fd >= 0);
	tell(to);
	CHECK(size_of(fd) == 2 * SIZE);
	expect(fd, 1, 0, 2 * SIZE);
	if (how != OPEN_READS)
		put(fd, 9, SIZE, 1000);
	CHECK(close(fd) == 0);
	tell(to);
}

/* The signal, and what the other does, as a file server that gives an oplock up. */
static void broken(enum how how, int sig)
{
	const struct timespec soon = {60, 0};
	int there[2], back[2], fd;
	sigset_t set;
	siginfo_t info;
	pid_t pid;

	CHECK(pipe(there) == 0 && pipe(back) == 0 && sigemptyset(&set) == 0 && sigaddset(&set, sig) == 0);
	CHECK((pid = fork()) >= 0);
	if (pid == 0) {
		breaker(how, there[0], back[1]);
		exit(0);
	}
	CHECK((fd = open("broken", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
	put(fd, 1, 0, SIZE);
	if (sig != SIGIO)
		CHECK(fcntl(fd, F_SETSIG, sig) == 0);
	CHECK(lease(fd, F_WRLCK) == 0);
	if (sig != SIGIO)
		CHECK(fcntl(fd, F_GETSIG) == sig);
	put(fd, 1, SIZE, SIZE);
	tell(there[1]);
	if (how != TRUNCATES)
		hear(back[0]);
	CHECK(sigtimedwait(&set, &info, &soon) == sig && (sig == SIGIO || info.si_fd == fd));
	CHECK(fcntl(fd, F_GETLEASE) == F_UNLCK); /* what it is to become */
	if (how != TRUNCATES)
		tell(there[1]);
	/* It goes on being served, and nobody is let in. */
	put(fd, 1, SIZE, SIZE);
	expect(fd, 1, 0, SIZE);
	CHECK(silent(back[0]));
	if (how == TRUNCATES) /* who waits is about to write */
		FAILS(fcntl(fd, F_SETLEASE, F_RDLCK), EAGAIN);
	CHECK(fcntl(fd, F_SETLEASE, F_UNLCK) == 0);
	hear(back[0]);
	if (how == TRUNCATES) {
		CHECK(size_of(fd) == SIZE / 2);
	} else {
		hear(back[0]);
		expect(fd, 1, 0, SIZE);
		expect(fd, how == OPEN_READS ? 1 : 9, SIZE, 1000);
	}
	put(fd, 7, 0, SIZE / 2);
	CHECK(status_of(pid) == 0);
	expect(fd, 7, 0, SIZE / 2);
	CHECK(close(fd) == 0 && close(there[0]) == 0 && close(there[1]) == 0 && close(back[0]) == 0 && close(back[1]) == 0);
}

/* A lease for writing becomes one for reading when somebody wants to read. */
static void downgraded(void)
{
	const struct timespec soon = {60, 0};
	int there[2], back[2], fd;
	pid_t pid;

	CHECK(pipe(there) == 0 && pipe(back) == 0 && (pid = fork()) >= 0);
	if (pid == 0) {
		alarm(100);
		hear(there[0]);
		CHECK((fd = open("down", O_RDONLY)) >= 0);
		expect(fd, 1, 0, SIZE);
		tell(back[1]);
		hear(there[0]);
		expect(fd, 1, 0, SIZE);
		exit(0);
	}
	CHECK((fd = open("down", O_RDWR | O_CREAT, 0644)) >= 0);
	put(fd, 1, 0, SIZE);
	CHECK(close(fd) == 0 && (fd = open("down", O_RDONLY)) >= 0);
	CHECK(lease(fd, F_WRLCK) == 0);
	tell(there[1]);
	CHECK(sigtimedwait(&io, NULL, &soon) == SIGIO && fcntl(fd, F_GETLEASE) == F_RDLCK);
	CHECK(silent(back[0]) && fcntl(fd, F_SETLEASE, F_RDLCK) == 0);
	hear(back[0]);
	CHECK(fcntl(fd, F_GETLEASE) == F_RDLCK);
	expect(fd, 1, 0, SIZE);
	tell(there[1]);
	CHECK(status_of(pid) == 0 && lease(fd, F_WRLCK) == 0 && close(fd) == 0);
}

/* Another process has written the file, and has it open no more, or for reading only. */
static void left(int keeps)
{
	int back[2], there[2], fd;
	pid_t pid;

	CHECK(pipe(back) == 0 && pipe(there) == 0 && (pid = fork()) >= 0);
	if (pid == 0) {
		int other;

		alarm(100);
		CHECK((fd = open("left", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
		put(fd, 1, 0, SIZE);
		CHECK((other = open("left", O_RDONLY)) >= 0);
		expect(other, 1, 0, SIZE);
		CHECK(close(fd) == 0 && (keeps || close(other) == 0));
		tell(back[1]);
		hear(there[0]);
		exit(0);
	}
	hear(back[0]);
	CHECK((fd = open("left", O_RDONLY)) >= 0);
	expect(fd, 1, 0, SIZE);
	CHECK(fcntl(fd, F_SETLEASE, F_RDLCK) == 0);
	if (keeps)
		FAILS(fcntl(fd, F_SETLEASE, F_WRLCK), EAGAIN);
	else
		CHECK(lease(fd, F_WRLCK) == 0);
	expect(fd, 1, 0, SIZE);
	tell(there[1]);
	CHECK(status_of(pid) == 0 && close(fd) == 0);
}

/* The kernel takes a lease away with the process that has it. */
static void killed(void)
{
	int back[2], fd;
	char c;
	pid_t pid;

	CHECK(pipe(back) == 0 && (pid = fork()) >= 0);
	if (pid == 0) {
		alarm(100);
		CHECK((fd = open("killed", O_RDWR | O_CREAT, 0644)) >= 0);
		put(fd, 1, 0, SIZE);
		CHECK(lease(fd, F_WRLCK) == 0);
		put(fd, 1, SIZE, SIZE);
		tell(back[1]);
		for (;;)
			pause();
	}
	CHECK(read(back[0], &c, 1) == 1);
	CHECK(kill(pid, SIGKILL) == 0 && status_of(pid) == 128 + SIGKILL);
	CHECK((fd = open("killed", O_RDWR)) >= 0 && size_of(fd) == 2 * SIZE);
	expect(fd, 1, 0, 2 * SIZE);
	put(fd, 2, 0, SIZE);
	CHECK(fcntl(fd, F_SETLEASE, F_WRLCK) == 0 && close(fd) == 0);
}

int main(void)
{
	int fd;

	alarm(100); /* and each child: one whose partner has failed ends */
	CHECK(sigemptyset(&io) == 0 && sigaddset(&io, SIGIO) == 0 && sigaddset(&io, SIGRTMIN + 3) == 0);
	CHECK(sigprocmask(SIG_BLOCK, &io, NULL) == 0 && sigdelset(&io, SIGRTMIN + 3) == 0);
	CHECK((fd = open("try", O_RDWR | O_CREAT, 0644)) >= 0);
	if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0 && (errno == EINVAL || errno == EACCES || errno == ENOSYS))
		SKIP("no leases on this file system");
	CHECK(close(fd) == 0);
	for (enum how how = 0; how < HOWS; how++)
		broken(how, how % 2 ? SIGIO : SIGRTMIN + 3);
	downgraded();
	left(0);
	left(1);
	killed();
	return 0;
}
