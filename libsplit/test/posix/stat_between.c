/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stat(2) by path, while another process that has written to the file closes it, or is killed: what was written before the call is in the
 * size, wherever in the call that happens. The process that looks is stopped behind its system call, and goes on when the writer has gone.
 */
#include "check.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/ptrace.h>
#include <sys/user.h>

#define BYTES	5000
#define ROUNDS	4
#define SETTLES 200000 /* us until what the writer leaves is in the file, also without anybody asking */

enum fate { CLOSES, KILLED };

#if defined(__x86_64__)

static pid_t writer(const char *path, int report, int orders)
{
	static char bytes[BYTES];
	const pid_t pid = fork();
	int fd;

	CHECK(pid >= 0);
	if (pid > 0)
		return pid;
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
	CHECK(fd >= 0 && write(fd, bytes, sizeof(bytes)) == BYTES);
	tell(report);
	hear(orders);
	CHECK(close(fd) == 0);
	tell(report);
	hear(orders);
	_exit(0);
}

static pid_t looker(const char *path)
{
	const pid_t pid = fork();
	struct stat st;

	CHECK(pid >= 0);
	if (pid > 0)
		return pid;
	CHECK(stat("other", &st) == 0);
	CHECK(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0);
	raise(SIGSTOP);
	CHECK(stat(path, &st) == 0);
	if (st.st_size != BYTES)
		fprintf(stderr, "stat says %ld bytes\n", (long)st.st_size);
	_exit(st.st_size == BYTES ? 0 : 1);
}

static bool is_stat(long number)
{
	return number == SYS_newfstatat || number == SYS_stat || number == SYS_statx;
}

/* Until the process has made its first such call, and is stopped behind it. */
static void run_to_stat(pid_t pid)
{
	bool inside = false;

	for (;;) {
		struct user_regs_struct regs;
		int status;

		CHECK(ptrace(PTRACE_SYSCALL, pid, 0, 0) == 0);
		CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
		CHECK(ptrace(PTRACE_GETREGS, pid, 0, &regs) == 0);
		inside = !inside;
		if (!inside && is_stat((long)regs.orig_rax))
			return;
	}
}

static void play(enum fate fate, int round)
{
	int orders[2], report[2], status;
	char path[32];
	pid_t w, l;

	snprintf(path, sizeof(path), "f%d-%d", (int)fate, round);
	CHECK(pipe(orders) == 0 && pipe(report) == 0);
	w = writer(path, report[1], orders[0]);
	hear(report[0]);
	l = looker(path);
	CHECK(waitpid(l, &status, 0) == l && WIFSTOPPED(status));
	run_to_stat(l);
	if (fate == KILLED) {
		CHECK(kill(w, SIGKILL) == 0 && status_of(w) == 128 + SIGKILL);
	} else {
		tell(orders[1]);
		hear(report[0]);
	}
	usleep(SETTLES);
	CHECK(ptrace(PTRACE_DETACH, l, 0, 0) == 0);
	CHECK(status_of(l) == 0);
	if (fate != KILLED) {
		tell(orders[1]);
		CHECK(status_of(w) == 0);
	}
	for (int i = 0; i < 2; i++)
		CHECK(close(orders[i]) == 0 && close(report[i]) == 0);
}

int main(void)
{
	int fd = open("other", O_WRONLY | O_CREAT, 0644);

	CHECK(fd >= 0 && close(fd) == 0);
	for (int round = 0; round < ROUNDS; round++)
		for (enum fate fate = CLOSES; fate <= KILLED; fate++)
			play(fate, round);
	return 0;
}

#else
int main(void)
{
	SKIP("not on this processor");
}
#endif
