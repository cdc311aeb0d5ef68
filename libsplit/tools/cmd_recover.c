/* SPDX-License-Identifier: Apache-2.0 */
/* splitfs recover: replay every log. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "cli.h"
#include "json.h"

static const char help[] =
	"Usage: splitfs recover ROOT [--copy] [--json]\n"
	"\n"
	"Bring what ended processes had recorded in their logs into the files of the volume, make it durable and clear the "
	"logs. May be\n"
	"repeated, also after it was interrupted at any point. Refuses while an agent serves the volume (which does the same "
	"by itself)\n"
	"and while a process still uses it.\n"
	"\n"
	"  --copy   ROOT is a copy of a volume's file system, taken while the volume was in use: processes that hold logs of "
	"the "
	"original\n"
	"           are not waited for\n"
	"  --json   print {\"logs\":n,\"records\":n,\"replayed\":n,\"bytes\":n,\"ignored\":n,\"files\":n,\"quarantined\":n}\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 wrong usage.\n";

static void raise_limit(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur < rl.rlim_max) {
		rl.rlim_cur = rl.rlim_max;
		setrlimit(RLIMIT_NOFILE, &rl); /* where that is refused, the lower limit holds */
	}
}

static void notice(void *ctx, const char *text)
{
	(void)ctx;
	fprintf(stderr, "splitfs: %s\n", text);
}

static int recover(const struct sfs_root *r, bool copy, struct sfs_recovery *sum, struct sfs_why *why)
{
	struct cli_progress progress;
	const struct sfs_recover_how how = {
		.durable = true, .copy = copy, .progress = cli_recover_progress, .progress_ctx = &progress, .notice = notice};
	uint32_t living = 0;
	int err;

	cli_progress_init(&progress, "recovering: reading the logs");
	err = sfs_recover_all(r, &how, sum, &living, why);
	cli_progress_end(&progress);
	if (!err && living)
		err = sfs_fail(why, -EBUSY,
			       "%u processes still use %s (see 'splitfs status %s'); their logs were left alone. End them, or "
			       "start the "
			       "agent of the volume again",
			       living, r->path, r->path);
	return err;
}

static void print(const struct sfs_recovery *s, bool as_json)
{
	struct json j = {.out = stdout};

	if (!as_json) {
		printf("%llu logs, %llu records: %llu replayed into %llu files (%llu bytes), %llu ignored, %llu quarantined\n",
		       (unsigned long long)s->logs, (unsigned long long)s->records, (unsigned long long)s->replayed,
		       (unsigned long long)s->files, (unsigned long long)s->bytes, (unsigned long long)s->ignored,
		       (unsigned long long)s->quarantined);
		return;
	}
	json_object(&j, NULL);
	json_number(&j, "logs", s->logs);
	json_number(&j, "records", s->records);
	json_number(&j, "replayed", s->replayed);
	json_number(&j, "bytes", s->bytes);
	json_number(&j, "ignored", s->ignored);
	json_number(&j, "files", s->files);
	json_number(&j, "quarantined", s->quarantined);
	json_object_end(&j);
	putchar('\n');
}

static int run(int argc, char **argv)
{
	static const struct option options[] = {
		{"help", no_argument, NULL, 'h'}, {"copy", no_argument, NULL, 'c'}, {"json", no_argument, NULL, OPT_JSON}, {0}};
	struct sfs_recovery sum = {0};
	struct sfs_why why = {0};
	bool as_json = false, copy = false;
	struct sfs_root r;
	int o, err;

	opterr = 0;
	while ((o = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (o) {
		case 'h':
			return cli_help(&cmd_recover);
		case 'c':
			copy = true;
			break;
		case OPT_JSON:
			as_json = true;
			break;
		default:
			return cli_usage(&cmd_recover, "unknown option: %s", argv[optind - 1]);
		}
	}
	if (argc - optind != 1)
		return cli_usage(&cmd_recover, "recover takes one directory");
	raise_limit();
	sfs_file_size_lift();
	err = sfs_root_open(&r, argv[optind], false, &why);
	if (err)
		return cli_fail("%s", why.text);
	err = sfs_root_lock(&r, "recover", &why);
	if (!err)
		err = recover(&r, copy, &sum, &why);
	sfs_root_close(&r);
	if (err)
		return cli_fail("%s", why.text);
	print(&sum, as_json);
	return fflush(stdout) ? cli_fail("standard output can't be written") : 0;
}

const struct command cmd_recover = {"recover", "replay the logs that ended processes left", help, run};
