/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does the explorer find bugs? Persistence bugs are planted one at a time: each write-back, fence and fsync in the code dropped,
 * each store put off, and bugs of logic. Every one must be found. Without options: a few that are found at once, for
 * `make test`.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "crash/explore.h"
#include "crash/sequences.h"
#include "harness.h"

#define BUGS_MAX 256

static const char usage[] =
	"Usage: test_mutants [--all] [--jobs N] [--states N] [--seconds N] [--only N] [--workload W] [--list]\n"
	"Plants persistence bugs and lets the crash explorer look for each. Exits 1 when one is not found.\n"
	"  --all         every bug and every workload (default: some)\n"
	"  --jobs N      so many at a time (default 1)\n"
	"  --states N    give up on one after so many states (default 150000)\n"
	"  --seconds N   or after so long (default 900)\n"
	"  --only N      only the bug with this number\n"
	"  --workload W  look for it with this workload alone\n"
	"  --list        the bugs, without looking for them\n";

static const struct {
	enum mutant_kind kind;
	const char *what;
} logic[] = {
	{MUT_RECORD_CRC, "recovery ignores the checksum of records"},
	{MUT_DATA_CRC, "recovery ignores the checksum of bytes"},
	{MUT_NO_DATA_CRC, "small writes are recorded without a checksum of their bytes"},
	{MUT_OLDEST_WINS, "recovery replays older records over newer ones"},
	{MUT_INODE_ALONE, "replay by inode number alone, without generation"},
	{MUT_RENAME_TWICE, "rename in two steps"},
	{MUT_BOOT_IGNORED, "a power loss is taken for a dead process"},
	{MUT_DONE_IGNORED, "records that were retired are replayed"},
	{MUT_DONE_FORGOTTEN, "after a power loss a DONE before a COMMIT retires nothing"},
	{MUT_WRITE_TRUSTED, "posix records count after a power loss without a COMMIT"},
	{MUT_COMMIT_IGNORED, "COMMIT records are ignored"},
	{MUT_STAGING_REUSED, "staging space is handed out twice"},
	{MUT_SLOT_REUSED, "slots of the log are used twice"},
	{MUT_IN_PLACE_EARLY, "a store in place while records of relinked bytes count"},
	{MUT_PARTS_COUNT, "the records of one call count one by one"},
	{MUT_NO_REPLAY, "recovery clears the log without replaying it"},
	{MUT_RECOVERY_UNSYNCED, "recovery syncs nothing before it clears the log"},
	{MUT_HOLES_COPIED, "recovery takes holes of staging files for zeros"},
};

#define WORKLOADS_MAX 320u
static bool reaches[SITES_MAX][WORKLOADS_MAX];

/* Calls that another one makes unnecessary: dropping one alone changes nothing, and can't be found. */
static const struct {
	const char *verb, *where, *why;
} redundant[] = {
	{"no sync", "map lease.c",
	 "the first store to each page of the MAP_SYNC mapping commits; here it is so that later ones need not"},
	{"no sync", "sfs_lease_create lease.c",
	 "the first store through MAP_SYNC has committed the name; here it is for the owner"},
	{"no fence", "in sfs_lease_create lease.c", "fsync follows"},
	{"no sync", "sfs_log_create logfile.c",
	 "the other one of the two, and then the lease's, commit the journal, which is in order"},
	{"no fence", "commit_all oplog.c",
	 "syncfs has made durable what is before the COMMIT, and sfs_flush() fences before it relinks what is behind it"},
	{"no fence", "bytes_first flight.c", "a COMMIT fences too; here it is for readers"},
	{"stored too late", "sfs_commit_gap(t->file[k].in",
	 "no record names it: it is to be durable before the file is relinked, and the fence behind the records is"},
	{"stored too late", "sfs_block_addr(in->vol, old)",
	 "what is carried is named by earlier records; the call's own fence and the relink's are behind it"},
	{"stored too late", "pm_zero(dst + from", "what is behind the end of the file is zeroed again when it grows"},
	{"no write-back", "pm_zero(dst + from", "the same"},
};

static const char *why_redundant(const char *what)
{
	for (size_t i = 0; i < sizeof(redundant) / sizeof(redundant[0]); i++)
		if (strncmp(what, redundant[i].verb, strlen(redundant[i].verb)) == 0 && strstr(what, redundant[i].where))
			return redundant[i].why;
	return NULL;
}

struct bug {
	struct mutant m;
	int site; /* -1: of logic */
	char what[400];
	/* What was found, by the process that looked. */
	bool caught;
	char by[64];
	uint64_t states;
	unsigned ms;
};

static struct bug *bugs;
static int nbugs;
static unsigned opt_seconds = 900;
static uint64_t opt_states = 150000;
static const char *opt_workload;
static size_t use; /* so many of the workloads */

/* The line of source at "FILE:N", without what is before and behind it. */
static void source_line(const char *where, char *buf, size_t n)
{
	char path[200], text[1000] = "";
	unsigned line = 0;
	FILE *f;

	buf[0] = 0;
	if (sscanf(where, "%199[^:]:%u", path, &line) != 2 || !(f = fopen(path, "r")))
		return;
	while (line-- && fgets(text, sizeof(text), f))
		;
	fclose(f);
	text[strcspn(text, "\n")] = 0;
	snprintf(buf, n, "%s", text + strspn(text, " \t"));
}

/* The functions and places that lead to the call, innermost first, and its line of source. */
static void name_site(const struct site *s, char *buf, size_t n)
{
	extern const char __executable_start;
	char cmd[200], line[300], source[120] = "";
	FILE *f;

	/* The call is before the address it returns to; of functions that were inlined the one that is not base/sys.h. */
	snprintf(cmd, sizeof(cmd), "addr2line -i -f -p -e /proc/%d/exe 0x%lx", getpid(),
		 (unsigned long)((const char *)s->at - &__executable_start - 1));
	f = popen(cmd, "r");
	buf[0] = 0;
	while (f && fgets(line, sizeof(line), f)) {
		char *name = strncmp(line, " (inlined by) ", 14) == 0 ? line + 14 : line, *at = strstr(name, " at "), *file;

		if (!at || strstr(name, "sys.h:"))
			continue;
		if (!source[0])
			source_line(at + 4, source, sizeof(source));
		*at = 0;
		at[4 + strcspn(at + 4, " \n")] = 0;
		file = strrchr(at + 4, '/');
		snprintf(buf + strlen(buf), n - strlen(buf), "%s%s %s", buf[0] ? " in " : "", name, file ? file + 1 : at + 4);
	}
	if (f)
		pclose(f);
	snprintf(buf + strlen(buf), n - strlen(buf), ": %s", source);
}

static void add(struct mutant m, int site, const char *verb, const char *what)
{
	CHECK(nbugs < BUGS_MAX);
	bugs[nbugs].m = m;
	bugs[nbugs].site = site;
	snprintf(bugs[nbugs++].what, sizeof(bugs[0].what), "%s%s", verb, what);
}

/* Explore a workload in every mode; with a planted bug until it is found. */
static bool explore_one(struct run *r, const char *workload, const struct explore_how *how)
{
	for (int mode = SFS_STRICT; mode >= SFS_POSIX; mode--) {
		for (int fs = 0; fs < KERN_FS_KINDS; fs++) {
			const struct mutant planted = mutant;
			bool sound;

			r->workload = workload;
			r->mode = (enum sfs_mode)mode;
			r->fs = (enum kern_fs)fs;
			r->dax = true;
			if (!fs_worth((enum kern_fs)fs, workload) || !run_workload(r) || !explore_run(r, how) ||
			    planted.kind == MUT_NONE)
				continue;
			/* Found it, unless the same states fail without it. */
			mutant.kind = MUT_NONE;
			explore_forget();
			sound = run_workload(r) && !explore_run(r, how);
			mutant = planted;
			if (sound)
				return true;
		}
	}
	return false;
}

/* Which calls are there? Every workload once, and some crashes, so that recovery runs too. */
static void survey(void)
{
	const struct explore_how how = {.exhaustive = 1, .most = 2, .deep = 60, .stop_at = 1, .seed = 1, .quiet = true};
	struct run r = {0};
	char name[380];

	explore_init(tally_make(1u << 22));
	for (size_t i = 0; i < use; i++) {
		uint32_t calls[SITES_MAX];

		for (int k = 0; k < SITES_MAX; k++)
			calls[k] = sites[k].calls;
		explore_one(&r, sequence((uint32_t)i), &how);
		for (int k = 0; k < nsites; k++)
			reaches[k][i] = sites[k].calls > calls[k];
	}
	for (int i = 0; i < nsites; i++) {
		name_site(&sites[i], name, sizeof(name));
		switch (sites[i].kind) {
		case EV_FLUSH:
			add((struct mutant){MUT_DROP_FLUSH, sites[i].at}, i, "no write-back: ", name);
			break;
		case EV_FENCE:
			add((struct mutant){MUT_DROP_FENCE, sites[i].at}, i, "no fence: ", name);
			break;
		case EV_SYNC:
			add((struct mutant){MUT_DROP_SYNC, sites[i].at}, i, "no sync: ", name);
			break;
		case EV_STORE:
			add((struct mutant){MUT_DEFER_STORE, sites[i].at}, i, "stored too late: ", name);
			break;
		default:
			break;
		}
	}
	for (size_t i = 0; i < sizeof(logic) / sizeof(logic[0]); i++)
		add((struct mutant){logic[i].kind, NULL}, -1, "logic: ", logic[i].what);
}

static void hunt(struct bug *b)
{
	/* A few states of each workload first: most bugs need the right one of them, and not many of its states. */
	static const struct explore_how hows[] = {
		{.exhaustive = 8, .most = 8, .deep = 200, .stop_at = 1, .seed = 1, .quiet = true},
		{.exhaustive = 32, .most = 24, .deep = 40, .stop_at = 1, .seed = 1, .quiet = true},
	};
	struct timespec from, to;
	struct tally *t = tally_make(1u << 22);
	struct run r = {0};

	clock_gettime(CLOCK_MONOTONIC, &from);
	explore_init(t);
	mutant = b->m;
	for (size_t k = 0; k < 2 * use && !b->caught; k++) {
		const size_t i = k % use;

		if (opt_workload ? strcmp(sequence((uint32_t)i), opt_workload) != 0 : b->site >= 0 && !reaches[b->site][i])
			continue;
		if (explore_one(&r, sequence((uint32_t)i), &hows[k / use])) {
			b->caught = true;
			snprintf(b->by, sizeof(b->by), "%s:%s:%s", mode_name(r.mode), fs_name(r.fs), sequence((uint32_t)i));
		}
		clock_gettime(CLOCK_MONOTONIC, &to);
		b->ms = (unsigned)((to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000);
		b->states = t->states;
		/* Of what is known to have no effect, a look is enough. */
		if (b->ms > opt_seconds * 1000 || b->states > (why_redundant(b->what) ? opt_states / 8 : opt_states))
			break;
	}
	b->states = t->states;
	b->ms += !b->ms;
}

static void show(int i)
{
	const struct bug *b = &bugs[i];

	printf("%-9s %3d  %-86.86s %-24s %8llu states %6u ms\n",
	       b->caught		? "caught"
	       : why_redundant(b->what) ? "redundant"
					: "MISSED",
	       i, b->what, b->by, (unsigned long long)b->states, b->ms);
	fflush(stdout);
}

static int wait_one(pid_t *pid, const int *which, unsigned jobs)
{
	int status;
	const pid_t p = wait(&status);

	for (unsigned k = 0; k < jobs; k++) {
		if (pid[k] != p)
			continue;
		pid[k] = 0;
		/* A check in the explorer that ends it has found the bug too. A signal says nothing: look at it. */
		if (!WIFEXITED(status) || WEXITSTATUS(status)) {
			bugs[which[k]].caught = WIFEXITED(status);
			bugs[which[k]].ms += !bugs[which[k]].ms;
			snprintf(bugs[which[k]].by, sizeof(bugs[0].by), "%s %d", WIFEXITED(status) ? "a check, exit" : "signal",
				 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
		}
		show(which[k]);
		return (int)k;
	}
	FAIL("a child that nobody started");
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"all", 0, 0, 'a'},  {"jobs", 1, 0, 'j'},   {"seconds", 1, 0, 's'},
						{"only", 1, 0, 'o'}, {"states", 1, 0, 't'}, {"workload", 1, 0, 'w'},
						{"list", 0, 0, 'l'}, {"help", 0, 0, 'h'},   {0}};
	unsigned jobs = 1, running = 0;
	bool all = false;
	int only = -1, missed = 0, needless = 0, tried = 0, c;
	bool list = false;
	pid_t pid[16] = {0};
	int which[16];

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'a':
			all = true;
			break;
		case 'j':
			jobs = (unsigned)atoi(optarg);
			break;
		case 's':
			opt_seconds = (unsigned)atoi(optarg);
			break;
		case 'o':
			only = atoi(optarg);
			break;
		case 't':
			opt_states = strtoull(optarg, NULL, 0);
			break;
		case 'w':
			opt_workload = optarg;
			break;
		case 'l':
			list = true;
			break;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			fputs(usage, stderr);
			return 2;
		}
	}
	if (jobs < 1 || jobs > 16 || opt_seconds < 1) {
		fputs(usage, stderr);
		return 2;
	}
	bugs = mmap(NULL, BUGS_MAX * sizeof(*bugs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(bugs != MAP_FAILED);
	sequences_for_bugs();
	use = all || only >= 0 || list ? sequences() : 4;
	CHECK(use <= WORKLOADS_MAX);
	survey();
	printf("%d bugs to plant\n", nbugs);
	for (int i = 0; i < nbugs && list; i++)
		printf("%3d  %s\n", i, bugs[i].what);
	if (list)
		return 0;
	for (int i = only >= 0 ? only : 0; i < nbugs && (only < 0 || i == only); i++) {
		unsigned k = 0;

		if (!all && only < 0 && !strstr(bugs[i].what, "write_staged") && !strstr(bugs[i].what, "sfs_log_store"))
			continue;

		fflush(stdout);
		if (running == jobs) {
			k = (unsigned)wait_one(pid, which, jobs);
			running--;
		} else {
			while (pid[k])
				k++;
		}
		which[k] = i;
		tried++;
		running++;
		pid[k] = fork();
		CHECK(pid[k] >= 0);
		if (pid[k] == 0) {
			if (only < 0 && !freopen("/dev/null", "w", stderr))
				_exit(3);
			record_forked();
			hunt(&bugs[i]);
			_exit(0);
		}
	}
	while (running--)
		wait_one(pid, which, jobs);
	for (int i = 0; i < nbugs; i++)
		if (bugs[i].ms && !bugs[i].caught) {
			missed += !why_redundant(bugs[i].what);
			needless += why_redundant(bugs[i].what) != NULL;
		}
	for (size_t i = 0; needless && i < sizeof(redundant) / sizeof(redundant[0]); i++)
		printf("redundant: %s, %s: %s\n", redundant[i].verb, redundant[i].where, redundant[i].why);
	printf("%d bugs planted, %d caught, %d without effect, %d missed\n", tried, tried - missed - needless, needless,
	       missed);
	return missed > 0;
}
