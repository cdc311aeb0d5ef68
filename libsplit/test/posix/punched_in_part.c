/* SPDX-License-Identifier: Apache-2.0 */
/*
 * On a full XFS a hole may be punched in part only: each extent takes a transaction, from the last one on, and each may find no space, as
 * somebody else has taken it. This process plays the file system for another one, and says ENOSPC to it until its fsync has failed. What that
 * one has written is there all the same, and in the file once there is room.
 */
#include "check.h"

#include <linux/audit.h>
#include <linux/falloc.h>
#include <linux/filter.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/vfs.h>

#define SIZE	(4ul << 20)
#define PUNCH	(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)
#define ARG(n)	offsetof(struct seccomp_data, args[n])
#define SECONDS 60
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

/* From here on somebody is asked about each hole that this process punches. -1: that can't be. */
static int ask_about_holes(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARG(1)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PUNCH, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {sizeof(code) / sizeof(code[0]), code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &prog);
}

static void writer(int in, int out)
{
	const int asked = ask_about_holes();
	int fd, r;

	alarm(SECONDS);
	CHECK(write(out, &asked, sizeof(asked)) == sizeof(asked));
	if (asked < 0)
		_exit(0);
	hear(in);
	fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0600);
	put(fd, 1, 0, SIZE);
	r = fsync(fd);
	CHECK(r == 0 || errno == ENOSPC);
	tell(out);
	hear(in);
	CHECK(fsync(fd) == 0);
	expect(fd, 1, 0, SIZE);
	CHECK(close(fd) == 0);
	fd = open("f", O_RDONLY);
	expect(fd, 1, 0, SIZE);
	_exit(0);
}

/* The second half of the first long hole is punched. true: the call is not made. */
static bool in_part(int process, const struct seccomp_notif *n)
{
	static bool done;
	const int fd = (int)syscall(SYS_pidfd_getfd, process, (int)n->data.args[0], 0);
	const off_t off = (off_t)n->data.args[2], len = (off_t)n->data.args[3];

	CHECK(fd >= 0);
	if (!done && len >= (off_t)SIZE / 4)
		done = unseen(SYS_fallocate, fd, PUNCH, off + len / 2, len - len / 2) == 0;
	unseen(SYS_close, fd, 0, 0, 0);
	return done;
}

/* Until `over` can be read, or the process has ended. */
static void play(int process, int listener, int over, bool full)
{
	struct pollfd p[2] = {{listener, POLLIN, 0}, {over, POLLIN, 0}};

	while (poll(p, 2, SECONDS * 1000) > 0 && !p[1].revents && !(p[0].revents & POLLHUP)) {
		struct seccomp_notif n = {0};
		struct seccomp_notif_resp r = {0};

		if (!(p[0].revents & POLLIN) || ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &n) < 0)
			continue;
		r.id = n.id;
		if (full && in_part(process, &n))
			r.error = -ENOSPC;
		else
			r.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &r);
	}
}

int main(void)
{
	int there[2], back[2], process, asked, listener;
	struct statfs fs;
	pid_t pid;

	CHECK(statfs(".", &fs) == 0);
	if (fs.f_type != XFS_SUPER_MAGIC)
		SKIP("no XFS");
	CHECK(pipe(there) == 0 && pipe(back) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		close(back[0]);
		writer(there[0], back[1]);
	}
	close(back[1]);
	process = (int)syscall(SYS_pidfd_open, pid, 0);
	CHECK(process >= 0 && read(back[0], &asked, sizeof(asked)) == sizeof(asked));
	if (asked < 0)
		SKIP("no answers for system calls here");
	listener = (int)syscall(SYS_pidfd_getfd, process, asked, 0);
	if (listener < 0)
		SKIP("no descriptors of other processes here");
	tell(there[1]);
	play(process, listener, back[0], true);
	hear(back[0]);
	tell(there[1]);
	play(process, listener, back[0], false);
	CHECK(status_of(pid) == 0);
	return 0;
}
