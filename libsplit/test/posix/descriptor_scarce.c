/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the soft limit of descriptors is the hard one, a program may have as many files open as it says, but for a
 * few; it writes, reads, locks and fsyncs all of them, closes them one by one, by dup2 and by range, and gives them
 * to the child of a fork and to another program.
 */
#include "check.h"

#include <stdbool.h>
#include <sys/resource.h>

enum { FEW = 16, MOST = 512, FIRST = 5000, SECOND = 9000, LOCKED = 5 };

static int fds[MOST], others;

/* How many descriptors were there before the first file? */
static int in_use(int limit)
{
	int n = 0;

	for (int fd = 0; fd < limit; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static unsigned seed(int file)
{
	return (unsigned)file + 1;
}

static int open_file(int file, int flags)
{
	char name[32];

	sprintf(name, "f%d", file);
	return open(name, flags, 0644);
}

/* All that the limit allows; how many. writes: to each when it has been opened, else they are there. */
static int open_all(int limit, bool writes)
{
	int n = 0;

	for (;; n++) {
		CHECK(n < MOST);
		fds[n] = open_file(n, O_RDWR | (writes ? O_CREAT | O_TRUNC : 0));
		if (fds[n] < 0)
			break;
		if (writes)
			put(fds[n], seed(n), 0, FIRST);
	}
	CHECK(errno == EMFILE || (errno == ENOENT && !writes));
	CHECK(n >= limit - others - FEW);
	return n;
}

static void use_all(int n)
{
	/* Two turns: the second finds those that had to do without a descriptor of the library. */
	for (int i = 0; i < n; i++)
		put(fds[i], seed(i), FIRST, SECOND - FIRST);
	for (int i = 0; i < n; i++)
		put(fds[i], seed(i), SECOND, 100);
	for (int i = 0; i < n; i++) {
		expect(fds[i], seed(i), 0, SECOND + 100);
		CHECK(size_of(fds[i]) == SECOND + 100);
		CHECK(fsync(fds[i]) == 0);
	}
}

/* Locks of this process stay, whatever the library opens and closes. */
static void lock_some(int n)
{
	struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int status;
	pid_t pid;

	for (int i = 0; i < LOCKED; i++)
		CHECK(fcntl(fds[i], F_SETLK, &all) == 0);
	use_all(n);
	CHECK((pid = fork()) >= 0);
	if (pid == 0) {
		for (int i = 0; i < LOCKED; i++) {
			struct flock seen = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

			CHECK(fcntl(fds[i], F_GETLK, &seen) == 0);
			CHECK(seen.l_type == F_WRLCK && seen.l_pid == getppid());
		}
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	all.l_type = F_UNLCK;
	for (int i = 0; i < LOCKED; i++)
		CHECK(fcntl(fds[i], F_SETLK, &all) == 0);
}

/* A child and another program write with all these descriptors open. */
static void give_away(int n, const char *self)
{
	char numbers[MOST][8], *args[MOST + 3] = {(char *)self, "inherited"};
	int status;
	pid_t pid;

	for (int i = 0; i < n - FEW; i++) {
		sprintf(numbers[i], "%hd", (short)fds[i]);
		args[i + 2] = numbers[i];
	}
	for (int other = 0; other < 2; other++) {
		for (int i = 0; i < n; i++)
			put(fds[i], seed(i), FIRST, 50); /* something is staged when it forks */
		CHECK((pid = fork()) >= 0);
		if (pid == 0 && other) {
			/* Its loader needs a few. */
			for (int i = n - FEW; i < n; i++)
				CHECK(close(fds[i]) == 0);
			execv(self, args);
			_exit(1);
		}
		if (pid == 0) {
			use_all(n);
			_exit(0);
		}
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
		for (int i = 0; i < n; i++)
			expect(fds[i], seed(i), 0, SECOND + 100);
	}
}

/* What has just been written must not be lost with the last descriptor, however that goes. */
static void close_all(int n)
{
	for (int i = 0; i < n; i++)
		put(fds[i], seed(i), SECOND + 100, 300);
	for (int i = 0; i < n / 3; i++)
		CHECK(close(fds[i]) == 0);
	for (int i = n / 3; i < 2 * n / 3; i++)
		CHECK(dup2(0, fds[i]) == fds[i]);
	CHECK(syscall(SYS_close_range, 3, ~0u, 0) == 0);
	for (int i = 0; i < n; i++) {
		const int fd = open_file(i, O_RDONLY);

		CHECK(fd >= 0);
		CHECK(size_of(fd) == SECOND + 400);
		expect(fd, seed(i), 0, SECOND + 400);
		CHECK(close(fd) == 0);
	}
}

static void scarce(const char *self, int limit)
{
	const struct rlimit both = {(rlim_t)limit, (rlim_t)limit};
	struct rlimit seen;
	int n;

	CHECK(setrlimit(RLIMIT_NOFILE, &both) == 0);
	others = in_use(limit);
	n = open_all(limit, true);
	use_all(n);
	lock_some(n);
	give_away(n, self);
	close_all(n);
	/* None of them is looked at before all are open. */
	n = open_all(limit, false);
	for (int i = 0; i < n; i++)
		CHECK(ftruncate(fds[i], FIRST) == 0);
	use_all(n);
	close_all(n);
	CHECK(getrlimit(RLIMIT_NOFILE, &seen) == 0 && seen.rlim_cur == both.rlim_cur && seen.rlim_max == both.rlim_max);
}

int main(int argc, char **argv)
{
	static const int limits[] = {64, 256, 500};
	struct rlimit most;
	int status;
	pid_t pid;

	if (argc > 2 && strcmp(argv[1], "inherited") == 0) {
		for (int i = 0; i < argc - 2; i++)
			fds[i] = atoi(argv[i + 2]);
		use_all(argc - 2);
		return 0;
	}
	if (argc == 3) {
		scarce(argv[0], atoi(argv[2]));
		return 0;
	}
	CHECK(getrlimit(RLIMIT_NOFILE, &most) == 0);
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]) && (rlim_t)limits[i] <= most.rlim_max; i++) {
		CHECK((pid = fork()) >= 0);
		if (pid == 0) {
			char limit[16];

			sprintf(limit, "%d", limits[i]);
			execl(argv[0], argv[0], "limit", limit, NULL);
			_exit(1);
		}
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	}
	return 0;
}
