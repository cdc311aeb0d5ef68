/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The crash explorer. Without options: what `make test` does, some 150,000 states. docs/crash-testing.md explains it.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "crash/explore.h"
#include "crash/sequences.h"
#include "harness.h"

#define SEED 20261121u

static const char usage[] =
	"Usage: test_explore [OPTION]...\n"
	"Runs workloads on the library over a simulated DAX file system, makes the states that a crash may leave, runs "
	"recovery on\n"
	"each and checks that nothing promised is lost. Exits 1 when something is.\n"
	"  --length N         all sequences of up to N operations (default 1; 0: only what --lengthy says)\n"
	"  --core N           all sequences of up to N of the operations marked * by --operations (default 0)\n"
	"  --sample N         so many of the sequences of one more than --length (default 60)\n"
	"  --lengthy N        so many sequences of 5 to 12 operations (default 60)\n"
	"  --states N         end when so many distinct states have been checked (default 150000, 0: no limit)\n"
	"  --seconds N        end after so many seconds\n"
	"  --jobs N           processes (default 1)\n"
	"  --seed N           for what is sampled (default 20261121, or TEST_SEED)\n"
	"  --tries E:M:D      at each point up to E combinations all, of more M; one of D states is crashed in recovery "
	"(default: "
	"less\n"
	"                     for longer workloads)\n"
	"  --mode MODE        only posix, sync or strict\n"
	"  --provider NAME    only reflink, copy or exchange\n"
	"  --progress         a line on standard error every second\n"
	"  --replay MODE:PROVIDER:dax|emulated:WORKLOAD   one workload; with --state only that state, in detail\n"
	"  --state HASH\n"
	"  --operations       list the letters that a workload is made of\n"
	"The last line says how much was checked; it begins with \"incomplete: \" when a limit ended it before all workloads "
	"were "
	"run.\n";

static struct {
	unsigned length, core, sample, lengthy, jobs;
	uint64_t states, seed;
	unsigned seconds;
	bool progress, fixed;
	int mode, fs; /* -1: all */
	struct explore_how how;
} opt = {.length = 1,
	 .sample = 60,
	 .lengthy = 60,
	 .states = 150000,
	 .jobs = 1,
	 .seed = SEED,
	 .mode = -1,
	 .fs = -1,
	 .how = {.exhaustive = 128, .most = 128, .deep = 40, .stop_at = 3}};

static struct tally *tally;
static time_t began;

/* ---- workers */

static bool enough(void)
{
	return (opt.states && __atomic_load_n(&tally->states, __ATOMIC_RELAXED) >= opt.states) ||
	       (opt.seconds && time(NULL) - began >= opt.seconds) ||
	       __atomic_load_n(&tally->violations, __ATOMIC_RELAXED) >= 50;
}

static const char *now_at; /* for whoever is told that we crashed */

/*
 * Long ones are many, and what comes before their last operation is explored with the shorter ones. A limit of states is better spent on
 * many workloads.
 */
static struct explore_how how_for(const char *workload)
{
	const size_t all = strlen(workload), n = all < WORKLOAD_LENGTHY && opt.states ? 3 : all;
	struct explore_how how = opt.how;

	if (!opt.fixed && n > 1) {
		const bool sampled_one = n >= WORKLOAD_LENGTHY && workload[0] != '@';

		how.exhaustive = n == 2 ? 32 : sampled_one ? 4 : 16;
		how.most = n == 2 ? 24 : sampled_one ? 4 : 12;
		how.deep = n == 2 ? 100 : sampled_one ? 1000 : 200;
		how.points = sampled_one ? 32 : 0;
	}
	return how;
}

enum { DAX, DAX_ALONE, EMULATED };
#define FSYNCS "fdg6" /* the operations that are one */

static void one(struct run *r, const char *workload)
{
	const struct explore_how how = how_for(workload);
	bool ran = false;

	for (int mode = SFS_POSIX; mode <= SFS_STRICT; mode++) {
		for (int fs = 0; fs < KERN_FS_KINDS; fs++) {
			if ((opt.mode >= 0 && opt.mode != mode) || (opt.fs >= 0 && opt.fs != fs))
				continue;
			if (opt.fs < 0 && !fs_worth((enum kern_fs)fs, workload))
				continue;
			r->workload = workload;
			r->mode = (enum sfs_mode)mode;
			r->fs = (enum kern_fs)fs;
			for (int ground = DAX; ground <= EMULATED; ground++) {
				/* With nobody looking fsync leaves out the relink. */
				if (ground == DAX_ALONE && !strpbrk(workload, FSYNCS))
					continue;
				r->dax = ground != EMULATED;
				r->alone = ground == DAX_ALONE;
				if (run_workload(r)) {
					explore_run(r, &how);
					__atomic_add_fetch(&tally->runs, 1, __ATOMIC_RELAXED);
					ran = true;
				}
				if (enough())
					return;
			}
		}
	}
	__atomic_add_fetch(&tally->workloads, ran, __ATOMIC_RELAXED);
	__atomic_add_fetch(&tally->tried, 1, __ATOMIC_RELAXED);
}

static void worker(void)
{
	struct run r = {0};

	explore_init(tally);
	while (!enough()) {
		const uint32_t i = __atomic_fetch_add(&tally->next, 1, __ATOMIC_RELAXED);

		if (i >= sequences())
			break;
		now_at = sequence(i);
		one(&r, sequence(i));
	}
}

static void show(bool last)
{
	const long s = (long)(time(NULL) - began);
	struct rusage used;

	getrusage(RUSAGE_CHILDREN, &used);
	fprintf(last ? stdout : stderr,
		"%s%s%llu states (%llu of them crashes inside recovery), %llu workloads, %llu runs, %llu violations, %ld s",
		last ? "" : "\r", last && !opt.states && tally->tried < sequences() ? "incomplete: " : "",
		(unsigned long long)tally->states, (unsigned long long)tally->in_recovery, (unsigned long long)tally->workloads,
		(unsigned long long)tally->runs, (unsigned long long)tally->violations, s);
	if (last)
		printf(" (%ld s of processors)\n", (long)(used.ru_utime.tv_sec + used.ru_stime.tv_sec));
	fflush(last ? stdout : stderr);
}

static int explore_all(void)
{
	pid_t pid[64];
	int failed = 0, status;

	fflush(stdout);
	for (unsigned i = 0; i < opt.jobs; i++) {
		pid[i] = fork();
		CHECK(pid[i] >= 0);
		if (pid[i] == 0) {
			worker();
			fflush(stdout);
			_exit(0);
		}
	}
	for (unsigned i = 0; i < opt.jobs; i++) {
		while (waitpid(pid[i], &status, WNOHANG) == 0) {
			const struct timespec wait = {0, opt.progress ? 500000000 : 50000000};

			nanosleep(&wait, NULL);
			if (opt.progress)
				show(false);
		}
		if (!WIFEXITED(status) || WEXITSTATUS(status)) {
			printf("worker %u ended with %s %d\n", i, WIFEXITED(status) ? "status" : "signal",
			       WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
			failed = 1;
		}
	}
	if (opt.progress)
		fputc('\n', stderr);
	show(true);
	return failed || tally->violations > 0;
}

static int replay(char *what)
{
	const char *mode = strtok(what, ":"), *fs = strtok(NULL, ":"), *dax = strtok(NULL, ":"), *w = strtok(NULL, ":");
	struct run r = {.workload = w};
	struct explore_how how;

	if (!mode || !fs || !dax || !w) {
		fprintf(stderr, "--replay wants MODE:PROVIDER:dax|alone|emulated:WORKLOAD\n");
		return 2;
	}
	for (int i = SFS_POSIX; i <= SFS_STRICT; i++)
		if (strcmp(mode, mode_name((enum sfs_mode)i)) == 0)
			r.mode = (enum sfs_mode)i;
	for (int i = 0; i < KERN_FS_KINDS; i++)
		if (strcmp(fs, fs_name((enum kern_fs)i)) == 0)
			r.fs = (enum kern_fs)i;
	r.alone = strcmp(dax, "alone") == 0;
	r.dax = r.alone || strcmp(dax, "dax") == 0;
	explore_init(tally);
	if (!run_workload(&r)) {
		printf("the workload makes no sense: an operation on a file that is not there\n");
		return 2;
	}
	how = how_for(w);
	explore_run(&r, &how);
	show(true);
	return tally->violations > 0;
}

static uint64_t number(const char *s)
{
	char *end;
	const uint64_t v = strtoull(s, &end, 0);

	if (*end || end == s) {
		fprintf(stderr, "test_explore: '%s' is no number\n", s);
		exit(2);
	}
	return v;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"length", 1, 0, 'l'},
						{"core", 1, 0, 'c'},
						{"sample", 1, 0, 'm'},
						{"lengthy", 1, 0, 'L'},
						{"states", 1, 0, 's'},
						{"seconds", 1, 0, 't'},
						{"jobs", 1, 0, 'j'},
						{"seed", 1, 0, 'e'},
						{"tries", 1, 0, 'T'},
						{"mode", 1, 0, 'M'},
						{"provider", 1, 0, 'P'},
						{"progress", 0, 0, 'p'},
						{"replay", 1, 0, 'r'},
						{"state", 1, 0, 'S'},
						{"operations", 0, 0, 'o'},
						{"help", 0, 0, 'h'},
						{0}};
	char *what = NULL, rest;
	int c;

	opt.seed = test_seed(SEED);
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'l':
			opt.length = (unsigned)number(optarg);
			break;
		case 'c':
			opt.core = (unsigned)number(optarg);
			break;
		case 'm':
			opt.sample = (unsigned)number(optarg);
			break;
		case 'L':
			opt.lengthy = (unsigned)number(optarg);
			break;
		case 's':
			opt.states = number(optarg);
			break;
		case 't':
			opt.seconds = (unsigned)number(optarg);
			break;
		case 'j':
			opt.jobs = (unsigned)number(optarg);
			break;
		case 'e':
			opt.seed = number(optarg);
			break;
		case 'T':
			opt.fixed = sscanf(optarg, "%u:%u:%u%c", &opt.how.exhaustive, &opt.how.most, &opt.how.deep, &rest) == 3;
			if (!opt.fixed || opt.how.most < 1) {
				fprintf(stderr, "test_explore: --tries wants three numbers, E:M:D\n");
				return 2;
			}
			break;
		case 'M':
			for (int i = SFS_POSIX; i <= SFS_STRICT; i++)
				opt.mode = strcmp(optarg, mode_name((enum sfs_mode)i)) == 0 ? i : opt.mode;
			break;
		case 'P':
			for (int i = 0; i < KERN_FS_KINDS; i++)
				opt.fs = strcmp(optarg, fs_name((enum kern_fs)i)) == 0 ? i : opt.fs;
			break;
		case 'p':
			opt.progress = true;
			break;
		case 'r':
			what = optarg;
			break;
		case 'S':
			opt.how.replay = strtoull(optarg, NULL, 16);
			break;
		case 'o':
			for (const char *s = workload_letters(); *s; s++)
				printf("%c %c %s\n", *s, strchr(workload_core(), *s) ? '*' : ' ', workload_describe(*s));
			return 0;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			fputs(usage, stderr);
			return 2;
		}
	}
	if (opt.length > 4 || opt.core > 4 || opt.jobs < 1 || opt.jobs > 64) {
		fprintf(stderr, "test_explore: --length is 0 to 4, --core 0 to 4, --jobs 1 to 64\n");
		return 2;
	}
	opt.how.seed = opt.seed;
	tally = tally_make(1u << 24);
	began = time(NULL);
	if (what)
		return replay(what);
	/* The programs take longest; where there is a limit the others come first. */
	if (!opt.states && opt.length)
		sequences_traces();
	if (opt.length)
		sequences_named();
	sequences_lengthy(opt.lengthy, opt.seed);
	for (unsigned n = 1; n <= opt.length; n++)
		sequences_all(workload_letters(), n);
	for (unsigned n = opt.length + 1; n <= opt.core; n++)
		sequences_all(workload_core(), n);
	if (opt.length)
		sequences_sampled(opt.length + 1, opt.sample, opt.seed);
	if (opt.states && opt.length)
		sequences_traces();
	return explore_all();
}
