/* SPDX-License-Identifier: Apache-2.0 */
/* splitfs agent: serve one volume. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "cli.h"

static const char help[] =
	"Usage: splitfs agent ROOT --agents-dir DIR [OPTIONS]\n"
	"\n"
	"Serve the volume ROOT in the foreground: prepare it, recover it, listen on DIR/<major>-<minor>.sock, print \"ready\", "
	"and lease\n"
	"logs and staging files to the processes that use it until SIGTERM. Processes keep their leases when the agent ends, "
	"and come\n"
	"back to the next one.\n"
	"\n"
	"  --agents-dir DIR     directory of the socket\n"
	"  --listen-fd N        descriptor of a socket that listens in DIR already, made by whoever starts agents for it: "
	"connections wait in it\n"
	"                       while one agent follows another\n"
	"  --gate-fd N          descriptors of a fanotify group and, N + 1, of a memory file, both kept by whoever starts "
	"agents for "
	"it: programs\n"
	"                       that open files wait while one agent follows another\n"
	"  --pool-bytes N       staging space kept ready (default 256M; K, M, G and T may follow the number)\n"
	"  --chunk-bytes N      size of one staging file, a multiple of 2M (default 16M)\n"
	"  --log-bytes N        records of one process's log at most (default 4M): it begins with 8K and grows\n"
	"  --log-space N        logs of all processes grow to so much together (default 64M), and one pod's to three quarters "
	"of it\n"
	"  --client-chunks N    staging files one process may have (default: half of the pool, at least 2)\n"
	"  --fill-percent P     while a quarter of the pool is ready and nobody waits, filling it takes at most P percent of "
	"a\n"
	"                       processor (default 25)\n"
	"  --fill-lock FILE     agents with the same FILE share that budget; it is made when it is missing\n"
	"  --report-after S     say so when a process has waited S seconds for a file that another one does not give up "
	"(default 30)\n"
	"  --unserved WHAT      what is done with programs without the library that open a file for writing: 'refuse' (EPERM), "
	"'durable'\n"
	"                       (the file becomes synchronous: chattr +S), or 'allow' (the default). ROOT must be a file "
	"system of its own\n"
	"  --unserved-by FILE   what is done with those of pods: a line for each, the pod's UID and WHAT; read again when it "
	"is "
	"replaced\n"
	"  --provider copy      bring staged bytes into files by copying, although blocks could be moved: to see what "
	"moving is worth\n"
	"  --private            used by 'splitfs run': DIR is this agent's own and is removed with it, and SIGTERM means to "
	"end\n"
	"                       when no process uses the volume any more\n"
	"\n"
	"Exit status: 0 after SIGTERM, 1 failure, 2 wrong usage.\n";

static int run(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{"agents-dir", required_argument, NULL, OPT_AGENTS_DIR},
						{"listen-fd", required_argument, NULL, OPT_LISTEN_FD},
						{"gate-fd", required_argument, NULL, OPT_GATE_FD},
						{"pool-bytes", required_argument, NULL, OPT_POOL},
						{"chunk-bytes", required_argument, NULL, OPT_CHUNK},
						{"log-bytes", required_argument, NULL, OPT_LOG},
						{"log-space", required_argument, NULL, OPT_LOG_SPACE},
						{"client-chunks", required_argument, NULL, OPT_CLIENT_CHUNKS},
						{"fill-lock", required_argument, NULL, OPT_FILL_LOCK},
						{"fill-percent", required_argument, NULL, OPT_FILL_PERCENT},
						{"report-after", required_argument, NULL, OPT_REPORT_AFTER},
						{"unserved", required_argument, NULL, OPT_UNSERVED},
						{"unserved-by", required_argument, NULL, OPT_UNSERVED_BY},
						{"provider", required_argument, NULL, OPT_PROVIDER},
						{"private", no_argument, NULL, OPT_PRIVATE},
						{0}};
	struct sfs_agent_config c = {.pool_bytes = SFS_DEFAULT_POOL_BYTES,
				     .chunk_bytes = SFS_DEFAULT_CHUNK_BYTES,
				     .log_bytes = SFS_DEFAULT_LOG_BYTES,
				     .ready_fd = STDOUT_FILENO};
	struct sfs_why why = {0};
	uint64_t n;
	int o;

	opterr = 0;
	while ((o = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (o) {
		case 'h':
			return cli_help(&cmd_agent);
		case OPT_AGENTS_DIR:
			c.agents_dir = optarg;
			break;
		case OPT_LISTEN_FD:
			if (!cli_bytes(optarg, &n) || n < 3 || n > INT_MAX)
				return cli_usage(&cmd_agent, "--listen-fd must be the number of a descriptor, 3 or more");
			c.listen_fd = (int)n;
			break;
		case OPT_GATE_FD:
			if (!cli_bytes(optarg, &n) || n < 3 || n >= INT_MAX)
				return cli_usage(&cmd_agent, "--gate-fd must be the number of a descriptor, 3 or more");
			c.gate_fd = (int)n;
			break;
		case OPT_POOL:
			if (!cli_bytes(optarg, &c.pool_bytes))
				return cli_usage(&cmd_agent, "--pool-bytes %s is no number of bytes", optarg);
			break;
		case OPT_CHUNK:
			if (!cli_bytes(optarg, &c.chunk_bytes))
				return cli_usage(&cmd_agent, "--chunk-bytes %s is no number of bytes", optarg);
			break;
		case OPT_LOG:
			if (!cli_bytes(optarg, &c.log_bytes) || c.log_bytes < 8192 || c.log_bytes % 4096 ||
			    c.log_bytes > 1ull << 36)
				return cli_usage(&cmd_agent, "--log-bytes must be a multiple of 4K, from 8K to 64G");
			break;
		case OPT_LOG_SPACE:
			if (!cli_bytes(optarg, &c.log_space) || c.log_space == 0 || c.log_space > 1ull << 40)
				return cli_usage(&cmd_agent, "--log-space must be a number of bytes, at most 1T");
			break;
		case OPT_CLIENT_CHUNKS:
			if (!cli_bytes(optarg, &n) || n == 0 || n > SFS_LEASE_CHUNKS)
				return cli_usage(&cmd_agent, "--client-chunks must be from 1 to %u", SFS_LEASE_CHUNKS);
			c.client_chunks = (uint32_t)n;
			break;
		case OPT_FILL_LOCK:
			c.fill_lock = optarg;
			break;
		case OPT_FILL_PERCENT:
			if (!cli_bytes(optarg, &n) || n == 0 || n > 100)
				return cli_usage(&cmd_agent, "--fill-percent must be from 1 to 100");
			c.fill_percent = (uint32_t)n;
			break;
		case OPT_REPORT_AFTER:
			if (!cli_bytes(optarg, &n) || n == 0 || n > 86400)
				return cli_usage(&cmd_agent, "--report-after must be from 1 to 86400 seconds");
			c.overdue_ms = n * 1000;
			break;
		case OPT_UNSERVED:
			if (!sfs_unserved_parse(optarg, &c.unserved))
				return cli_usage(&cmd_agent, "--unserved must be refuse, durable or allow");
			break;
		case OPT_UNSERVED_BY:
			c.unserved_by = optarg;
			break;
		case OPT_PROVIDER:
			if (strcmp(optarg, "copy"))
				return cli_usage(&cmd_agent,
						 "--provider must be copy: without it the best one that works is taken");
			c.copies = true;
			break;
		case OPT_PRIVATE:
			c.private_dir = true;
			break;
		default:
			return cli_usage(&cmd_agent, "unknown option or missing value: %s", argv[optind - 1]);
		}
	}
	if (argc - optind != 1)
		return cli_usage(&cmd_agent, "agent takes one directory");
	if (!c.agents_dir)
		return cli_usage(&cmd_agent, "--agents-dir is needed");
	if (c.private_dir && (c.listen_fd || c.gate_fd))
		return cli_usage(&cmd_agent, "--private and --listen-fd or --gate-fd exclude each other");
	if (!cli_check_chunk(&cmd_agent, c.chunk_bytes))
		return EXIT_USAGE;
	c.root = argv[optind];
	return sfs_agent_run(&c, &why) ? cli_fail("%s", why.text) : 0;
}

const struct command cmd_agent = {"agent", "serve a volume to the processes that use it", help, run};
