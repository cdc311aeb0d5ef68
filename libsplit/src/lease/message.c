/* SPDX-License-Identifier: Apache-2.0 */
#include "lease/message.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/sys.h"
#include "fds/own.h"
#include "base/text.h"

#define MEMORY_TRIES 1000
#define MEMORY_NS    1000000l

int sfs_msg_send(int sock, uint32_t version, const struct sfs_msg *m, int fd)
{
	struct sfs_msg out = *m;
	struct iovec iov = {&out, sizeof(out)};
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} c;
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
	long r;

	out.version = (uint16_t)version;
	if (fd >= 0) {
		memset(&c, 0, sizeof(c));
		h.msg_control = c.buf;
		h.msg_controllen = sizeof(c.buf);
		struct cmsghdr *cm = CMSG_FIRSTHDR(&h);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cm), &fd, sizeof(int));
	}
	for (unsigned tries = 0;;) {
		r = sys_call3(SYS_sendmsg, sock, (long)&h, MSG_NOSIGNAL);
		if (r == -EINTR)
			continue;
		/* The kernel has no memory at this moment. Nobody makes the message again, and who waits for an answer would do so in vain. */
		if ((r != -ENOMEM && r != -ENOBUFS) || tries++ == MEMORY_TRIES)
			break;
		sys_nap(MEMORY_NS);
	}
	if (r < 0)
		return (int)r;
	return r == (long)sizeof(*m) ? 0 : -EPROTO;
}

/* The descriptors of a message: numbers of ours for those that are wanted, the others are closed. */
static void take_fds(const struct msghdr *h, const struct sfs_limit *l, int *fds, int nfds)
{
	const struct cmsghdr *cm = h->msg_control;
	int got, fd;

	if (h->msg_controllen < sizeof(*cm) || cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
		return;
	got = (int)((cm->cmsg_len - CMSG_LEN(0)) / sizeof(int));
	for (int i = 0; i < got; i++) {
		memcpy(&fd, CMSG_DATA(cm) + (size_t)i * sizeof(int), sizeof(int));
		if (i < nfds)
			fds[i] = sfs_limit_move(l, fd);
		else
			sys_close(fd);
	}
}

int sfs_msg_recv(int sock, uint32_t version, struct sfs_msg *m, int *fds, int nfds)
{
	struct iovec iov = {m, sizeof(*m)};
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(3 * sizeof(int))];
	} c;
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.buf, .msg_controllen = sizeof(c.buf)};
	struct pollfd readable = {sock, POLLIN, 0};
	struct sfs_limit l = {0};
	long r;

	for (int i = 0; i < nfds; i++)
		fds[i] = -1;
	do {
		r = nfds ? sys_call5(SYS_ppoll, (long)&readable, 1, 0, 0, 8) : 0; /* the limit is not lifted while we wait */
		if (r < 0)
			continue;
		if (nfds)
			sfs_limit_lift(&l, nfds);
		r = sys_call3(SYS_recvmsg, sock, (long)&h, MSG_CMSG_CLOEXEC);
		if (r > 0)
			take_fds(&h, &l, fds, nfds);
		if (nfds)
			sfs_limit_set_back(&l);
	} while (r == -EINTR);
	if (r == 0)
		return -ECONNRESET;
	if (r < 0)
		return (int)r;
	if (r != (long)sizeof(*m) || (version && m->version != version))
		return -EPROTO;
	return 0;
}

/* As the C library's, which a compiler may call instead of putting them here. */
static unsigned dev_major(dev_t dev)
{
	return (unsigned)(dev >> 8 & 0xfff) | (unsigned)(dev >> 32 & ~0xfffull);
}

static unsigned dev_minor(dev_t dev)
{
	return (unsigned)(dev & 0xff) | (unsigned)(dev >> 12 & ~0xffull);
}

bool sfs_agent_address(const struct sfs_volume *vol, struct sockaddr_un *addr)
{
	size_t n = 0;

	addr->sun_family = AF_UNIX;
	sfs_text_add(addr->sun_path, &n, sizeof(addr->sun_path), vol->agents);
	sfs_text_add(addr->sun_path, &n, sizeof(addr->sun_path), "/");
	sfs_text_number(addr->sun_path, &n, sizeof(addr->sun_path), dev_major(vol->dev));
	sfs_text_add(addr->sun_path, &n, sizeof(addr->sun_path), "-");
	sfs_text_number(addr->sun_path, &n, sizeof(addr->sun_path), dev_minor(vol->dev));
	sfs_text_add(addr->sun_path, &n, sizeof(addr->sun_path), ".sock");
	return n + 1 < sizeof(addr->sun_path);
}

int sfs_dial(struct sfs_volume *vol)
{
	struct sockaddr_un addr;
	struct sfs_limit l;
	int fd, r;

	if (!sfs_agent_address(vol, &addr))
		return -ENAMETOOLONG;
	sfs_limit_lift(&l, 1);
	fd = sfs_limit_move(&l, (int)sys_call3(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	sfs_limit_set_back(&l);
	if (fd < 0)
		return fd;
	/* Where too many wait in the socket already it is -EAGAIN, and no wait. */
	r = (int)sys_call3(SYS_connect, fd, (long)&addr, sizeof(addr));
	if (r == 0)
		r = sys_fcntl(fd, F_SETFL, 0);
	if (r < 0) {
		sfs_private_close(fd);
		return r;
	}
	return fd;
}
