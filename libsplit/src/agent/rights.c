/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a descriptor proves that came with a message. A client may forge everything but what the kernel says of it: F_GETFL how it was
 * opened, fstat and fstatfs what it is of, /proc/PID/mountinfo which mounts its process sees.
 *
 *   - A regular file of the volume, open for writing, proves that its process may write to the volume. A FIFO does not: the kernel
 *     opens it for writing on a read-only mount, too.
 *   - Who has not shown one may still get to that: its mount has to be writable, or another one that its process sees. Else it gets
 *     nothing that takes space of the volume.
 *   - Files of the control directory prove nothing: clients have them from the agent, open on a mount of the agent's.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include "agent/internal.h"

/* Its name is the agent's own way to it, which is short: one that is too long for the kernel to say is another file's. */
static bool of_control(const struct agent *a, int fd)
{
	char link[32], name[PATH_MAX + 1], ctl[PATH_MAX + sizeof(SFS_CONTROL_DIR) + 2];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	snprintf(ctl, sizeof(ctl), "%s/" SFS_CONTROL_DIR "/", a->root.path[1] ? a->root.path : "");
	n = readlink(link, name, sizeof(name) - 1);
	if (n < 0)
		return false;
	name[n] = 0;
	return strncmp(name, ctl, strlen(ctl)) == 0;
}

static bool of_volume(const struct agent *a, int fd, struct stat *st, struct statfs *sf)
{
	/* A file system on top of others may show their device numbers, but not their type. */
	return fd >= 0 && fstat(fd, st) == 0 && st->st_dev == a->root.dev && st->st_ino != a->owners_ino &&
	       fstatfs(fd, sf) == 0 && (unsigned long)sf->f_type == a->fs_type && !of_control(a, fd);
}

enum right right_of_fd(const struct agent *a, int fd, int *flags, struct stat *st)
{
	struct statfs sf;

	if (!of_volume(a, fd, st, &sf))
		return RIGHT_NONE;
	*flags = fcntl(fd, F_GETFL);
	if (*flags >= 0 && !(*flags & O_PATH) && (*flags & O_ACCMODE) != O_RDONLY && S_ISREG(st->st_mode))
		return RIGHT_WRITE;
	return (unsigned long)sf.f_flags & ST_RDONLY ? RIGHT_READ : RIGHT_MOUNT;
}

enum right right_shown(const struct agent *a, int fd)
{
	struct stat st;
	int flags;

	return right_of_fd(a, fd, &flags, &st);
}

enum right right_of_client(const struct agent *a, const struct client *c, int fd)
{
	const enum right shown = right_shown(a, fd);

	/* A pod may have the volume at two places, and show the one that it may only read. */
	return shown == RIGHT_READ && sfs_process_mounts_writable(c->pid, a->root.dev) ? RIGHT_MOUNT : shown;
}

enum right right_resumed(const struct client *c)
{
	return c->lease.head.memory ? RIGHT_READ : c->lease.head.nchunks || c->lease.head.ninodes ? RIGHT_WRITE : RIGHT_MOUNT;
}
