/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the soft limit of descriptors is the hard one, a program gets nearly all of them, by whatever call: the
 * library has what it can't do without. What the program wrote before and writes then is in the files, also when it
 * has closed most of them again, and a child of a fork reads and writes them.
 */
#include "check.h"

#include <dirent.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

enum {
	TRIES = 100, /* after a refusal, 20 ms each */
	MOST = 1024,
	FILES = 3,	/* that it writes */
	SIZE = 30000,	/* of each, before it uses up its numbers */
	LACKS = 5,	/* two sockets, the log, the eventfd, and one to connect anew by */
	STRICT = 5 + 7, /* one for each file, three for staging files, and one for a file that open() may bring */
	AT_LEAST = 16	/* below, some of the files are served by the kernel from the start */
};

static int fds[FILES], copies[MOST], before;

static void name_of(char *name, int file)
{
	sprintf(name, "f%d", file);
}

static int in_use(int limit)
{
	int n = 0;

	for (int fd = 0; fd < limit; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* strict is told from the others by what the library lacks; a program can't ask which it is. */
static int lacks(void)
{
	const char *config = getenv("SPLITFS_CONFIG");

	return !config ? 0 : strncmp(config, "strict", 6) == 0 ? STRICT : LACKS;
}

static int new_dup(void)
{
	return dup(fds[0]);
}

static int new_of_other(void)
{
	return dup(0);
}

static int new_fcntl(void)
{
	return fcntl(fds[1], F_DUPFD_CLOEXEC, 0);
}

static int new_open(void)
{
	return open("f1", O_RDONLY);
}

static int new_elsewhere(void)
{
	return open("/dev/null", O_RDWR);
}

static int new_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM, 0);
}

static int new_eventfd(void)
{
	return eventfd(0, 0);
}

static int new_epoll(void)
{
	return epoll_create1(0);
}

static int new_timerfd(void)
{
	return timerfd_create(CLOCK_MONOTONIC, 0);
}

static int new_signalfd(void)
{
	sigset_t none;

	sigemptyset(&none);
	return signalfd(-1, &none, 0);
}

static int new_memfd(void)
{
	return memfd_create("m", 0);
}

static int new_inotify(void)
{
	const int fd = inotify_init1(0);

	return fd >= 0 || errno != EMFILE ? fd : new_eventfd(); /* there are few for a user */
}

static int new_dir(void)
{
	DIR *d = opendir(".");

	return d ? dirfd(d) : -1;
}

static int new_stream(void)
{
	FILE *f = fopen("f2", "r");

	return f ? fileno(f) : -1;
}

static int new_pipe(void)
{
	int two[2];

	if (pipe2(two, O_CLOEXEC) < 0)
		return -1;
	copies[MOST - 1] = two[1];
	return two[0];
}

static int new_pair(void)
{
	int two[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, two) < 0)
		return -1;
	copies[MOST - 1] = two[1];
	return two[0];
}

/*
 * One kind of call uses up all numbers. How many it got. The library's other thread may just be relinking what could be given back: then the
 * next try gets it.
 */
static int use_up(int (*make)(void), bool two, int least)
{
	int n = 0;

	for (int tries = 0; tries < TRIES;) {
		const int fd = make();

		if (fd >= 0) {
			copies[n++] = fd;
			if (two)
				copies[n++] = copies[MOST - 1];
			continue;
		}
		CHECK(errno == EMFILE);
		if (n >= least)
			break;
		usleep(20000);
		tries++;
	}
	return n;
}

static void check_files(off_t size)
{
	for (int i = 0; i < FILES; i++) {
		CHECK(size_of(fds[i]) == size);
		expect(fds[i], (unsigned)i, 0, (size_t)size);
	}
}

static void write_files(off_t from, size_t n)
{
	for (int i = 0; i < FILES; i++) {
		put(fds[i], (unsigned)i, from, n);
		CHECK(i != 1 || fsync(fds[i]) == 0);
	}
}

static void in_child(void)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		check_files(SIZE + 8000);
		for (int i = 0; i < FILES; i++)
			put(fds[i], (unsigned)i, SIZE + 8000, 3000);
		_exit(0);
	}
	CHECK(status_of(pid) == 0);
	check_files(SIZE + 11000);
}

static void one_kind(int limit, int (*make)(void), bool two)
{
	const int room = limit - before - FILES;
	char name[16];
	int n;

	for (int i = 0; i < FILES; i++) {
		name_of(name, i);
		CHECK((fds[i] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
		put(fds[i], (unsigned)i, 0, SIZE);
	}
	n = use_up(make, two, room - lacks() - two);
	if (n < room - lacks() - two) {
		fprintf(stderr, "%d of %d\n", n, room);
		CHECK(!"the library keeps more than it needs");
	}
	write_files(SIZE, 8000);
	check_files(SIZE + 8000);
	in_child();
	/* By dup2, by close and by range; what has been written is there with fewer numbers in use as well. */
	for (int i = 0; i < n; i++)
		CHECK(i % 3 == 0 ? dup2(0, copies[i]) == copies[i] && close(copies[i]) == 0 : close(copies[i]) == 0);
	write_files(SIZE + 11000, 8000);
	check_files(SIZE + 19000);
	CHECK(syscall(SYS_close_range, 3, ~0u, 0) == 0);
	for (int i = 0; i < FILES; i++) {
		name_of(name, i);
		CHECK((fds[i] = open(name, O_RDONLY)) >= 0);
	}
	check_files(SIZE + 19000);
	for (int i = 0; i < FILES; i++)
		CHECK(close(fds[i]) == 0);
}

static void all_kinds(int limit)
{
	static int (*const one[])(void) = {new_dup,    new_of_other, new_fcntl, new_open,    new_elsewhere,
					   new_socket, new_eventfd,  new_epoll, new_timerfd, new_signalfd,
					   new_memfd,  new_inotify,  new_dir,	new_stream};

	CHECK(syscall(SYS_close_range, 3, ~0u, 0) == 0);
	before = in_use(limit);
	for (size_t i = 0; i < sizeof(one) / sizeof(one[0]); i++)
		one_kind(limit, one[i], false);
	one_kind(limit, new_pipe, true);
	one_kind(limit, new_pair, true);
}

static void with_limit(const char *self, int limit, const char *what)
{
	const struct rlimit both = {(rlim_t)limit, (rlim_t)limit};
	char number[16];
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(setrlimit(RLIMIT_NOFILE, &both) == 0);
		sprintf(number, "%d", limit);
		execl(self, self, what, number, NULL);
		_exit(1);
	}
	CHECK(status_of(pid) == 0);
}

int main(int argc, char **argv)
{
	struct rlimit most;

	if (argc == 3) {
		all_kinds(atoi(argv[2]));
		return 0;
	}
	CHECK(getrlimit(RLIMIT_NOFILE, &most) == 0);
	if (most.rlim_max < MOST)
		SKIP("the hard limit is too low");
	for (int limit = AT_LEAST + 4; limit <= 40; limit++)
		with_limit(argv[0], limit, "all");
	with_limit(argv[0], 64, "all");
	with_limit(argv[0], MOST, "all");
	return 0;
}
