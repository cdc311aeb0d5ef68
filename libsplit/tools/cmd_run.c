/* SPDX-License-Identifier: Apache-2.0 */
/* splitfs run: one command with the library, without Kubernetes. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
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
	"\n"
	"Exit status: that of COMMAND, 128 + N when signal N ended it; 1 failure before it was started, 2 wrong usage, 126 "
	"COMMAND can't\n"
	"be executed, 127 there is no COMMAND.\n";

static volatile sig_atomic_t child;

static void forward(int sig)
{
	if (child > 0)
		kill((pid_t)child, sig);
}

/* Absolute path of the library into `path`. */
static int find_library(const char *given, char path[PATH_MAX], struct sfs_why *why)
{
	static const char *const places[] = {"libsplit.so", "../lib/libsplit.so", "../lib/splitfs/libsplit.so"};
	char exe[PATH_MAX], candidate[2 * PATH_MAX];
	ssize_t n;

	if (given) {
		if (!realpath(given, path))
			return sfs_fail(why, -errno, "--library %s: %s", given, strerror(errno));
	} else {
		bool found = false;

		n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
		if (n < 0)
			return sfs_fail(why, -errno, "/proc/self/exe: %s", strerror(errno));
		exe[n] = 0;
		dirname(exe);
		for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && !found; i++) {
			snprintf(candidate, sizeof(candidate), "%s/%s", exe, places[i]);
			found = realpath(candidate, path) != NULL;
		}
		if (!found)
			return sfs_fail(why, -ENOENT, "libsplit.so is neither in %s nor in %s/../lib; name it with --library",
					exe, exe);
	}
	if (access(path, R_OK) < 0)
		return sfs_fail(why, -errno, "%s: %s", path, strerror(errno));
	/* The dynamic linker takes these for separators and has no way to quote them. */
	if (strpbrk(path, " :"))
		return sfs_fail(why, -EINVAL, "the path of the library, %s, must not hold a blank or a colon", path);
	return 0;
}

static int set_env(const char *name, const char *value, char separator)
{
	const char *old = getenv(name);
	char *joined = NULL;
	int err;

	if (old && *old) {
		if (asprintf(&joined, "%s%c%s", value, separator, old) < 0)
			return -ENOMEM;
		value = joined;
	}
	err = setenv(name, value, 1) < 0 ? -errno : 0;
	free(joined);
	return err;
}

static void exec_command(char **argv, const char *library, const char *config, const sigset_t *mask)
{
	signal(SIGINT, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	sigprocmask(SIG_SETMASK, mask, NULL);
	if (set_env("LD_PRELOAD", library, ':') || set_env("SPLITFS_CONFIG", config, ';')) {
		fprintf(stderr, "splitfs: out of memory\n");
		_exit(1);
	}
	execvp(argv[0], argv);
	fprintf(stderr, "splitfs: %s: %s\n", argv[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static int wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return cli_fail("wait: %s", strerror(errno));
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int run_command(char **argv, const char *library, const char *config)
{
	const struct sigaction forwarded = {.sa_handler = forward, .sa_flags = SA_RESTART};
	const int signals[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
	sigset_t block, old;
	pid_t pid;

	/* Keys on the terminal reach the command by themselves. */
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	sigemptyset(&block);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaddset(&block, signals[i]);
	sigprocmask(SIG_BLOCK, &block, &old);
	pid = fork();
	if (pid < 0)
		return cli_fail("fork: %s", strerror(errno));
	if (pid == 0)
		exec_command(argv, library, config, &old);
	child = pid;
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &forwarded, NULL);
	sigprocmask(SIG_SETMASK, &old, NULL);
	return wait_for(pid);
}

static int start(const char *mode, const char *dir, const char *given_library, uint64_t pool, uint64_t chunk, char **argv)
{
	char library[PATH_MAX], *config = NULL;
	struct local_agent la;
	struct sfs_why why = {0};
	struct sfs_root r;
	int status;

	if (find_library(given_library, library, &why) || sfs_root_open(&r, dir, true, &why))
		return cli_fail("%s", why.text);
	if (strpbrk(r.path, ":;")) {
		sfs_root_close(&r);
		return cli_fail("the path %s must not hold ':' or ';'; give the directory another name", r.path);
	}
	if (local_agent_get(&la, &r, pool, chunk, &why)) {
		sfs_root_close(&r);
		return cli_fail("%s", why.text);
	}
	if (asprintf(&config, "%s:%s:%s", mode, r.path, la.dir) < 0)
		status = cli_fail("out of memory");
	else
		status = run_command(argv, library, config);
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
						{0}};
	const char *mode = NULL, *dir = NULL, *library = NULL;
	uint64_t pool = RUN_POOL_BYTES, chunk = SFS_DEFAULT_CHUNK_BYTES;
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
			if (!cli_bytes(optarg, &pool))
				return cli_usage(&cmd_run, "--pool-bytes %s is no number of bytes", optarg);
			break;
		case OPT_CHUNK:
			if (!cli_bytes(optarg, &chunk))
				return cli_usage(&cmd_run, "--chunk-bytes %s is no number of bytes", optarg);
			break;
		default:
			return cli_usage(&cmd_run, "unknown option or missing value: %s", argv[optind - 1]);
		}
	}
	if (!mode || (strcmp(mode, "posix") && strcmp(mode, "sync") && strcmp(mode, "strict")))
		return cli_usage(&cmd_run, "--mode must be posix, sync or strict");
	if (!dir)
		return cli_usage(&cmd_run, "--dir is needed");
	if (!cli_check_chunk(&cmd_run, chunk))
		return EXIT_USAGE;
	if (optind == argc)
		return cli_usage(&cmd_run, "there is no command to run");
	return start(mode, dir, library, pool, chunk, argv + optind);
}

const struct command cmd_run = {"run", "run one command with SplitFS for a directory", help, run};
