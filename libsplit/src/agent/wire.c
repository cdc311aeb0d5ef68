/* SPDX-License-Identifier: Apache-2.0 */
/* Messages with descriptors. Nothing here waits: the sockets of clients are only touched without blocking. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/internal.h"

#define FDS_MAX 253 /* as many as there may be (SCM_MAX_FD): what does not fit the kernel closes, however long that takes */

int wire_send(int sock, uint32_t version, const struct sfs_msg *m, const int *fds, int nfds)
{
	struct sfs_msg out = *m;
	struct iovec iov = {&out, sizeof(out)};
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(3 * sizeof(int))];
	} c;
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	out.version = (uint16_t)version;
	if (nfds > 0) {
		struct cmsghdr *cm;

		memset(&c, 0, sizeof(c));
		h.msg_control = c.buf;
		h.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
		cm = CMSG_FIRSTHDR(&h);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
		memcpy(CMSG_DATA(cm), fds, (size_t)nfds * sizeof(int));
	}
	do
		n = sendmsg(sock, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n == (ssize_t)sizeof(*m) ? 0 : -EPROTO;
}

int wire_recv(int sock, struct sfs_msg *m, int *fd)
{
	struct iovec iov = {m, sizeof(*m)};
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(FDS_MAX * sizeof(int))];
	} c;
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.buf, .msg_controllen = sizeof(c.buf)};
	int extra = 0;
	ssize_t n;

	*fd = -1;
	do
		n = recvmsg(sock, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	for (struct cmsghdr *cm = CMSG_FIRSTHDR(&h); cm; cm = CMSG_NXTHDR(&h, cm)) {
		size_t count;

		if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
			continue;
		count = (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int got;

			memcpy(&got, CMSG_DATA(cm) + i * sizeof(int), sizeof(int));
			extra += i > 0 || *fd >= 0;
			if (wire_close_socket(got))
				continue;
			if (*fd < 0)
				*fd = got;
			else
				close(got);
		}
	}
	/* An empty message looks like the end; nobody honest sends one. */
	if (n == 0 && *fd < 0)
		return 0;
	if (n == (ssize_t)sizeof(*m) && !extra && !(h.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return 1;
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	return -EPROTO;
}
