/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors that travel through sockets. What is sent is shared with a process we know nothing about, so the file becomes
 * the kernel's; what is received is adopted.
 *
 * musl declares msg_controllen and cmsg_len as 32 bits with padding where glibc has 64: only the low half is read.
 */
#include "preload.h"

#include <sys/socket.h>

#define CONTROL_MAX (1u << 20) /* bytes; net.core.optmem_max is less */
#define CMSG_HEAD   16	       /* struct cmsghdr, the same in both C libraries */

/* Calls visit for each descriptor in the message until it returns a negative errno value, and returns that, else 0. */
static int each_fd(const struct msghdr *msg, int (*visit)(int fd))
{
	const char *p = msg->msg_control;
	size_t left = p ? (unsigned)msg->msg_controllen : 0;

	while (left >= CMSG_HEAD) {
		const struct cmsghdr *c = (const struct cmsghdr *)(const void *)p;
		size_t len = (unsigned)c->cmsg_len;
		size_t step = (len + 7) & ~(size_t)7;

		if (len < CMSG_HEAD || len > left)
			return 0; /* malformed: the kernel will say so */
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			for (size_t i = CMSG_HEAD; i + sizeof(int) <= len; i += sizeof(int)) {
				int err = visit(*(const int *)(const void *)(p + i));

				if (err < 0)
					return err;
			}
		if (step >= left)
			return 0;
		p += step;
		left -= step;
	}
	return 0;
}

static int give_away(int fd)
{
	return sfs_ours(fd) ? pl_hand_over(fd) : 0;
}

static int receive(int fd)
{
	pl_adopt(fd);
	return 0;
}

/* What can't be read is for the kernel to refuse, as are control messages larger than it takes from anybody. */
static int give_all(const struct msghdr *msg)
{
	if (!sys_readable_all(msg, sizeof(*msg)) || !msg->msg_control || (unsigned)msg->msg_controllen > CONTROL_MAX ||
	    !sys_readable_all(msg->msg_control, (unsigned)msg->msg_controllen))
		return 0;
	return each_fd(msg, give_away);
}

/* Of the first n messages, each. */
static int give_all_of(const struct mmsghdr *msgs, unsigned n)
{
	int err = 0;

	for (unsigned i = 0; msgs && i < n && err >= 0; i++)
		err = give_all(&msgs[i].msg_hdr);
	return err;
}

static void receive_all(struct mmsghdr *msgs, long n)
{
	for (long i = 0; i < n; i++)
		if (msgs[i].msg_hdr.msg_control)
			each_fd(&msgs[i].msg_hdr, receive);
}

WRAPPER ssize_t w_sendmsg(int sock, const struct msghdr *msg, int flags)
{
	int err = sfs_active() ? give_all(msg) : 0;

	if (unlikely(err < 0))
		return pl_ret(err);
	return REAL(sendmsg)(sock, msg, flags);
}
EXPORT(sendmsg, w_sendmsg);

WRAPPER int w_sendmmsg(int sock, struct mmsghdr *msgs, unsigned n, int flags)
{
	int err = sfs_active() ? give_all_of(msgs, n) : 0;

	if (unlikely(err < 0))
		return (int)pl_ret(err);
	return REAL(sendmmsg)(sock, msgs, n, flags);
}
EXPORT(sendmmsg, w_sendmmsg);

WRAPPER ssize_t w_recvmsg(int sock, struct msghdr *msg, int flags)
{
	ssize_t r = REAL(recvmsg)(sock, msg, flags);

	if (r >= 0 && unlikely(sfs_active()) && msg->msg_control)
		each_fd(msg, receive);
	return r;
}
EXPORT(recvmsg, w_recvmsg);

WRAPPER int w_recvmmsg(int sock, struct mmsghdr *msgs, unsigned n, int flags, struct timespec *timeout)
{
	int r = REAL(recvmmsg)(sock, msgs, n, flags, timeout);

	if (r > 0 && unlikely(sfs_active()))
		receive_all(msgs, r);
	return r;
}
EXPORT(recvmmsg, w_recvmmsg);

long pl_msg_by_number(long n, const long a[6])
{
	struct msghdr *msg = (struct msghdr *)a[1];
	struct mmsghdr *msgs = (struct mmsghdr *)a[1];
	long r = n == SYS_sendmsg ? give_all(msg) : n == SYS_sendmmsg ? give_all_of(msgs, (unsigned)a[2]) : 0;

	if (r < 0)
		return r;
	r = sys_call5(n, a[0], a[1], a[2], a[3], a[4]);
	if (n == SYS_recvmsg && r >= 0 && msg->msg_control)
		each_fd(msg, receive);
	else if (n == SYS_recvmmsg && r > 0)
		receive_all(msgs, r);
	return r;
}
