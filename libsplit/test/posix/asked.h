/* SPDX-License-Identifier: Apache-2.0 */
/* For programs that play the kernel for a process of theirs: they are asked about its system calls, and let some fail. */
#ifndef SFS_TEST_POSIX_ASKED_H
#define SFS_TEST_POSIX_ASKED_H

#include "check.h"

#include <linux/falloc.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#define PUNCH (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

struct asked {
	int process, listener; /* descriptors */
	int to, from;	       /* of asked_fork(): pipes */
	pid_t pid;
};

/* In that process: from here on its parent is asked where the filter says SECCOMP_RET_USER_NOTIF. It ends where that can't be. */
static inline void be_asked(int out, struct sock_filter *code, unsigned short len)
{
	const struct sock_fprog prog = {len, code};
	int listener = -1;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
		listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &prog);
	CHECK(write(out, &listener, sizeof(listener)) == sizeof(listener));
	if (listener < 0)
		_exit(0);
}

/* A descriptor of this process for what fd of that one leads to. */
static inline int asked_fd(const struct asked *a, int fd)
{
	return (int)syscall(SYS_pidfd_getfd, a->process, fd, 0);
}

/* In the parent; in: the other end of its `out`. */
static inline struct asked ask_about(pid_t pid, int in)
{
	struct asked a = {.process = (int)syscall(SYS_pidfd_open, pid, 0), .pid = pid};
	int listener;

	CHECK(a.process >= 0 && read(in, &listener, sizeof(listener)) == sizeof(listener));
	if (listener < 0)
		SKIP("no answers for system calls here");
	a.listener = asked_fd(&a, listener);
	if (a.listener < 0)
		SKIP("no descriptors of other processes here");
	return a;
}

/* A process that plays(), which calls be_asked() and hears then that it may go on: it has been told so. */
static inline struct asked asked_fork(void (*plays)(int in, int out))
{
	int there[2], back[2];
	struct asked a;
	pid_t pid;

	CHECK(pipe(there) == 0 && pipe(back) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		close(back[0]);
		plays(there[0], back[1]);
	}
	close(back[1]);
	a = ask_about(pid, back[0]);
	a.to = there[1];
	a.from = back[0];
	tell(a.to);
	return a;
}

static inline void asked_end(const struct asked *a)
{
	close(a->listener);
	close(a->process);
}

/*
 * Until `over` can be read, or that process has ended. says() changes the answer, which is that the call is to be made; NULL: that is always so.
 * How many calls it was asked about.
 */
static inline int answer(const struct asked *a, int over, int ms,
			 void (*says)(const struct asked *a, const struct seccomp_notif *n, struct seccomp_notif_resp *r))
{
	struct pollfd p[2] = {{a->listener, POLLIN, 0}, {over, POLLIN, 0}};
	int calls = 0;

	while (poll(p, 2, ms) > 0 && !p[1].revents && !(p[0].revents & POLLHUP)) {
		struct seccomp_notif n = {0};
		struct seccomp_notif_resp r = {.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};

		if (!(p[0].revents & POLLIN) || ioctl(a->listener, SECCOMP_IOCTL_NOTIF_RECV, &n) < 0)
			continue;
		r.id = n.id;
		calls++;
		if (says)
			says(a, &n, &r);
		ioctl(a->listener, SECCOMP_IOCTL_NOTIF_SEND, &r);
	}
	return calls;
}

#endif
