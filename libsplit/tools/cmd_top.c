/* SPDX-License-Identifier: Apache-2.0 */
/* splitfs top: what the processes of a volume do now, from the difference of two looks at their counters. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "json.h"
#include "top.h"

static const char help[] =
	"Usage: splitfs top ROOT [--interval S] [--once] [--json]\n"
	"\n"
	"Show what the processes of a volume do: reads and writes a second, how many of them the library served, fsyncs,\n"
	"checkpoints, and the pool. On a terminal the table is drawn again in its place until it is interrupted; elsewhere "
	"one\n"
	"table follows another, without control characters.\n"
	"\n"
	"  --interval S   seconds from one look to the next (default 1)\n"
	"  --once         end after the first table\n"
	"  --json         print one JSON object a line, with the counters' differences and the time they took\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 wrong usage.\n";

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* What ends the command. Blocked, so that the wait alone takes them: none comes between a look at a flag and the wait. */
static void ending_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
}

/* False when a signal says that it is enough. */
static bool wait_until(uint64_t ms)
{
	sigset_t set;

	ending_signals(&set);
	for (;;) {
		const uint64_t now = now_ms(), left = ms > now ? ms - now : 0;
		const struct timespec timeout = {(time_t)(left / 1000), (long)(left % 1000) * 1000000};

		if (sigtimedwait(&set, NULL, &timeout) > 0)
			return false;
		if (errno != EINTR)
			return true;
	}
}

static void print_json(const struct top *t)
{
	struct json j = {.out = stdout};

	json_object(&j, NULL);
	json_string(&j, "root", t->after->root.path);
	json_bool(&j, "emulated", !t->after->root.dax);
	json_string(&j, "provider", t->after->provider);
	json_number(&j, "agent_pid", (uint64_t)t->after->agent_pid);
	json_number(&j, "interval_ms", t->ms);
	report_json_pool(&j, t->after);
	json_array(&j, "processes");
	for (size_t i = 0; i < t->nrows; i++) {
		json_object(&j, NULL);
		json_number(&j, "pid", (uint64_t)t->rows[i].process->lease.pid);
		json_string(&j, "comm", t->rows[i].process->lease.comm);
		json_string(&j, "mode", report_mode(t->rows[i].process));
		report_json_counters(&j, "counters", &t->rows[i].delta);
		json_object_end(&j);
	}
	json_array_end(&j);
	report_json_counters(&j, "ended", &t->ended);
	report_json_counters(&j, "total", &t->total);
	report_json_percentiles(&j, "latency", &t->latency);
	json_object_end(&j);
	putchar('\n');
}

struct options {
	const char *root;
	uint64_t interval_ms;
	bool once, as_json;
};

static int show(const struct options *o, struct screen *screen, const struct report *before, const struct report *after,
		uint64_t ms, struct sfs_why *why)
{
	struct top t = {0};
	int err = top_compare(&t, before, after, ms, why);

	if (!err && o->as_json)
		print_json(&t);
	else if (!err)
		err = screen_draw(screen, &t, why);
	top_free(&t);
	if (!err && fflush(stdout))
		err = sfs_fail(why, -EIO, "standard output can't be written");
	return err;
}

static int watch(const struct options *o, struct sfs_why *why)
{
	struct screen screen;
	struct report before = {0};
	uint64_t at = now_ms();
	int err = report_look(&before, o->root, why);

	screen_init(&screen);
	while (!err && wait_until(at + o->interval_ms)) {
		const uint64_t then = now_ms();
		struct report after = {0};

		memcpy(after.provider, before.provider, sizeof(after.provider));
		err = report_look(&after, o->root, why);
		if (!err)
			err = show(o, &screen, &before, &after, then - at, why);
		report_free(&before);
		before = after;
		at = then;
		if (o->once)
			break;
	}
	report_free(&before);
	return err;
}

static int run(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{"interval", required_argument, NULL, OPT_INTERVAL},
						{"once", no_argument, NULL, OPT_ONCE},
						{"json", no_argument, NULL, OPT_JSON},
						{0}};
	struct options o = {.interval_ms = 1000};
	struct sfs_why why = {0};
	sigset_t ending;
	uint64_t n;
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (c) {
		case 'h':
			return cli_help(&cmd_top);
		case OPT_INTERVAL:
			if (!cli_bytes(optarg, &n) || n == 0 || n > 3600)
				return cli_usage(&cmd_top, "--interval must be from 1 to 3600 seconds");
			o.interval_ms = n * 1000;
			break;
		case OPT_ONCE:
			o.once = true;
			break;
		case OPT_JSON:
			o.as_json = true;
			break;
		default:
			return cli_usage(&cmd_top, "unknown option or missing value: %s", argv[optind - 1]);
		}
	}
	if (argc - optind != 1)
		return cli_usage(&cmd_top, "top takes one directory");
	o.root = argv[optind];
	ending_signals(&ending);
	sigprocmask(SIG_BLOCK, &ending, NULL);
	return watch(&o, &why) ? cli_fail("%s", why.text) : 0;
}

const struct command cmd_top = {"top", "show what the processes of a volume do now", help, run};
