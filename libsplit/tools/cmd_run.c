/* SPDX-License-Identifier: Apache-2.0 */
/* splitfs run: one command with the library, without Kubernetes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/protect.h"
#include "cli.h"
#include "launch.h"
#include "local_agent.h"

#define RUN_POOL_BYTES (128ull << 20)

static const char help[] =
	"Usage: splitfs run --mode MODE --dir DIR [OPTIONS] -- COMMAND [ARGUMENTS]\n"
	"\n"
	"Run COMMAND with its reads and writes of files below DIR served by SplitFS. DIR needs no preparation and no root. An "
	"agent is\n"
	"started when none serves DIR, and ends when nothing uses DIR any more. DIR/.splitfs holds logs and staging files.\n"
	"\n"
	"  --mode MODE       posix, sync or strict\n"
	"  --dir DIR         the directory\n"
	"  --library FILE    libsplit.so (default: beside this program, or in ../lib)\n"
	"  --pool-bytes N    staging space of an agent started by us (default 128M; K, M, G and T may follow the number)\n"
	"  --chunk-bytes N   size of one staging file, a multiple of 2M (default 16M)\n"
	"  --unserved WHAT   what is done with programs without the library that open a file below DIR for writing: 'refuse' "
	"(EPERM), 'durable'\n"
	"                    (the file becomes synchronous: chattr +S), or 'allow' (the default). The first two take root, and "
	"a "
	"file system\n"
	"                    that is mounted on DIR\n"
	"\n"
	"  --protect         stores of COMMAND that go astray can't hit what the library has mapped; takes a processor with\n"
	"                    protection keys (PKU)\n"
	"\n"
	"Exit status: that of COMMAND, 128 + N when signal N ended it; 1 failure before it was started, 2 wrong usage, 126 "
	"COMMAND can't\n"
	"be executed, 127 there is no COMMAND.\n";

static int start(const char *mode, const char *dir, const char *given_library, const struct local_agent_options *o, char **argv)
{
	char library[PATH_MAX], *config = NULL;
	struct local_agent la;
	struct sfs_why why = {0};
	struct sfs_root r;
	int status;

	if (launch_library(given_library, "libsplit.so", library, &why) || sfs_root_open(&r, dir, true, &why))
		return cli_fail("%s", why.text);
	if (strpbrk(r.path, ":;")) {
		sfs_root_close(&r);
		return cli_fail("the path %s must not hold ':' or ';'; give the directory another name", r.path);
	}
	if (local_agent_get(&la, &r, o, &why)) {
		sfs_root_close(&r);
		return cli_fail("%s", why.text);
	}
	if (asprintf(&config, "%s:%s:%s", mode, r.path, la.dir) < 0)
		status = cli_fail("out of memory");
	else
		status = launch_command(
			argv, (struct launch_env[]){{"LD_PRELOAD", library, ':'}, {"SPLITFS_CONFIG", config, ';'}}, 2);
	free(config);
	local_agent_put(&la, &r);
	sfs_root_close(&r);
	return status;
}

static int run(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{"mode", required_argument, NULL, OPT_MODE},
						{"dir", required_argument, NULL, OPT_DIR},
						{"library", required_argument, NULL, OPT_LIBRARY},
						{"pool-bytes", required_argument, NULL, OPT_POOL},
						{"chunk-bytes", required_argument, NULL, OPT_CHUNK},
						{"unserved", required_argument, NULL, OPT_UNSERVED},
						{"protect", no_argument, NULL, OPT_PROTECT},
						{0}};
	const char *mode = NULL, *dir = NULL, *library = NULL;
	struct local_agent_options how = {.pool_bytes = RUN_POOL_BYTES, .chunk_bytes = SFS_DEFAULT_CHUNK_BYTES};
	int o;

	opterr = 0;
	while ((o = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
		switch (o) {
		case 'h':
			return cli_help(&cmd_run);
		case OPT_MODE:
			mode = optarg;
			break;
		case OPT_DIR:
			dir = optarg;
			break;
		case OPT_LIBRARY:
			library = optarg;
			break;
		case OPT_POOL:
			if (!cli_bytes(optarg, &how.pool_bytes))
				return cli_usage(&cmd_run, "--pool-bytes %s is no number of bytes", optarg);
			break;
		case OPT_CHUNK:
			if (!cli_bytes(optarg, &how.chunk_bytes))
				return cli_usage(&cmd_run, "--chunk-bytes %s is no number of bytes", optarg);
			break;
		case OPT_UNSERVED:
			if (!sfs_unserved_parse(optarg, &how.unserved))
				return cli_usage(&cmd_run, "--unserved must be refuse, durable or allow");
			break;
		case OPT_PROTECT:
			/* The library takes it from the environment, in pods too, and says nothing where it can't be. */
			if (!sfs_protect_possible())
				return cli_fail("--protect: this processor or its kernel has no protection keys (PKU)");
			setenv("SPLITFS_PROTECT", "on", 1);
			break;
		default:
			return cli_usage(&cmd_run, "unknown option or missing value: %s", argv[optind - 1]);
		}
	}
	if (!mode || (strcmp(mode, "posix") && strcmp(mode, "sync") && strcmp(mode, "strict")))
		return cli_usage(&cmd_run, "--mode must be posix, sync or strict");
	if (!dir)
		return cli_usage(&cmd_run, "--dir is needed");
	if (!cli_check_chunk(&cmd_run, how.chunk_bytes))
		return EXIT_USAGE;
	if (optind == argc)
		return cli_usage(&cmd_run, "there is no command to run");
	return start(mode, dir, library, &how, argv + optind);
}

const struct command cmd_run = {"run", "run one command with SplitFS for a directory", help, run};
