/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What interposition costs, apart from what is done with a file: the start of a process, calls that are passed on, and the cheapest
 * calls that are served. Slices of what is compared take turns in one process or in one loop, and medians of the differences
 * within a turn are printed, so that a busy machine does no harm. Times are CPU time.
 *
 *   interpose LIBSPLIT SPLITFS DIR   DIR: where a volume may be made
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "timing.h"

enum { TURNS = 401, CALLS = 10000, STARTS = 601 };

static int fd;
static FILE *file;
static char buf[4096];
static off_t (*libc_lseek)(int, off_t, int);
static ssize_t (*libc_read)(int, void *, size_t);
static int (*libc_fputc)(int, FILE *);

static void by_lseek(void)
{
	lseek(fd, 0, SEEK_CUR);
}
static void by_libc_lseek(void)
{
	libc_lseek(fd, 0, SEEK_CUR);
}
static void by_read(void)
{
	if (read(fd, buf, 0) != 0)
		fail("read");
}
static void by_libc_read(void)
{
	if (libc_read(fd, buf, 0) != 0)
		fail("read");
}
static void by_fputc(void)
{
	fputc('x', file);
}
static void by_libc_fputc(void)
{
	libc_fputc('x', file);
}
static void by_pread(void)
{
	if (pread(fd, buf, 1, 100) != 1)
		fail("pread");
}
static void by_memcpy(void)
{
	memcpy(buf, buf + 100, 1);
	__asm__ volatile("" ::: "memory");
}

static double slice(void (*call)(void))
{
	const double from = now_ns(CLOCK_THREAD_CPUTIME_ID);

	for (int i = 0; i < CALLS; i++)
		call();
	return (now_ns(CLOCK_THREAD_CPUTIME_ID) - from) / CALLS;
}

static void compare(const char *what, void (*a)(void), void (*b)(void))
{
	static double of_a[TURNS], of_b[TURNS], more[TURNS];

	for (int i = 0; i < TURNS; i++) {
		of_a[i] = slice(a);
		of_b[i] = slice(b);
		more[i] = of_a[i] - of_b[i];
	}
	printf("%-58s %7.1f %7.1f %7.1f\n", what, median(of_a, TURNS), median(of_b, TURNS), median(more, TURNS));
	fflush(stdout);
}

/* In a process that has the library, with or without a volume. */
static int passed(const char *volume)
{
	void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	char what[80];

	if (!libc || (fd = open("/dev/null", O_RDWR)) < 0 || !(file = fopen("/dev/null", "w")))
		fail("/dev/null");
	*(void **)&libc_lseek = dlsym(libc, "lseek");
	*(void **)&libc_read = dlsym(libc, "read");
	*(void **)&libc_fputc = dlsym(libc, "fputc");
	snprintf(what, sizeof(what), "passed, %s: lseek", volume);
	compare(what, by_lseek, by_libc_lseek);
	snprintf(what, sizeof(what), "passed, %s: read of 0 bytes", volume);
	compare(what, by_read, by_libc_read);
	snprintf(what, sizeof(what), "passed, %s: fputc", volume);
	compare(what, by_fputc, by_libc_fputc);
	return 0;
}

static int served(const char *path)
{
	if ((fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644)) < 0 || write(fd, buf, sizeof(buf)) != sizeof(buf) ||
	    fsync(fd) < 0)
		fail(path);
	/* Often enough that the file is served from memory, and the locks know their thread. */
	for (int i = 0; i < CALLS; i++)
		by_pread();
	compare("served: lseek; beside nothing", by_lseek, by_memcpy);
	compare("served: pread of 1 byte; beside memcpy", by_pread, by_memcpy);
	return 0;
}

static int run(char *const argv[], char *const envp[], double *cpu)
{
	struct rusage used;
	int status;
	pid_t pid;

	fflush(stdout);
	errno = posix_spawn(&pid, argv[0], NULL, NULL, argv, envp);
	if (errno || wait4(pid, &status, 0, &used) < 0)
		fail(argv[0]);
	*cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e9 +
	       (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e3;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void starts(char *self, char *preload, char *config)
{
	char *const nothing[] = {self, "--nothing", NULL}, *const plain[] = {NULL}, *const idle[] = {preload, NULL};
	char *const configured[] = {preload, config, NULL};
	static double p[STARTS], i[STARTS], c[STARTS], more_i[STARTS], more_c[STARTS];

	for (int n = 0; n < STARTS; n++) {
		if (run(nothing, plain, &p[n]) || run(nothing, idle, &i[n]) || run(nothing, configured, &c[n]))
			fail("a process that does nothing");
		more_i[n] = i[n] - p[n];
		more_c[n] = c[n] - p[n];
	}
	printf("\n%-58s %7s %7s %7s\n", "microseconds per process", "with", "without", "more");
	printf("%-58s %7.1f %7.1f %7.1f\n", "start and end, no volume", median(i, STARTS) / 1e3, median(p, STARTS) / 1e3,
	       median(more_i, STARTS) / 1e3);
	printf("%-58s %7.1f %7.1f %7.1f\n", "start and end, a volume that is not used", median(c, STARTS) / 1e3,
	       median(p, STARTS) / 1e3, median(more_c, STARTS) / 1e3);
}

int main(int argc, char **argv)
{
	char self[4096], preload[4200], config[4200], path[4200];
	const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	double cpu;

	if (argc == 2 && strcmp(argv[1], "--nothing") == 0)
		return 0;
	if (argc == 3 && strcmp(argv[1], "--passed") == 0)
		return passed(argv[2]);
	if (argc == 3 && strcmp(argv[1], "--served") == 0)
		return served(argv[2]);
	if (argc != 4 || n <= 0) {
		fprintf(stderr, "Usage: interpose LIBSPLIT SPLITFS DIR   (DIR: where a volume may be made)\n");
		return 2;
	}
	self[n] = 0;
	snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", argv[1]);
	snprintf(config, sizeof(config), "SPLITFS_CONFIG=posix:%s:/nonexistent", argv[3]);
	snprintf(path, sizeof(path), "%s/interpose", argv[3]);
	printf("%-58s %7s %7s %7s\n", "nanoseconds per call", "with", "without", "more");
	if (run((char *[]){self, "--passed", "no volume", NULL}, (char *[]){preload, NULL}, &cpu) ||
	    run((char *[]){self, "--passed", "a volume", NULL}, (char *[]){preload, config, NULL}, &cpu) ||
	    run((char *[]){argv[2], "run", "--mode", "posix", "--dir", argv[3], "--", self, "--served", path, NULL},
		(char *[]){"PATH=/usr/bin:/bin", NULL}, &cpu))
		return 1;
	starts(self, preload, config);
	return 0;
}
