/* SPDX-License-Identifier: Apache-2.0 */
#include "launch.h"

#include <errno.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

static volatile sig_atomic_t child;

static void forward(int sig)
{
	if (child > 0)
		kill((pid_t)child, sig);
}

int launch_library(const char *given, const char *name, char path[PATH_MAX], struct sfs_why *why)
{
	static const char *const places[] = {"", "../lib/", "../lib/splitfs/"};
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
			snprintf(candidate, sizeof(candidate), "%s/%s%s", exe, places[i], name);
			found = realpath(candidate, path) != NULL;
		}
		if (!found)
			return sfs_fail(why, -ENOENT, "%s is neither in %s nor in %s/../lib; name it with --library", name, exe,
					exe);
	}
	if (access(path, R_OK) < 0)
		return sfs_fail(why, -errno, "%s: %s", path, strerror(errno));
	/* The dynamic linker takes these for separators and has no way to quote them. */
	if (strpbrk(path, " :"))
		return sfs_fail(why, -EINVAL, "the path of the library, %s, must not hold a blank or a colon", path);
	return 0;
}

static int set_env(const struct launch_env *e)
{
	const char *old = e->separator ? getenv(e->name) : NULL, *value = e->value;
	char *joined = NULL;
	int err;

	if (old && *old) {
		if (asprintf(&joined, "%s%c%s", value, e->separator, old) < 0)
			return -ENOMEM;
		value = joined;
	}
	err = setenv(e->name, value, 1) < 0 ? -errno : 0;
	free(joined);
	return err;
}

static void exec_command(char **argv, const struct launch_env *env, size_t n, const sigset_t *mask)
{
	signal(SIGINT, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	sigprocmask(SIG_SETMASK, mask, NULL);
	for (size_t i = 0; i < n; i++)
		if (set_env(&env[i])) {
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

int launch_command(char **argv, const struct launch_env *env, size_t n)
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
		exec_command(argv, env, n, &old);
	child = pid;
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &forwarded, NULL);
	sigprocmask(SIG_SETMASK, &old, NULL);
	return wait_for(pid);
}
