/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program without any environment (so without whatever was preloaded) inherits descriptors of files that we go on writing to: as its standard
 * output, and one of another number. What both write is all there, also at the same time; in strict, which replaces whole blocks, in turns.
 */
#include "check.h"

#include <spawn.h>
#include <stdbool.h>

#define LINES 400
#define LINE  24
#define OTHER 9
#define TURN  10 /* where the child is told, and where it tells, when they take turns */
#define DONE  11

static const char *const names[] = {"fork", "vfork", "clean shell", "spawn"};

static void write_lines(int fd, char who, int from, int n)
{
	char line[LINE + 1];

	for (int i = from; i < from + n; i++) {
		snprintf(line, sizeof(line), "%c %020d\n", who, i);
		CHECK(write(fd, line, LINE - 1) == LINE - 1);
	}
}

static int child(bool turns)
{
	for (int i = 0; i < LINES; i++) {
		if (turns)
			hear(TURN);
		write_lines(1, 'c', i, 1);
		write_lines(OTHER, 'c', i, 1);
		if (turns)
			tell(DONE);
	}
	return 0;
}

static void hand_over(int log, int other)
{
	if (dup2(log, 1) != 1 || dup2(other, OTHER) != OTHER)
		_exit(126);
}

static char how_to_write[8] = "child";
static char *child_args[] = {"unaware_child", how_to_write, NULL}, *nothing[] = {NULL};
/* One that may have the library, and never uses what it has inherited, is between us and the program. */
static char *shell_args[] = {"sh", "-c", "exec env -i \"$0\" \"$1\"", NULL, how_to_write, NULL};

static pid_t spawn(int log, int other)
{
	posix_spawn_file_actions_t actions;
	pid_t pid;

	CHECK(posix_spawn_file_actions_init(&actions) == 0);
	CHECK(posix_spawn_file_actions_adddup2(&actions, log, 1) == 0);
	CHECK(posix_spawn_file_actions_adddup2(&actions, other, OTHER) == 0);
	CHECK(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, child_args, nothing) == 0);
	posix_spawn_file_actions_destroy(&actions);
	return pid;
}

static pid_t start(int how, int log, int other)
{
	pid_t pid;

	if (how == 3)
		return spawn(log, other);
	pid = how == 1 ? vfork() : fork();
	CHECK(pid >= 0);
	if (pid > 0)
		return pid;
	hand_over(log, other);
	if (how == 2)
		execv("/bin/sh", shell_args);
	else
		execve("/proc/self/exe", child_args, nothing);
	_exit(127);
}

static void check_lines(const char *name, const char *how, int n)
{
	FILE *f = fopen(name, "r");
	char line[64], who;
	int of[2] = {0, 0}, i;

	CHECK(f);
	while (fgets(line, sizeof(line), f)) {
		const bool whole = sscanf(line, "%c %d\n", &who, &i) == 2 && (who == 'p' || who == 'c');

		if (!whole || i != of[who == 'c'])
			fprintf(stderr, "%s, %s: after %d and %d lines: %s\n", name, how, of[0], of[1],
				whole ? line : "a torn one");
		CHECK(whole && i == of[who == 'c']++);
	}
	fclose(f);
	if (of[0] != n || of[1] != LINES)
		fprintf(stderr, "%s, %s: %d and %d lines\n", name, how, of[0], of[1]);
	CHECK(of[0] == n && of[1] == LINES);
}

static int to_child[2], to_parent[2];

/* Descriptors that any child inherits, so that all ways of starting one do the same. */
static void turns_begin(void)
{
	CHECK(pipe2(to_child, O_CLOEXEC) == 0 && pipe2(to_parent, O_CLOEXEC) == 0);
	CHECK(dup2(to_child[0], TURN) == TURN && dup2(to_parent[1], DONE) == DONE);
}

static void turns_end(void)
{
	close(TURN);
	close(DONE);
	for (int i = 0; i < 2; i++) {
		close(to_child[i]);
		close(to_parent[i]);
	}
}

static void both(int how, bool turns)
{
	int log, other, status = 0, n = LINES;
	pid_t pid;

	/* Of a description at its offset each write comes behind the other's. */
	CHECK((log = open("log", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644)) >= 0);
	CHECK((other = open("other", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) >= 0);
	write_lines(log, 'p', 0, LINES);
	write_lines(other, 'p', 0, LINES);
	if (turns)
		turns_begin();
	pid = start(how, log, other);
	do {
		write_lines(log, 'p', n, 1);
		write_lines(other, 'p', n, 1);
		n++;
		if (turns && n - LINES <= LINES) {
			tell(to_child[1]);
			hear(to_parent[0]);
		}
	} while (waitpid(pid, &status, turns && n - LINES > LINES ? 0 : WNOHANG) == 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	if (turns)
		turns_end();
	close(log);
	close(other);
	check_lines("log", names[how], n);
	check_lines("other", names[how], n);
}

int main(int argc, char **argv)
{
	const char *config = getenv("SPLITFS_CONFIG");
	const bool strict = config && strncmp(config, "strict", 6) == 0;

	if (argc == 2 && (strcmp(argv[1], "child") == 0 || strcmp(argv[1], "turns") == 0))
		return child(argv[1][0] == 't');
	if (geteuid() != 0)
		SKIP("the agent must be root to be asked by the kernel");
	if (strict)
		memcpy(how_to_write, "turns", sizeof("turns"));
	shell_args[3] = realpath("/proc/self/exe", NULL);
	CHECK(shell_args[3]);
	for (int how = 0; how < 4; how++)
		if (argc != 2 || atoi(argv[1]) == how)
			both(how, strict);
	return 0;
}
