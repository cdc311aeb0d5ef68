/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program without the library has the file open and mapped, since after the first bytes were written: it sees what is written when
 * fsync has returned, and without fsync soon. Another one opens and reads it anew each time, and one has had it open from before.
 */
#include "check.h"

#include <sys/mman.h>
#include <time.h>

enum { STEP = 3000, STEPS = 40, SIZE = STEP * (STEPS + 3) };

/* It reads a number and sees so many bytes, "now" or "soon". */
static void sees(int fd, const char *how, const unsigned char *p, int n)
{
	const struct timespec step = {0, 5000000};

	for (int i = 0; strcmp(how, "soon") == 0 && i < 1000 && size_of(fd) < n; i++)
		nanosleep(&step, NULL);
	CHECK(size_of(fd) == n);
	expect(fd, 1, 0, (size_t)n);
	for (int i = 0; i < n; i += 1000)
		CHECK(p[i] == (unsigned char)byte_at(1, (uint64_t)i));
}

static int reader(const char *how)
{
	int fd = -1, n;
	unsigned char *p = NULL;

	while (read(0, &n, sizeof(n)) == sizeof(n)) {
		if (fd < 0) {
			fd = open("f", O_RDONLY);
			CHECK(fd >= 0);
			p = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
			CHECK(p != MAP_FAILED);
		}
		if (n > 0)
			sees(fd, how, p, n);
		if (strcmp(how, "anew") == 0) {
			CHECK(munmap(p, SIZE) == 0 && close(fd) == 0);
			fd = -1;
		}
		CHECK(write(1, "x", 1) == 1);
	}
	return 0;
}

struct program {
	pid_t pid;
	int in, out;
};

static struct program start(const char *how)
{
	int to[2], from[2];
	struct program g;

	CHECK(pipe(to) == 0 && pipe(from) == 0 && (g.pid = fork()) >= 0);
	if (g.pid == 0) {
		dup2(to[0], 0);
		dup2(from[1], 1);
		close_range(3, ~0u, 0); /* nothing is handed over to it */
		execle("/proc/self/exe", "unaware_fsync", how, NULL, (char *[]){NULL});
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	g.in = to[1];
	g.out = from[0];
	return g;
}

/* It is to see n bytes; with 0, to open the file. */
static void have_it_see(const struct program *g, int n)
{
	char c;

	CHECK(write(g->in, &n, sizeof(n)) == sizeof(n) && read(g->out, &c, 1) == 1);
}

static void end(const struct program *g)
{
	close(g->in);
	CHECK(status_of(g->pid) == 0);
}

int main(int argc, char **argv)
{
	struct program now, anew, before, soon;
	int fd, n = STEP;

	if (argc == 2)
		return reader(argv[1]);
	CHECK((fd = open("f", O_RDWR | O_CREAT, 0644)) >= 0);
	before = start("soon");
	now = start("now");
	anew = start("anew");
	soon = start("soon");
	have_it_see(&before, 0);
	put(fd, 1, 0, STEP);
	CHECK(fsync(fd) == 0);
	have_it_see(&now, n);
	for (int i = 0; i < STEPS; i++) {
		put(fd, 1, n, STEP);
		n += STEP;
		/* Who opens it anew needs no fsync. */
		if (i % 2 == 0) {
			CHECK((i % 4 ? fdatasync(fd) : fsync(fd)) == 0);
			have_it_see(&now, n);
		}
		have_it_see(&anew, n);
	}
	have_it_see(&before, n);
	have_it_see(&soon, n);
	put(fd, 1, n, STEP);
	n += STEP;
	have_it_see(&soon, n);
	end(&now);
	end(&anew);
	end(&before);
	end(&soon);
	/* Nobody looks any more. */
	put(fd, 1, n, STEP);
	n += STEP;
	CHECK(fsync(fd) == 0 && close(fd) == 0);
	fd = open("f", O_RDONLY);
	expect(fd, 1, 0, (size_t)n);
	return 0;
}
