/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program without any environment (so without whatever was preloaded) inherits the descriptor of a file that it
 * could not open by itself, or that its parent had better not open once more: root's alone, without a name, with a
 * lock on it. What both write is all there, as in unaware_child.
 */
#include "check.h"

#include <spawn.h>
#include <stdbool.h>
#include <sys/mman.h>

#define LINES  400
#define LINE   24
#define LOG    29 /* in the program */
#define TURN   30 /* where the child is told, and where it tells: in strict, which replaces whole blocks, they take turns */
#define DONE   31
#define NOBODY 65534

enum how { DROPPED, UNNAMED, SPAWNED, LOCKED, HOWS };
static const char *const names[] = {"dropped", "unnamed", "spawned", "locked"};

static char how_to_write[8] = "child";
static char *child_args[] = {"unaware_rights", how_to_write, NULL}, *nothing[] = {NULL};
static int program; /* nobody need find it by its name */
static int to_child[2], to_parent[2];
static struct {
	bool ended;
} * shared;

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
		write_lines(LOG, 'c', i, 1);
		if (turns)
			tell(DONE);
	}
	return 0;
}

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

static void check_lines(int log, enum how how, int n)
{
	char line[LINE], who;
	int of[2] = {0, 0}, i;

	for (off_t at = 0; at < size_of(log); at += LINE - 1) {
		CHECK(pread(log, line, LINE - 1, at) == LINE - 1);
		line[LINE - 1] = 0;
		CHECK(sscanf(line, "%c %d\n", &who, &i) == 2 && (who == 'p' || who == 'c'));
		if (i != of[who == 'c'])
			fprintf(stderr, "%s: after %d and %d lines: %s\n", names[how], of[0], of[1], line);
		CHECK(i == of[who == 'c']++);
	}
	if (of[0] != n || of[1] != LINES)
		fprintf(stderr, "%s: %d and %d lines of %d and %d\n", names[how], of[0], of[1], n, LINES);
	CHECK(of[0] == n && of[1] == LINES);
}

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
		if (turns && n - LINES <= LINES) {
			tell(to_child[1]);
			hear(to_parent[0]);
		}
	}
	check_lines(log, how, n);
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
	const char *config = getenv("SPLITFS_CONFIG");
	const bool strict = config && strncmp(config, "strict", 6) == 0;

	if (argc == 2 && (strcmp(argv[1], "child") == 0 || strcmp(argv[1], "turns") == 0))
		return child(argv[1][0] == 't');
	if (geteuid() != 0)
		SKIP("the agent must be root to be asked by the kernel");
	if (strict)
		memcpy(how_to_write, "turns", sizeof("turns"));
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	CHECK((program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC)) >= 0);
	for (enum how how = 0; how < HOWS; how++)
		if (argc != 2 || atoi(argv[1]) == (int)how)
			both(how, strict);
	return 0;
}
