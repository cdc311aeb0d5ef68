/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data path on real DAX, in one run: four processes do the same work on one file system, one through the kernel and one in each
 * mode of the library, and take turns by slices, so that whatever else the machine does falls on all of them. A ratio is taken
 * within a round; the tables show medians, and least and greatest as the spread.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../timing.h"
#include "measure.h"

#define ROUNDS_MAX 200
#define WORKERS	   4
#define SIZES	   3

static const char *const names[WORKERS] = {"kernel", "posix", "sync", "strict"};
static const char *const metric_names[METRIC_COUNT] = {
#define METRIC_NAME(id, name) name,
	METRICS(METRIC_NAME)
#undef METRIC_NAME
};

static const struct {
	const char *name;
	unsigned count;
} slices[] = {{"files", 20}, {"names", 20}, {"appends", 500}, {"appends-10", 2000}, {"overwrites", 500}, {"reads", 500}};

/* What the project aims at, as kernel over library; everything else is printed without a judgement. */
static const struct {
	enum metric metric;
	double aim;
} aims[] = {{M_APPEND_10, 5}, {M_FSYNC_10, 10}, {M_OPEN, 1 / 1.1}, {M_CLOSE, 1 / 1.1}, {M_UNLINK, 1 / 1.1}};

struct worker {
	pid_t pid;
	int in, out;
	double ns[METRIC_COUNT][ROUNDS_MAX];
	double written[METRIC_COUNT][ROUNDS_MAX];
};

static struct {
	const char *dir, *splitfs, *library, *json;
	unsigned rounds;
	double scale;
	int instructions; /* the machine's clock counts them: 1 ns each */
} opt;
static struct worker workers[WORKERS];
static pid_t agent;
static char agents_dir[PATH_MAX];

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *fmt, ...)
{
	va_list args;

	fputs("vm_bench: ", stderr);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

void spread(double *v, unsigned n, double result[3])
{
	qsort(v, n, sizeof(*v), by_value);
	result[0] = n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
	result[1] = v[0];
	result[2] = v[n - 1];
}

/* A child with a pipe from (and, with `in`, to) it; it ends with us. */
static pid_t start(char *const argv[], char *const env[][2], const char *cwd, int *in, int *out)
{
	int to[2], from[2];
	pid_t pid;

	if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0)
		die("pipe: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (in)
			dup2(to[0], STDIN_FILENO);
		dup2(from[1], STDOUT_FILENO);
		for (size_t i = 0; env && env[i][0]; i++)
			setenv(env[i][0], env[i][1], 1);
		if (cwd && chdir(cwd) < 0)
			die("%s: %s", cwd, strerror(errno));
		execv(argv[0], argv);
		die("%s: %s", argv[0], strerror(errno));
	}
	close(to[0]);
	close(from[1]);
	if (in)
		*in = to[1];
	else
		close(to[1]);
	*out = from[0];
	return pid;
}

static void start_agent(void)
{
	char *argv[] = {(char *)opt.splitfs, "agent",	     (char *)opt.dir, "--agents-dir",
			agents_dir,	     "--pool-bytes", (char *)"128M",  NULL};
	char ready[6];
	int out;

	snprintf(agents_dir, sizeof(agents_dir), "/tmp/vm_bench.XXXXXX");
	if (!mkdtemp(agents_dir))
		die("mkdtemp: %s", strerror(errno));
	agent = start(argv, NULL, NULL, NULL, &out);
	if (read(out, ready, sizeof(ready)) != sizeof(ready))
		die("the agent did not start; what it said is above");
}

static void start_worker(int i)
{
	char cwd[PATH_MAX], config[2 * PATH_MAX + 16], self[PATH_MAX];
	char *argv[] = {self, "--worker", NULL};
	char *env[3][2] = {{"LD_PRELOAD", (char *)opt.library}, {"SPLITFS_CONFIG", config}, {NULL, NULL}};
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0)
		die("/proc/self/exe: %s", strerror(errno));
	self[n] = 0;
	snprintf(cwd, sizeof(cwd), "%s/%s", opt.dir, names[i]);
	if (mkdir(cwd, 0755) < 0 && errno != EEXIST)
		die("mkdir %s: %s", cwd, strerror(errno));
	snprintf(config, sizeof(config), "%s:%s:%s", names[i], opt.dir, agents_dir);
	workers[i].pid = start(argv, i == 0 ? NULL : env, cwd, &workers[i].in, &workers[i].out);
}

static void run_slice(int i, size_t s, unsigned round)
{
	unsigned count = (unsigned)(slices[s].count * opt.scale);
	struct slice got;

	/* A multiple of the ten of "fsync every ten". */
	count = count < 10 ? 10 : count / 10 * 10;
	dprintf(workers[i].in, "%s %u\n", slices[s].name, count);
	for (size_t have = 0; have < sizeof(got);) {
		const ssize_t n = read(workers[i].out, (char *)&got + have, sizeof(got) - have);

		if (n <= 0)
			die("the '%s' process ended in '%s'; what it said is above", names[i], slices[s].name);
		have += (size_t)n;
	}
	for (int m = 0; m < METRIC_COUNT; m++)
		if (got.ns[m] > 0 && round > 0) {
			workers[i].ns[m][round - 1] = got.ns[m];
			workers[i].written[m][round - 1] = got.written[m];
		}
}

/* `splitfs status --json` as it is. The run is worth nothing when the library did not serve it. */
static char *status(void)
{
	char *argv[] = {(char *)opt.splitfs, "status", (char *)opt.dir, "--json", NULL}, *text = calloc(1, 1 << 16), *totals;
	size_t have = 0;
	ssize_t n;
	int out;
	pid_t pid = start(argv, NULL, NULL, NULL, &out);

	while (text && (n = read(out, text + have, (1 << 16) - 1 - have)) > 0)
		have += (size_t)n;
	waitpid(pid, NULL, 0);
	close(out);
	totals = text ? strstr(text, "\"totals\"") : NULL;
	if (!totals || strstr(totals, "\"append_ops\":0,"))
		die("the library's counters say that it served no append: nothing was measured");
	text[strcspn(text, "\n")] = 0;
	return text;
}

static void print_ratio(int w, enum metric m, double result[3])
{
	double v[ROUNDS_MAX];

	for (unsigned r = 0; r < opt.rounds; r++)
		v[r] = workers[0].ns[m][r] / workers[w].ns[m][r];
	spread(v, opt.rounds, result);
	printf(" (%.2f, %.2f-%.2f)", result[0], result[1], result[2]);
}

static void print_table(const char *title, const enum metric *list, size_t n, double unit, FILE *json)
{
	printf("\n%s\n%-32s %10s", title, "", names[0]);
	for (int w = 1; w < WORKERS; w++)
		printf(" %9s %-19s", names[w], "(times faster)");
	printf("\n");
	for (size_t k = 0; k < n; k++) {
		const enum metric m = list[k];

		printf("%-32s", metric_names[m]);
		fprintf(json, "%s\n  \"%s\": {", ftell(json) > 2 ? "," : "", metric_names[m]);
		for (int w = 0; w < WORKERS; w++) {
			double v[ROUNDS_MAX], s[3], written[3], ratio[3] = {1, 1, 1};

			memcpy(v, workers[w].written[m], sizeof(v));
			spread(v, opt.rounds, written);
			memcpy(v, workers[w].ns[m], sizeof(v));
			spread(v, opt.rounds, s);
			printf(" %10.2f", s[0] / unit);
			if (w > 0)
				print_ratio(w, m, ratio);
			fprintf(json,
				"%s\"%s\": {\"ns\": [%.0f, %.0f, %.0f], \"ratio\": [%.3f, %.3f, %.3f], \"written\": %.0f}",
				w ? ", " : "", names[w], s[0], s[1], s[2], ratio[0], ratio[1], ratio[2], written[0]);
		}
		fprintf(json, "}");
		printf("\n");
	}
}

static void print_aims(void)
{
	printf("\nAims (times faster than the kernel, median)\n");
	for (size_t i = 0; i < sizeof(aims) / sizeof(aims[0]); i++) {
		printf("%-32s at least %5.2f:", metric_names[aims[i].metric], aims[i].aim);
		for (int w = 1; w < WORKERS; w++) {
			double v[ROUNDS_MAX], s[3];

			for (unsigned r = 0; r < opt.rounds; r++)
				v[r] = workers[0].ns[aims[i].metric][r] / workers[w].ns[aims[i].metric][r];
			spread(v, opt.rounds, s);
			printf("  %s %.2f %s", names[w], s[0], s[0] >= aims[i].aim ? "reached" : "MISSED");
		}
		printf("\n");
	}
}

static void relinks(FILE *json)
{
	static const uint64_t sizes[SIZES] = {4096, 2u << 20, 128u << 20};
	const char *provider = "";

	for (int i = 0; i < SIZES; i++) {
		struct relink_times t = {.bytes = sizes[i], .rounds = i == SIZES - 1 ? 3 : 15};
		const int r = relink_measure(opt.dir, &t, &provider);

		if (r < 0)
			die("relink of %llu bytes: %s", (unsigned long long)sizes[i], strerror(-r));
		if (i == 0)
			printf("\nThe relink call by '%s' and write(2) of the same\n", provider);
		printf("%8llu KiB   relink %9.1f (%.1f-%.1f)   write %10.1f (%.1f-%.1f)\n",
		       (unsigned long long)(sizes[i] >> 10), t.relink_us[0], t.relink_us[1], t.relink_us[2], t.write_us[0],
		       t.write_us[1], t.write_us[2]);
		fprintf(json,
			",\n  \"relink %llu\": {\"provider\": \"%s\", \"us\": [%.1f, %.1f, %.1f], \"write_us\": [%.1f, %.1f, "
			"%.1f]}",
			(unsigned long long)sizes[i], provider, t.relink_us[0], t.relink_us[1], t.relink_us[2], t.write_us[0],
			t.write_us[1], t.write_us[2]);
	}
}

static void report(const char *counters)
{
	static const enum metric table1[] = {M_APPEND_ONLY, M_FSYNC_ALL, M_APPEND_CLOSE};
	static const enum metric table6[] = {M_CREATE, M_OPEN,	 M_CLOSE, M_APPEND,	   M_FSYNC,
					     M_READ,   M_UNLINK, M_FILE,  M_CREATE_FORCED, M_UNLINK_FORCED};
	static const enum metric figure3[] = {M_OVERWRITE_10, M_APPEND_10, M_FSYNC_10, M_OVERWRITE, M_READ_SEQ, M_READ_RANDOM};
	char *text = NULL;
	size_t size;
	FILE *json = open_memstream(&text, &size), *file;
	struct utsname u;

	if (!json)
		die("out of memory");
	uname(&u);
	fprintf(json, "{");
	printf("Linux %s, %u rounds. In brackets how many times faster than the kernel: median, least-greatest round.\n",
	       u.release, opt.rounds);
	printf("All figures are %s per operation.\n",
	       opt.instructions ? "thousands of instructions, kernel and programs," : "microseconds");
	print_table("Table 1: appending", table1, sizeof(table1) / sizeof(table1[0]), 1000, json);
	print_table("Table 6: system calls", table6, sizeof(table6) / sizeof(table6[0]), 1000, json);
	print_table("Figure 3: 4 KiB operations", figure3, sizeof(figure3) / sizeof(figure3[0]), 1000, json);
	print_aims();
	relinks(json);
	fprintf(json, ",\n  \"kernel\": \"%s\", \"rounds\": %u, \"instructions\": %s, \"status\": %s\n}\n", u.release,
		opt.rounds, opt.instructions ? "true" : "false", counters);
	fclose(json);
	if (opt.json) {
		file = fopen(opt.json, "w");
		if (!file || fwrite(text, 1, size, file) != size || fclose(file))
			die("%s: %s", opt.json, strerror(errno));
	}
	free(text);
}

static void usage(FILE *to)
{
	fputs("Usage: vm_bench --dir DIR --splitfs PROGRAM --library libsplit.so [--rounds N] [--scale X] [--json FILE]\n"
	      "       [--instructions]\n"
	      "Measures the kernel's file system below DIR (a mount point) against the library in its three modes on it.\n"
	      "  --rounds N   how often everything is measured, after one round that warms up (default 9)\n"
	      "  --scale X    times as much work in each round\n"
	      "  --json FILE  medians, least and greatest as a JSON object\n"
	      "  --instructions  the machine's clock advances a nanosecond per instruction: name the unit so\n",
	      to);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"dir", 1, 0, 'd'},	     {"splitfs", 1, 0, 's'},
						{"library", 1, 0, 'l'},	     {"rounds", 1, 0, 'r'},
						{"scale", 1, 0, 'x'},	     {"json", 1, 0, 'j'},
						{"help", 0, 0, 'h'},	     {"worker", 0, 0, 'w'},
						{"instructions", 0, 0, 'i'}, {0}};
	char *counters;
	int o;

	opt.rounds = 9;
	opt.scale = 1;
	while ((o = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (o) {
		case 'd':
			opt.dir = optarg;
			break;
		case 's':
			opt.splitfs = optarg;
			break;
		case 'l':
			opt.library = optarg;
			break;
		case 'r':
			opt.rounds = (unsigned)atoi(optarg);
			break;
		case 'x':
			opt.scale = atof(optarg);
			break;
		case 'j':
			opt.json = optarg;
			break;
		case 'i':
			opt.instructions = 1;
			break;
		case 'w':
			return worker_main();
		case 'h':
			usage(stdout);
			return 0;
		default:
			usage(stderr);
			return 2;
		}
	}
	if (!opt.dir || !opt.splitfs || !opt.library || opt.rounds < 1 || opt.rounds > ROUNDS_MAX || opt.scale <= 0) {
		usage(stderr);
		return 2;
	}
	start_agent();
	for (int i = 0; i < WORKERS; i++)
		start_worker(i);
	for (unsigned round = 0; round <= opt.rounds; round++) {
		for (size_t s = 0; s < sizeof(slices) / sizeof(slices[0]); s++)
			for (unsigned i = 0; i < WORKERS; i++)
				run_slice((int)((i + round) % WORKERS), s, round);
		fprintf(stderr, "vm_bench: round %u of %u\n", round, opt.rounds);
	}
	counters = status();
	for (int i = 0; i < WORKERS; i++) {
		int how;

		close(workers[i].in);
		if (waitpid(workers[i].pid, &how, 0) != workers[i].pid || how != 0)
			die("the '%s' process failed at its end (status 0x%x)", names[i], how);
	}
	report(counters);
	kill(agent, SIGTERM);
	if (waitpid(agent, &o, 0) != agent || o != 0)
		die("the agent ended with status 0x%x", o);
	rmdir(agents_dir);
	return 0;
}
