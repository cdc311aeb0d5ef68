/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program without any environment (so without whatever was preloaded) inherits the descriptor of a file that it
 * could not open by itself, or that its parent had better not open once more: root's alone, without a name, with a
 * lock on it. What both write is all there, as in unaware_child.
 */
#include "unaware.h"

#include <spawn.h>
#include <sys/mman.h>

#define LOG    29 /* in the program */
#define NOBODY 65534

enum how { DROPPED, UNNAMED, SPAWNED, LOCKED, HOWS };
static const char *const names[] = {"dropped", "unnamed", "spawned", "locked"};

static char *child_args[] = {"unaware_rights", how_to_write, NULL};
static int program; /* nobody need find it by its name */
static struct {
	bool ended;
} * shared;

static void run_it(enum how how)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	if (how == LOCKED)
		CHECK(fcntl(LOG, F_SETLK, &lock) == 0);
	fexecve(program, child_args, nothing);
	_exit(127);
}

static void spawn_it(void)
{
	int status = 1;
	char path[32];
	pid_t pid;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", program);
	CHECK(posix_spawn(&pid, path, NULL, NULL, child_args, nothing) == 0);
	_exit(waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 1);
}

/* It has the file open before we write to it, by itself, and leaves it to the program when it is told. */
static pid_t start(enum how how, int go, int opened)
{
	const pid_t pid = fork();
	int log;

	CHECK(pid >= 0);
	if (pid > 0)
		return pid;
	CHECK((log = open("log", O_WRONLY | O_APPEND | O_CLOEXEC)) >= 0 && dup2(log, LOG) == LOG && close(log) == 0);
	tell(opened);
	hear(go);
	usleep(100000); /* the agent has looked by now who had it open before the writer was granted it */
	if (how != LOCKED)
		CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
	if (how == SPAWNED)
		spawn_it();
	run_it(how);
	_exit(127);
}

/* Neither is the other's parent, of whose children it would be known. */
static void writer(enum how how, bool turns, int go)
{
	int log, n = LINES;

	CHECK((log = open("log", O_RDWR | O_APPEND | O_CLOEXEC)) >= 0);
	CHECK(how != UNNAMED || unlink("log") == 0);
	write_lines(log, 'p', 0, LINES);
	tell(go);
	while (!__atomic_load_n(&shared->ended, __ATOMIC_ACQUIRE)) {
		write_lines(log, 'p', n++, 1);
		if (turns && n - LINES <= LINES)
			take_turn();
	}
	check_lines(log, "log", names[how], n);
	_exit(0);
}

static void both(enum how how, bool turns)
{
	int status = 0, go[2], opened[2];
	pid_t pid, writes;

	shared->ended = false;
	CHECK(close(open("log", O_WRONLY | O_CREAT | O_TRUNC, 0600)) == 0);
	CHECK(pipe2(go, O_CLOEXEC) == 0 && pipe2(opened, O_CLOEXEC) == 0);
	if (turns)
		turns_begin();
	pid = start(how, go[0], opened[1]);
	hear(opened[0]);
	writes = fork();
	CHECK(writes >= 0);
	if (writes == 0)
		writer(how, turns, go[1]);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	__atomic_store_n(&shared->ended, true, __ATOMIC_RELEASE);
	CHECK(waitpid(writes, &status, 0) == writes && status == 0);
	if (turns)
		turns_end();
	for (int i = 0; i < 2; i++) {
		close(go[i]);
		close(opened[i]);
	}
}

int main(int argc, char **argv)
{
	bool turns;

	if (is_child(argc, argv))
		return child((int[]){LOG}, 1);
	turns = in_turns();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	CHECK((program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC)) >= 0);
	for (enum how how = 0; how < HOWS; how++)
		if (argc != 2 || atoi(argv[1]) == (int)how)
			both(how, turns);
	return 0;
}
