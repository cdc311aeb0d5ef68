/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors that travel through sockets. A descriptor that is sent is shared with a process that may lack the
 * library, so its file becomes the kernel's. A descriptor that is received is adopted.
 *
 * musl declares msg_controllen and cmsg_len as 32 bits with padding, glibc as 64 bits: only the low half is read.
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

/* The kernel refuses what can't be read, and control messages that are too large. */
static int give_all(const struct msghdr *msg)
{
	if (!sys_readable_all(msg, sizeof(*msg)) || !msg->msg_control || (unsigned)msg->msg_controllen > CONTROL_MAX ||
	    !sys_readable_all(msg->msg_control, (unsigned)msg->msg_controllen))
		return 0;
	return each_fd(msg, give_away);
}

long do_sendmsg(const struct request *q)
{
	const struct mmsghdr *msgs = (const struct mmsghdr *)q->a[1];
	int err = 0;

	if (q->call == PL_sendmsg)
		err = give_all((const struct msghdr *)q->a[1]);
	for (unsigned i = 0; q->call == PL_sendmmsg && msgs && i < (unsigned)q->a[2] && err >= 0; i++)
		err = give_all(&msgs[i].msg_hdr);
	return err < 0 ? err : pl_make(q);
}

long do_recvmsg(const struct request *q)
{
	const struct mmsghdr *msgs = (const struct mmsghdr *)q->a[1];
	const long r = pl_make(q);

	if (q->call == PL_recvmsg && r >= 0)
		each_fd((const struct msghdr *)q->a[1], receive);
	for (long i = 0; q->call == PL_recvmmsg && i < r; i++)
		each_fd(&msgs[i].msg_hdr, receive);
	return r;
}
