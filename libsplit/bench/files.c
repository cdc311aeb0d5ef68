/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a file costs: programs that make, read and remove small files all day. The kernel alone and the library do the same work in turns,
 * each in a process of its own; the median of the ratios of neighbouring turns is shown, of processor time (user and system) and of
 * wall-clock time, and how many microseconds a file takes.
 *
 *   files LIBSPLIT SPLITFS DIR [MODE]   DIR: where a volume may be made; MODE: posix, sync or strict
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "timing.h"

enum { TURNS = 11, FILES = 2000, BYTES = 4096, PAGES = 3 };

static char data[BYTES];
static char name[64];

static int make(int i)
{
	int fd;

	snprintf(name, sizeof(name), "f%d", i);
	fd = open(name, O_RDWR | O_CREAT, 0644);
	if (fd < 0)
		fail(name);
	return fd;
}

static void done(bool ok)
{
	if (!ok)
		fail(name);
}

static void create(int i)
{
	const int fd = make(i);

	done(write(fd, data, BYTES) == BYTES && close(fd) == 0);
}

static void temporary(int i)
{
	const int fd = make(i % 16);

	done(write(fd, data, BYTES) == BYTES && fsync(fd) == 0 && close(fd) == 0 && unlink(name) == 0);
}

static void extract(int i)
{
	const struct timespec t[2] = {{1000000000, 0}, {1000000000, 0}};
	const int fd = make(i);

	done(write(fd, data, BYTES) == BYTES && futimens(fd, t) == 0 && fchmod(fd, 0600) == 0 && close(fd) == 0);
}

static void look(int i)
{
	int fd;

	snprintf(name, sizeof(name), "f%d", i);
	fd = open(name, O_RDONLY);
	done(fd >= 0 && read(fd, data, BYTES) == BYTES && close(fd) == 0);
}

/* A transaction with a rollback journal: the pages of before, forced; the new ones, forced; the journal goes. */
static void journal(int i)
{
	static int db = -1;
	struct flock lock = {.l_type = F_WRLCK, .l_start = 1 << 30, .l_len = 1};
	int fd;

	if (db < 0)
		db = open("db", O_RDWR | O_CREAT, 0644);
	done(db >= 0 && fcntl(db, F_SETLK, &lock) == 0);
	strcpy(name, "db-journal");
	fd = open(name, O_RDWR | O_CREAT, 0644);
	for (int k = 0; k < PAGES; k++)
		done(pwrite(fd, data, BYTES, (off_t)k * BYTES) == BYTES);
	done(fdatasync(fd) == 0);
	for (int k = 0; k < PAGES; k++)
		done(pwrite(db, data, BYTES, (off_t)((i * 7 + k) % 256) * BYTES) == BYTES);
	lock.l_type = F_UNLCK;
	done(fdatasync(db) == 0 && close(fd) == 0 && unlink(name) == 0 && fcntl(db, F_SETLK, &lock) == 0);
}

static const struct row {
	const char *name, *what;
	void (*work)(int i);
	bool kept; /* the files of the row before are there */
} rows[] = {
	{"create", "create, write 4 KiB, close", create, false},
	{"read", "open, read 4 KiB, close", look, true},
	{"extract", "create, write 4 KiB, set times and mode, close", extract, false},
	{"temporary", "create, write 4 KiB, fsync, close, unlink", temporary, false},
	{"journal", "a transaction with a rollback journal", journal, false},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* In a process of its own: "processor wall" in nanoseconds for each file. */
static void work(const struct row *row, int files)
{
	struct rusage a, b;
	double begin, cpu;

	row->work(0); /* the first file pays for the agent's lease */
	getrusage(RUSAGE_SELF, &a);
	begin = now_ns(CLOCK_MONOTONIC);
	for (int i = 0; i < files; i++)
		row->work(i);
	begin = now_ns(CLOCK_MONOTONIC) - begin;
	getrusage(RUSAGE_SELF, &b);
	cpu = (double)(b.ru_utime.tv_sec - a.ru_utime.tv_sec + b.ru_stime.tv_sec - a.ru_stime.tv_sec) * 1e9 +
	      (double)(b.ru_utime.tv_usec - a.ru_utime.tv_usec + b.ru_stime.tv_usec - a.ru_stime.tv_usec) * 1e3;
	printf("%.0f %.0f\n", cpu / files, begin / files);
}

static struct result {
	double cpu, wall;
} run(const char *command)
{
	struct result r;
	FILE *f = popen(command, "r");

	if (!f || fscanf(f, "%lf %lf", &r.cpu, &r.wall) != 2 || pclose(f) != 0)
		fail(command);
	return r;
}

static void clean(const char *dir)
{
	char command[PATH_MAX + 16];

	snprintf(command, sizeof(command), "rm -rf '%s'/*", dir);
	if (system(command) != 0)
		fail(command);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 4 ? argv[4] : "posix", *files = getenv("FILES");
	char self[PATH_MAX], dir[PATH_MAX], command[4 * PATH_MAX];

	if (argc == 3 && strcmp(argv[1], "--work") == 0) {
		work(&rows[atoi(argv[2])], files ? atoi(files) : FILES);
		return 0;
	}
	if (argc < 4) {
		fprintf(stderr, "Usage: files LIBSPLIT SPLITFS DIR [MODE]\n");
		return 2;
	}
	done(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	snprintf(dir, sizeof(dir), "%s/files.XXXXXX", argv[3]);
	if (!mkdtemp(dir) || chdir(dir) < 0)
		fail(dir);
	printf("%-52s %10s %10s %8s %8s\n", mode, "kernel us", "library us", "time", "wall");
	for (int r = 0; r < ROWS; r++) {
		double cpu[TURNS], wall[TURNS], kernel[TURNS], library[TURNS];

		for (int t = 0; t < TURNS; t++) {
			struct result k, l;

			if (!rows[r].kept)
				clean(dir);
			snprintf(command, sizeof(command), "'%s' --work %d", self, r);
			k = run(command);
			if (!rows[r].kept)
				clean(dir);
			snprintf(command, sizeof(command), "'%s' run --mode %s --library '%s' --dir . -- '%s' --work %d",
				 argv[2], mode, argv[1], self, r);
			l = run(command);
			cpu[t] = l.cpu / k.cpu;
			wall[t] = l.wall / k.wall;
			kernel[t] = k.cpu;
			library[t] = l.cpu;
		}
		printf("%-52s %10.2f %10.2f %8.2f %8.2f\n", rows[r].what, median(kernel, TURNS) / 1e3,
		       median(library, TURNS) / 1e3, median(cpu, TURNS), median(wall, TURNS));
		fflush(stdout);
	}
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	return chdir("/") < 0 || system(command) != 0;
}
