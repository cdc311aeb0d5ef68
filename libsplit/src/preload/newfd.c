/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors that are no files. Nothing has to be done for them, but what was known of their numbers is void: a file of ours
 * under that number may have been closed behind our back. It also saves the look at a socket when it is first used.
 */
#include "preload.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

static int foreign(int fd)
{
	if (fd < 0 || fd >= sfs_fds_len)
		return fd;
	if (unlikely(sfs_ours(fd)))
		sfs_forget(fd);
	__atomic_store_n(&sfs_fds[fd], (struct sfs_ofd *)1, __ATOMIC_RELEASE); /* "no file of ours": core.h */
	return fd;
}

static int both_foreign(int r, const int fds[2])
{
	if (r == 0 && sfs_active()) {
		foreign(fds[0]);
		foreign(fds[1]);
	}
	return r;
}

WRAPPER int w_socket(int domain, int type, int protocol)
{
	return foreign(REAL(socket)(domain, type, protocol));
}
EXPORT(socket, w_socket);

WRAPPER int w_socketpair(int domain, int type, int protocol, int fds[2])
{
	return both_foreign(REAL(socketpair)(domain, type, protocol, fds), fds);
}
EXPORT(socketpair, w_socketpair);

WRAPPER int w_accept(int sock, struct sockaddr *addr, socklen_t *len)
{
	return foreign(REAL_AS(int (*)(int, struct sockaddr *, socklen_t *), accept)(sock, addr, len));
}
EXPORT(accept, w_accept);

WRAPPER int w_accept4(int sock, struct sockaddr *addr, socklen_t *len, int flags)
{
	return foreign(REAL_AS(int (*)(int, struct sockaddr *, socklen_t *, int), accept4)(sock, addr, len, flags));
}
EXPORT(accept4, w_accept4);

WRAPPER int w_pipe(int fds[2])
{
	return both_foreign(REAL(pipe)(fds), fds);
}
EXPORT(pipe, w_pipe);

WRAPPER int w_pipe2(int fds[2], int flags)
{
	return both_foreign(REAL(pipe2)(fds, flags), fds);
}
EXPORT(pipe2, w_pipe2);

WRAPPER int w_epoll_create(int size)
{
	return foreign(REAL(epoll_create)(size));
}
EXPORT(epoll_create, w_epoll_create);

WRAPPER int w_epoll_create1(int flags)
{
	return foreign(REAL(epoll_create1)(flags));
}
EXPORT(epoll_create1, w_epoll_create1);

WRAPPER int w_eventfd(unsigned value, int flags)
{
	return foreign(REAL(eventfd)(value, flags));
}
EXPORT(eventfd, w_eventfd);

WRAPPER int w_timerfd_create(int clock, int flags)
{
	return foreign(REAL(timerfd_create)(clock, flags));
}
EXPORT(timerfd_create, w_timerfd_create);

WRAPPER int w_signalfd(int fd, const sigset_t *mask, int flags)
{
	return foreign(REAL(signalfd)(fd, mask, flags));
}
EXPORT(signalfd, w_signalfd);

WRAPPER int w_inotify_init(void)
{
	return foreign(REAL(inotify_init)());
}
EXPORT(inotify_init, w_inotify_init);

WRAPPER int w_inotify_init1(int flags)
{
	return foreign(REAL(inotify_init1)(flags));
}
EXPORT(inotify_init1, w_inotify_init1);

WRAPPER int w_memfd_create(const char *name, unsigned flags)
{
	return foreign(REAL(memfd_create)(name, flags));
}
EXPORT(memfd_create, w_memfd_create);
