/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A write waits until another process, which is stopped, gives the file up. A signal handler forks meanwhile, and returns in both processes: the write is
 * made once, by the parent.
 */
#include "check.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/time.h>

static volatile pid_t child;
static volatile sig_atomic_t forked, is_child;
static pid_t holder;

static void forks(int sig)
{
	const pid_t pid = fork();

	(void)sig;
	is_child = pid == 0;
	forked = 1;
	if (pid > 0) {
		child = pid;
		kill(holder, SIGCONT);
	}
}

static pid_t holds(int out)
{
	const pid_t pid = fork();
	int fd;

	CHECK(pid >= 0);
	if (pid > 0)
		return pid;
	fd = open("f", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
	CHECK(fd >= 0 && write(fd, "holder\n", 7) == 7);
	tell(out);
	raise(SIGSTOP);
	pause();
	_exit(0);
}

static void once(bool at_offset)
{
	const struct itimerval soon = {{0, 0}, {0, 100000}};
	char found[64] = "";
	int pipes[2], fd, status;
	ssize_t r;

	forked = is_child = 0;
	CHECK(pipe(pipes) == 0);
	holder = holds(pipes[1]);
	hear(pipes[0]);
	CHECK(waitpid(holder, &status, WUNTRACED) == holder && WIFSTOPPED(status));
	fd = open("f", O_RDWR | O_APPEND);
	CHECK(fd >= 0 && setitimer(ITIMER_REAL, &soon, NULL) == 0);
	r = at_offset ? write(fd, "parent\n", 7) : pwrite(fd, "parent\n", 7, 0);
	CHECK(r == 7 || (r == -1 && errno == EINTR && is_child));
	while (!forked) /* where nobody has to be waited for */
		usleep(1000);
	if (is_child)
		_exit(0);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(kill(holder, SIGKILL) == 0 && waitpid(holder, &status, 0) == holder);
	CHECK(pread(fd, found, sizeof(found) - 1, 0) == 14);
	CHECK(strcmp(found, "holder\nparent\n") == 0);
	close(fd);
}

int main(void)
{
	CHECK(sigaction(SIGALRM, &(struct sigaction){.sa_handler = forks, .sa_flags = SA_RESTART}, NULL) == 0);
	once(true);
	once(false);
	return 0;
}
