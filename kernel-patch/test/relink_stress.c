// SPDX-License-Identifier: GPL-2.0
/*
 * Stress of EXT4_IOC_RELINK: processes that relink, fork, fault, write, truncate, punch and read with O_DIRECT through
 * mappings, all on the same few files, while another one fills the file system and two have no block left of their quota.
 * Every word that is written says which group of files it is meant for and where in a block, so that a block that turns up
 * in a file of another group, through a stale mapping or a block that belongs to two files, is found; and files that
 * nobody writes to must not change.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stress.h"

enum { MOST_WORKERS = 32 };

static const char *const counter_names[COUNTERS] = {
	[RELINKS] = "relinks",	   [REFUSED] = "refused",	[NO_ROOM] = "calls without room",
	[AT_QUOTA] = "at a quota", [FORKS] = "forks",		[FILLED] = "times full",
	[STORES] = "stores",	   [LOADS] = "loads",		[BUS] = "SIGBUS",
	[TRUNCATES] = "truncates", [PUNCHES] = "punches",	[WRITES] = "writes",
	[DIRECT] = "direct reads", [WORDS] = "words looked at",
};

static void usage(FILE *to)
{
	fprintf(to, "Usage: relink_stress [--seconds N] [--seed N] DIR\n\n"
		    "Needs root. DIR is on the file system under test, which is filled up on the way.\n");
}

static void set_up(const char *dir)
{
	struct statvfs vfs;

	check(chdir(dir) == 0 && statvfs(".", &vfs) == 0, "cannot enter %s", dir);
	env.dir = dir;
	env.block = vfs.f_bsize;
	stress = mmap(NULL, sizeof(*stress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(stress != MAP_FAILED, "mmap");
	stress_begin();
}

static void run_workers(int seconds)
{
	pid_t pids[MOST_WORKERS];
	int status, i;
	unsigned int w;

	check(stress_workers <= MOST_WORKERS, "%u workers", stress_workers);
	for (w = 0; w < stress_workers; w++) {
		pids[w] = fork();
		if (pids[w] == 0)
			stress_work(w, env.seed);
		if (pids[w] < 0)
			wrong("worker %u cannot be started", w);
	}
	for (i = 0; i < seconds && !__atomic_load_n(&stress->wrong, __ATOMIC_RELAXED); i++)
		sleep(1);
	stress->stop = true;
	for (w = 0; w < stress_workers; w++)
		if (pids[w] > 0 && (waitpid(pids[w], &status, 0) != pids[w] || status))
			wrong("worker %u ended with status %#x", w, status);
	unlink("stress-filler");
}

static void report(int seconds)
{
	unsigned int i;

	printf("# stress of %d s, blocks of %lu bytes, seed %lu:", seconds, env.block, (unsigned long)env.seed);
	for (i = 0; i < COUNTERS; i++)
		printf("%s %lu %s", i ? "," : "", (unsigned long)stress->counters[i], counter_names[i]);
	printf("\n");
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"seconds", required_argument, 0, 's'},
						{"seed", required_argument, 0, 'r'},
						{"help", no_argument, 0, 'h'},
						{0}};
	int option, seconds = 10;

	env.seed = 1;
	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (option) {
		case 's':
			seconds = atoi(optarg);
			break;
		case 'r':
			env.seed = strtoull(optarg, NULL, 0);
			break;
		default:
			usage(option == 'h' ? stdout : stderr);
			return option == 'h' ? 0 : 2;
		}
	}
	if (optind + 1 != argc) {
		usage(stderr);
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	set_up(argv[optind]);
	run_workers(seconds);
	stress_end();
	report(seconds);
	if (!stress->counters[RELINKS] || !stress->counters[FORKS] || !stress->counters[FILLED])
		wrong("not one relink, or fork, or full file system");
	if (!stress_notices())
		wrong("a word of a wrong file, or that is gone, has not been noticed");
	printf("%s - stress: %lu wrong\n", stress->wrong ? "not ok" : "ok", (unsigned long)stress->wrong);
	return stress->wrong != 0;
}
