/* SPDX-License-Identifier: Apache-2.0 */
#include "lease/leaving.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/code.h"
#include "base/sys.h"
#include "lease/message.h"

#define AGAIN_NS 10000000l

/* Is there anything to read before that time? */
static bool answered(int sock, int64_t until)
{
	struct pollfd p = {sock, POLLIN, 0};
	int64_t left;
	long r;

	do {
		left = until - sys_now_ns();
		const struct timespec t = {left > 0 ? left / 1000000000 : 0, left > 0 ? left % 1000000000 : 0};

		r = sys_call5(SYS_ppoll, (long)&p, 1, (long)&t, 0, 8);
	} while (r == -EINTR);
	return r == 1;
}

/* -EAGAIN: an agent was there and has gone, or has no time for us yet; any other value: that is all. */
static int tell(int sock, const struct sockaddr_un *addr, int fd, unsigned what, int64_t until)
{
	struct sfs_msg m = {.type = SFS_MSG_LEFT, .a = what, .b = (uintptr_t)etext - 1, .d = SFS_PROTO_NEWEST};
	int r = (int)sys_call3(SYS_connect, sock, (long)addr, sizeof(*addr));

	if (r < 0)
		return r;
	r = sfs_msg_send(sock, SFS_PROTO_OLDEST, &m, fd);
	if (r == 0 && !answered(sock, until))
		return 0;
	if (r == 0)
		r = sfs_msg_recv(sock, 0, &m, NULL, 0);
	return r < 0 ? -EAGAIN : 0;
}

void sfs_leave(const struct sfs_volume *vol, int fd, unsigned what, int64_t until)
{
	struct sockaddr_un addr;
	bool met = false;
	int r = -EAGAIN;

	if (!sfs_agent_address(vol, &addr))
		return;
	/* While one agent follows the other nobody listens, and who stages goes on. */
	while (r == -EAGAIN || (met && r < 0)) {
		const int sock = (int)sys_call3(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		if (sock < 0)
			return;
		r = tell(sock, &addr, fd, what, until);
		sys_close(sock);
		met |= r == -EAGAIN;
		if (sys_now_ns() >= until)
			return;
		if (r < 0)
			sys_nap(AGAIN_NS);
	}
}
