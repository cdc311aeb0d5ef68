/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program without any environment (so without whatever was preloaded) inherits descriptors of files that we go on writing to: as its standard
 * output, and one of another number. What both write is all there, also at the same time; in strict, which replaces whole blocks, in turns.
 */
#include "unaware.h"

#include <spawn.h>

#define OTHER 9

static const char *const names[] = {"fork", "vfork", "clean shell", "spawn"};

static void hand_over(int log, int other)
{
	if (dup2(log, 1) != 1 || dup2(other, OTHER) != OTHER)
		_exit(126);
}

static char *child_args[] = {"unaware_child", how_to_write, NULL};
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

static void check_file(const char *name, int how, int n)
{
	const int fd = open(name, O_RDONLY);

	CHECK(fd >= 0);
	check_lines(fd, name, names[how], n);
	close(fd);
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
		if (turns && n - LINES <= LINES)
			take_turn();
	} while (waitpid(pid, &status, turns && n - LINES > LINES ? 0 : WNOHANG) == 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	if (turns)
		turns_end();
	close(log);
	close(other);
	check_file("log", how, n);
	check_file("other", how, n);
}

int main(int argc, char **argv)
{
	bool turns;

	if (is_child(argc, argv))
		return child((int[]){1, OTHER}, 2);
	turns = in_turns();
	shell_args[3] = realpath("/proc/self/exe", NULL);
	CHECK(shell_args[3]);
	for (int how = 0; how < 4; how++)
		if (argc != 2 || atoi(argv[1]) == how)
			both(how, turns);
	return 0;
}
