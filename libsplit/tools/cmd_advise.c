/* SPDX-License-Identifier: Apache-2.0 */
/* splitfs advise: would it help? Runs a command under libadvise.so, which serves nothing and counts. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../advise/kind.h"
#include "advise.h"
#include "launch.h"

static const char help[] =
	"Usage: splitfs advise [OPTIONS] -- COMMAND [ARGUMENTS]\n"
	"       splitfs advise --measure [--dir DIR] [--json]\n"
	"\n"
	"Run COMMAND and say what SplitFS would do for the files below DIR: how many of its calls and bytes would be on the "
	"fast\n"
	"path, what the kernel would go on serving and why, which mode it needs for what it does, and how much time that "
	"would\n"
	"save. No volume is needed and nothing is served: calls are counted and passed on. What calls cost with SplitFS is\n"
	"measured afterwards, for a few seconds, in a directory of its own in DIR, which is removed again.\n"
	"\n"
	"  --dir DIR       the directory that would be the volume (default: the current one)\n"
	"  --output FILE   write the report there (default: standard error)\n"
	"  --json          the report as one JSON object\n"
	"  --no-estimate   do not measure, and estimate no time\n"
	"  --measure       run nothing, and print what calls cost in DIR, on standard output\n"
	"\n"
	"Exit status: that of COMMAND, 128 + N when signal N ended it; 1 failure, 2 wrong usage, 126 COMMAND can't be "
	"executed,\n"
	"127 there is no COMMAND.\n";

struct options {
	const char *dir, *output;
	bool as_json, estimate, measure;
	char **command;
};

/* A file that every process of the run may map, whoever it runs as; removed when `path` is not needed any more. */
static int report_make(char path[64], struct adv_report **report, struct sfs_why *why)
{
	static const char *const dirs[] = {"/dev/shm", "/tmp"};
	int fd = -1;

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]) && fd < 0; i++) {
		snprintf(path, 64, "%s/splitfs-advise-XXXXXX", dirs[i]);
		fd = mkostemp(path, O_CLOEXEC);
	}
	if (fd < 0)
		return sfs_fail(why, -errno, "make a file for the counts in /dev/shm or /tmp: %s", strerror(errno));
	if (fchmod(fd, 0666) < 0 || ftruncate(fd, sizeof(**report)) < 0)
		return sfs_fail(why, -errno, "%s: %s", path, strerror(errno));
	*report = mmap(NULL, sizeof(**report), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (*report == MAP_FAILED)
		return sfs_fail(why, -errno, "map %s: %s", path, strerror(errno));
	(*report)->magic = ADV_MAGIC;
	return 0;
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Of the processor's counter. */
static uint32_t learn_tick(void)
{
	const double from = seconds();
	const uint64_t ticks = adv_ticks();
	double took;

	do
		took = seconds() - from;
	while (took < 0.02);
	return (uint32_t)(took * 1e9 * ADV_TICK / (double)(adv_ticks() - ticks) + 0.5);
}

static double cpu_of_children(void)
{
	struct rusage u;

	getrusage(RUSAGE_CHILDREN, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* The program that execvp(3) would take. */
static enum adv_program kind_of(const char *name)
{
	const char *list = getenv("PATH");
	char path[PATH_MAX];

	if (strchr(name, '/'))
		return adv_kind(AT_FDCWD, name);
	for (const char *p = list ? list : "/usr/bin:/bin"; *p;) {
		const size_t n = strcspn(p, ":");

		snprintf(path, sizeof(path), "%.*s/%s", (int)n, p, name);
		if (access(path, X_OK) == 0)
			return adv_kind(AT_FDCWD, path);
		p += n + (p[n] == ':');
	}
	return ADV_NO_PROGRAM;
}

static int run_counted(const struct options *o, struct advice *a, struct adv_report *report, const char *path)
{
	char library[PATH_MAX], *text = NULL;
	struct sfs_why why = {0};
	double from;
	int status;

	if (launch_library(NULL, "libadvise.so", library, &why))
		return cli_fail("%s", why.text);
	if (asprintf(&text, "%s:%s", path, a->place->dir) < 0)
		return cli_fail("out of memory");
	report->tick = learn_tick();
	report->dax = a->place->dax;
	report->copies = strcmp(a->place->provider, "copy") == 0;
	a->command_kind = kind_of(o->command[0]);
	from = seconds();
	status = launch_command(o->command, (struct launch_env[]){{"LD_PRELOAD", library, ':'}, {ADV_ENV, text, 0}}, 2);
	a->seconds = seconds() - from;
	a->cpu = cpu_of_children();
	free(text);
	return status;
}

static int report_write(const struct options *o, const struct advice *a)
{
	FILE *out = o->output ? fopen(o->output, "we") : stderr;
	bool bad;

	if (!out)
		return cli_fail("%s: %s", o->output, strerror(errno));
	if (o->as_json) {
		struct json j = {.out = out};

		advise_json(&j, a);
		fputc('\n', out);
	} else {
		advise_text(out, a);
	}
	bad = fflush(out) != 0;
	if (o->output)
		fclose(out);
	return bad ? cli_fail("the report can't be written") : 0;
}

static int advise(const struct options *o, struct advise_place *place)
{
	struct cost_table table = {0};
	struct advice a = {.place = place, .table = &table, .command = o->command[0]};
	struct adv_report *report = NULL;
	struct sfs_why why = {0};
	char path[64];
	int status;

	if (advise_measure(place, NULL, &why) || report_make(path, &report, &why))
		return cli_fail("%s", why.text);
	a.counts = report;
	status = run_counted(o, &a, report, path);
	unlink(path);
	if (status == 126 || status == 127)
		return status;
	if (o->estimate && advise_measure(place, &table, &why))
		return cli_fail("%s", why.text);
	advise_conclude(&a);
	return report_write(o, &a) ? 1 : status;
}

/* What calls cost in the directory, for somebody else's estimate. */
static int only_measure(const struct options *o, struct advise_place *place)
{
	struct cost_table table = {0};
	struct json j = {.out = stdout};
	struct sfs_why why = {0};

	if (advise_measure(place, &table, &why))
		return cli_fail("%s", why.text);
	if (o->as_json) {
		json_object(&j, NULL);
		json_string(&j, "directory", place->dir);
		json_bool(&j, "emulated", !place->dax);
		json_string(&j, "provider", place->provider);
		advise_json_costs(&j, &table);
		json_object_end(&j);
		putchar('\n');
	} else {
		advise_text_costs(stdout, place, &table);
	}
	return fflush(stdout) ? cli_fail("standard output can't be written") : 0;
}

static int parse(struct options *o, int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{"dir", required_argument, NULL, OPT_DIR},
						{"output", required_argument, NULL, 'o'},
						{"json", no_argument, NULL, OPT_JSON},
						{"no-estimate", no_argument, NULL, 'n'},
						{"measure", no_argument, NULL, 'm'},
						{0}};
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, "+ho:", options, NULL)) != -1) {
		switch (c) {
		case 'o':
			o->output = optarg;
			break;
		case OPT_DIR:
			o->dir = optarg;
			break;
		case OPT_JSON:
			o->as_json = true;
			break;
		case 'n':
			o->estimate = false;
			break;
		case 'm':
			o->measure = true;
			break;
		case 'h':
			return -1;
		default:
			return cli_usage(&cmd_advise, "unknown option or missing value: %s", argv[optind - 1]);
		}
	}
	o->command = argv + optind;
	if (o->measure && optind < argc)
		return cli_usage(&cmd_advise, "--measure runs no command");
	if (!o->measure && optind == argc)
		return cli_usage(&cmd_advise, "there is no command to run");
	return 0;
}

static int run(int argc, char **argv)
{
	struct options o = {.dir = ".", .estimate = true};
	struct advise_place place = {0};
	int err;

	if (argc == 3 && strcmp(argv[1], "--probe") == 0)
		return advise_probe(argv[2]);
	if (argc == 3 && strcmp(argv[1], "--probe-files") == 0)
		return advise_probe_files(argv[2]);
	if (argc == 3 && strcmp(argv[1], "--probe-once") == 0)
		return advise_probe_once(argv[2]);
	err = parse(&o, argc, argv);
	if (err)
		return err < 0 ? cli_help(&cmd_advise) : err;
	if (!realpath(o.dir, place.dir))
		return cli_fail("%s: %s", o.dir, strerror(errno));
	if (strpbrk(place.dir, ":;"))
		return cli_fail("the path %s must not hold ':' or ';'; give the directory another name", place.dir);
	return o.measure ? only_measure(&o, &place) : advise(&o, &place);
}

const struct command cmd_advise = {"advise", "say what SplitFS would do for a command, without a volume", help, run};
