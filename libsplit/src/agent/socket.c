/* SPDX-License-Identifier: Apache-2.0 */
/* The socket of a volume: the agent's own, or one that outlives it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/internal.h"

int sfs_agent_socket_path(char path[SFS_SOCKET_PATH], const char *agents_dir, unsigned major, unsigned minor,
			  struct sfs_why *why)
{
	const int n = snprintf(path, SFS_SOCKET_PATH, "%s/%u-%u.sock", agents_dir, major, minor);

	if (n < 0 || n >= SFS_SOCKET_PATH)
		return sfs_fail(why, -ENAMETOOLONG,
				"%s is too long for the name of a socket; choose a shorter directory for --agents-dir",
				agents_dir);
	return 0;
}

static int listen_on(struct agent *a, int fd)
{
	a->listen_fd = fd;
	a->listen_src = (struct source){SRC_LISTEN, NULL};
	return agent_watch(a, fd, EPOLLIN, &a->listen_src);
}

/* The socket is somebody else's: connections that come while no agent runs wait in it. */
static int listen_given(struct agent *a, struct sfs_why *why)
{
	const int fd = a->config->listen_fd;
	int type = 0, listening = 0, flags = fcntl(fd, F_GETFL);
	socklen_t size = sizeof(int);

	if (flags < 0 || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) < 0)
		return sfs_fail(why, -errno, "--listen-fd %d: %s", fd, strerror(errno));
	if (type != SOCK_SEQPACKET || !listening)
		return sfs_fail(why, -EINVAL, "--listen-fd %d is no listening socket of type SOCK_SEQPACKET", fd);
	if (fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return sfs_fail(why, -errno, "--listen-fd %d: %s", fd, strerror(errno));
	return listen_on(a, fd);
}

/* The socket of an agent that is gone is replaced; a living one is not. */
int agent_listen(struct agent *a, struct sfs_why *why)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct stat st;
	int fd, err;

	err = a->config->listen_fd ? 0
				   : sfs_agent_socket_path(a->socket_path, a->config->agents_dir, major(a->root.dev),
							   minor(a->root.dev), why);
	if (err)
		return err;
	a->dir_fd = open(a->config->agents_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (a->dir_fd < 0)
		return sfs_fail(why, -errno, "--agents-dir %s: %s", a->config->agents_dir, strerror(errno));
	if (a->config->listen_fd)
		return listen_given(a, why);
	memcpy(addr.sun_path, a->socket_path, sizeof(addr.sun_path));
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return sfs_fail(why, -errno, "make a socket: %s", strerror(errno));
	if (lstat(a->socket_path, &st) == 0) {
		if (!S_ISSOCK(st.st_mode)) {
			err = sfs_fail(why, -EEXIST, "%s is in the way and no socket; remove it", a->socket_path);
		} else if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0) {
			err = sfs_fail(why, -EADDRINUSE,
				       "another agent serves a directory of the same file system at %s; give this one another "
				       "--agents-dir",
				       a->socket_path);
		} else if (unlink(a->socket_path) < 0) {
			err = sfs_fail(why, -errno, "remove the stale socket %s: %s", a->socket_path, strerror(errno));
		}
	}
	if (!err &&
	    (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || chmod(a->socket_path, 0666) < 0 || listen(fd, 128) < 0))
		err = sfs_fail(why, -errno, "listen on %s: %s", a->socket_path, strerror(errno));
	if (err) {
		close(fd);
		a->socket_path[0] = 0;
		return err;
	}
	return listen_on(a, fd);
}
