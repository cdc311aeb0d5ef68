/* SPDX-License-Identifier: Apache-2.0 */
/*
 * On a full XFS a hole may be punched in part only: each extent takes a transaction, from the last one on, and each may find no space, as
 * somebody else has taken it. This process plays the file system for another one, and says ENOSPC to it until its fsync has failed. What that
 * one has written is there all the same, and in the file once there is room.
 */
#include "asked.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#define SIZE	(4ul << 20)
#define ARG(n)	offsetof(struct seccomp_data, args[n])
#define SECONDS 60

/* The holes that a process punches. */
static struct sock_filter holes[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 0, 3),
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARG(1)),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PUNCH, 0, 1),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

static void writer(int in, int out)
{
	int fd, r;

	be_asked(out, holes, sizeof(holes) / sizeof(holes[0]));
	alarm(SECONDS);
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
static bool in_part(const struct asked *a, const struct seccomp_notif *n)
{
	static bool done;
	const int fd = asked_fd(a, (int)n->data.args[0]);
	const off_t off = (off_t)n->data.args[2], len = (off_t)n->data.args[3];

	CHECK(fd >= 0);
	if (!done && len >= (off_t)SIZE / 4)
		done = unseen(SYS_fallocate, fd, PUNCH, off + len / 2, len - len / 2) == 0;
	unseen(SYS_close, fd, 0, 0, 0);
	return done;
}

static void full(const struct asked *a, const struct seccomp_notif *n, struct seccomp_notif_resp *r)
{
	if (in_part(a, n)) {
		r->flags = 0;
		r->error = -ENOSPC;
	}
}

int main(void)
{
	struct statfs fs;
	struct asked a;

	CHECK(statfs(".", &fs) == 0);
	if (fs.f_type != XFS_SUPER_MAGIC)
		SKIP("no XFS");
	a = asked_fork(writer);
	answer(&a, a.from, SECONDS * 1000, full);
	hear(a.from);
	tell(a.to);
	answer(&a, a.from, SECONDS * 1000, NULL);
	CHECK(status_of(a.pid) == 0);
	return 0;
}
