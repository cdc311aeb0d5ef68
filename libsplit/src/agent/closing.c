/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors that clients have sent are closed without a wait. No file of a volume is a socket, whose close may wait
 * until somebody else has read what was sent (SO_LINGER): that is switched off. And a socket that has descriptors in
 * its own queue is emptied first, as the kernel would close those.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/internal.h"

#define FDS_MAX	 253  /* as many as there may be (SCM_MAX_FD): what does not fit the kernel closes, however long that takes */
#define DEPTH	 6    /* the kernel sends none that lie deeper */
#define MESSAGES 4096 /* more than a queue has room for */
#define MESSAGE	 4096

static bool close_socket(int fd, unsigned depth);

/* An empty message looks like the end, but for who has sent it. False: that was all. */
static bool take_one(int sock, unsigned depth)
{
	char bytes[MESSAGE];
	struct iovec iov = {bytes, sizeof(bytes)};
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(FDS_MAX * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
	} c;
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.buf, .msg_controllen = sizeof(c.buf)};
	const ssize_t n = recvmsg(sock, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0 || (n == 0 && h.msg_controllen == 0))
		return false;
	for (struct cmsghdr *cm = CMSG_FIRSTHDR(&h); cm; cm = CMSG_NXTHDR(&h, cm)) {
		if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int got;

			memcpy(&got, CMSG_DATA(cm) + i * sizeof(int), sizeof(int));
			if (!close_socket(got, depth + 1))
				close(got);
		}
	}
	return true;
}

static void empty(int sock, unsigned depth)
{
	const int on = 1;

	shutdown(sock, SHUT_RDWR); /* nothing more comes */
	setsockopt(sock, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
	for (int i = 0; i < MESSAGES && take_one(sock, depth); i++)
		;
}

/* False: it is none, and still there. */
static bool close_socket(int fd, unsigned depth)
{
	const struct linger never = {0, 0};
	socklen_t n = sizeof(int);
	int domain = 0;

	if (setsockopt(fd, SOL_SOCKET, SO_LINGER, &never, sizeof(never)) < 0)
		return false;
	if (depth < DEPTH && getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) == 0 && domain == AF_UNIX)
		empty(fd, depth);
	close(fd);
	return true;
}

bool wire_close_socket(int fd)
{
	return close_socket(fd, 0);
}

void wire_close(int *sock)
{
	if (*sock >= 0)
		close_socket(*sock, 0);
	*sock = -1;
}
