/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases of fcntl(2) in one process: who has the file open alone gets one, whatever was written to it before; all calls
 * work while it is held, and after it; dup shares it, exec keeps it, the last close ends it.
 */
#include "check.h"

#include <signal.h>
#include <sys/mman.h>

enum { SIZE = 200000 };

static int lease_of(int fd)
{
	return fcntl(fd, F_GETLEASE);
}

static int open_file(const char *name)
{
	const int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);

	CHECK(fd >= 0);
	return fd;
}

static void use(int fd, const char *name)
{
	struct stat st;

	put(fd, 2, SIZE, SIZE);
	put(fd, 3, 1000, 5000);
	expect(fd, 1, 0, 1000);
	expect(fd, 3, 1000, 5000);
	expect(fd, 2, SIZE, SIZE);
	CHECK(size_of(fd) == 2 * SIZE && stat(name, &st) == 0 && st.st_size == 2 * SIZE);
	CHECK(fsync(fd) == 0);
	CHECK(ftruncate(fd, SIZE + 5000) == 0 && size_of(fd) == SIZE + 5000);
	CHECK(lseek(fd, 0, SEEK_END) == SIZE + 5000);
	expect(fd, 2, SIZE, 5000);
	CHECK(fallocate(fd, 0, 0, SIZE) == 0);
	put(fd, 1, 0, SIZE);
	CHECK(ftruncate(fd, SIZE) == 0);
}

/* Staged bytes, bytes in place, an append that goes on: before, with and after the lease. */
static void calls(void)
{
	const int fd = open_file("calls");

	put(fd, 1, 0, SIZE / 2);
	CHECK(fsync(fd) == 0);
	put(fd, 1, SIZE / 2, SIZE / 2);
	for (int round = 0; round < 3; round++) {
		CHECK(fcntl(fd, F_SETLEASE, F_WRLCK) == 0);
		CHECK(lease_of(fd) == F_WRLCK);
		use(fd, "calls");
		CHECK(unseen_size(fd) == SIZE);
		CHECK(lease_of(fd) == F_WRLCK);
		CHECK(fcntl(fd, F_SETLEASE, F_UNLCK) == 0);
		CHECK(lease_of(fd) == F_UNLCK);
		use(fd, "calls");
	}
	CHECK(close(fd) == 0);
}

/* Whoever has it open, too, is in the way; but not for reading together. */
static void refused(void)
{
	int fd = open_file("refused"), other;

	put(fd, 1, 0, SIZE);
	CHECK((other = open("refused", O_RDONLY)) >= 0);
	expect(other, 1, 0, SIZE);
	FAILS(fcntl(fd, F_SETLEASE, F_WRLCK), EAGAIN);
	FAILS(fcntl(fd, F_SETLEASE, F_RDLCK), EAGAIN); /* it is open for writing */
	FAILS(fcntl(other, F_SETLEASE, F_RDLCK), EAGAIN);
	FAILS(fcntl(fd, F_SETLEASE, 77), EINVAL);
	put(fd, 1, SIZE, SIZE);
	expect(other, 1, SIZE, SIZE);
	CHECK(close(fd) == 0);
	CHECK(fcntl(other, F_SETLEASE, F_RDLCK) == 0);
	CHECK((fd = open("refused", O_RDONLY)) >= 0);
	expect(fd, 1, 0, SIZE);
	FAILS(fcntl(other, F_SETLEASE, F_WRLCK), EAGAIN);
	CHECK(lease_of(other) == F_RDLCK && lease_of(fd) == F_UNLCK);
	CHECK(close(fd) == 0 && fcntl(other, F_SETLEASE, F_WRLCK) == 0 && lease_of(other) == F_WRLCK);
	expect(other, 1, 0, 2 * SIZE);
	CHECK(fcntl(other, F_SETLEASE, F_RDLCK) == 0 && close(other) == 0);
}

/* By number, and by descriptors of one description. */
static void shared(void)
{
	int fd = open_file("shared"), copy;

	put(fd, 1, 0, SIZE);
	CHECK((copy = dup(fd)) >= 0 && syscall(SYS_fcntl, fd, F_SETLEASE, F_WRLCK) == 0);
	CHECK(lease_of(copy) == F_WRLCK && syscall(SYS_fcntl, copy, F_GETLEASE) == F_WRLCK);
	CHECK(close(fd) == 0 && lease_of(copy) == F_WRLCK);
	use(copy, "shared");
	CHECK((fd = fcntl(copy, F_DUPFD_CLOEXEC, 100)) == 100 && close(copy) == 0);
	use(fd, "shared");
	CHECK(lease_of(fd) == F_WRLCK && close(fd) == 0);
	/* It has gone with the last of them: nothing is broken. */
	CHECK((fd = open("shared", O_RDWR)) >= 0 && lease_of(fd) == F_UNLCK);
	put(fd, 4, 0, SIZE);
	expect(fd, 4, 0, SIZE);
	CHECK(close(fd) == 0);
}

static void mapped(void)
{
	const int fd = open_file("mapped");
	char *p;

	put(fd, 1, 0, SIZE);
	p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED && fcntl(fd, F_SETLEASE, F_WRLCK) == 0);
	p[5] = 'x';
	put(fd, 1, 0, 5);
	CHECK(pread(fd, p + 6, 1, 5) == 1 && p[6] == 'x');
	CHECK(fcntl(fd, F_SETLEASE, F_UNLCK) == 0 && munmap(p, SIZE) == 0 && close(fd) == 0);
}

/* A lock of the process stays whatever we close; a lease may be refused then, or not. */
static void locked(void)
{
	struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET}, seen = all;
	const int fd = open_file("locked");
	pid_t pid;

	put(fd, 1, 0, SIZE);
	CHECK(fcntl(fd, F_SETLK, &all) == 0);
	CHECK(fcntl(fd, F_SETLEASE, F_WRLCK) == 0 || errno == EAGAIN);
	put(fd, 1, SIZE, SIZE);
	CHECK(fcntl(fd, F_SETLEASE, F_UNLCK) == 0 || errno == EAGAIN);
	put(fd, 1, 0, SIZE);
	CHECK((pid = fork()) >= 0);
	if (pid == 0) {
		CHECK(fcntl(fd, F_GETLK, &seen) == 0 && seen.l_type == F_WRLCK && seen.l_pid == getppid());
		_exit(0);
	}
	CHECK(status_of(pid) == 0);
	all.l_type = F_UNLCK;
	CHECK(fcntl(fd, F_SETLK, &all) == 0 && close(fd) == 0);
	/* Taken while there is a lease, it is there after it. */
	const int later = open_file("later");

	all.l_type = F_WRLCK;
	put(later, 1, 0, SIZE);
	CHECK(fcntl(later, F_SETLEASE, F_WRLCK) == 0 && fcntl(later, F_SETLK, &all) == 0);
	put(later, 1, SIZE, SIZE);
	CHECK(fcntl(later, F_SETLEASE, F_UNLCK) == 0);
	put(later, 1, 0, SIZE);
	CHECK((pid = fork()) >= 0);
	if (pid == 0) {
		CHECK(fcntl(later, F_GETLK, &seen) == 0 && seen.l_type == F_WRLCK && seen.l_pid == getppid());
		_exit(0);
	}
	CHECK(status_of(pid) == 0 && close(later) == 0);
}

static void on_io(int sig)
{
	(void)sig;
	_exit(3); /* nobody opens the file */
}

/* The program goes on as another one: the lease is there, and its library breaks it no more than this one's. */
static void executed(const char *self)
{
	const int fd = open_file("executed");
	char number[12];
	pid_t pid;

	put(fd, 1, 0, SIZE);
	CHECK(fcntl(fd, F_SETLEASE, F_WRLCK) == 0);
	sprintf(number, "%d", fd);
	CHECK((pid = fork()) >= 0);
	if (pid == 0) {
		execl(self, self, number, NULL);
		_exit(1);
	}
	CHECK(status_of(pid) == 0);
	/* Whoever has the description may end it. */
	CHECK(lease_of(fd) == F_UNLCK);
	expect(fd, 1, 0, 1000);
	expect(fd, 5, SIZE, SIZE);
	use(fd, "executed");
	CHECK(close(fd) == 0);
}

static int heir(int fd)
{
	CHECK(lease_of(fd) == F_WRLCK);
	expect(fd, 1, 0, SIZE);
	put(fd, 5, SIZE, SIZE);
	CHECK(fsync(fd) == 0);
	CHECK(lease_of(fd) == F_WRLCK && fcntl(fd, F_SETLEASE, F_UNLCK) == 0);
	put(fd, 5, SIZE, SIZE);
	return 0;
}

int main(int argc, char **argv)
{
	int fd;

	alarm(100);
	signal(SIGIO, on_io);
	if (argc == 2)
		return heir(atoi(argv[1]));
	fd = open_file("try");
	if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0 && (errno == EINVAL || errno == EACCES || errno == ENOSYS))
		SKIP("no leases on this file system");
	CHECK(close(fd) == 0);
	calls();
	refused();
	shared();
	mapped();
	locked();
	executed(argv[0]);
	return 0;
}
