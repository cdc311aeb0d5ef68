/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the next program of this process inherits, or the first one of a child that the C library makes (until there
 * is one this process counts for it). It may lack the library: then it writes to our files unseen, and who stages for
 * them has to give them up before. Nobody knows here whether it does. So the agent is told of every descriptor that
 * is left to it, by an open whose unused argument says what it is for: the kernel asks the agent about it where
 * somebody may stage for the file, and it returns when they have given it up. Where nobody may, it costs two calls. A
 * file that this process may not open any more (its user has changed), or that it has a lock on, which closing one
 * more descriptor would end, is shown to the agent in a message. The agent looks later at the process: one with the
 * library speaks for itself.
 */
#include "base/sys.h"
#include "calls/calls.h"
#include "fds/each.h"
#include "files/leased.h"
#include "files/scarce.h"
#include "format/proto.h"
#include "lease/leaving.h"
#include "lease/place.h"

#define PATIENCE_NS 3000000000ll /* for all of them: the agent lets each go on after so long */

static bool of_volume(int fd)
{
	const struct sfs_ofd *ofd = fd < sfs_fds_len ? load_acquire(&sfs_fds[fd]) : NULL;
	struct stat st;

	/* What is none of ours may be the kernel's only, as standard output is. */
	if (ofd == SFS_PRIVATE)
		return false;
	return ofd > SFS_PRIVATE || (sys_fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && sfs_volume_at(st.st_dev, fd));
}

struct leaving {
	unsigned what; /* SFS_OPEN_LEFT or SFS_OPEN_SPAWNED */
	bool all;      /* also what is closed by execve: a child may have it by another number */
	int64_t until;
};

/* For reading only, so that nobody who watches the directory sees a file closed that was being written. */
static bool announce(int fd, unsigned what)
{
	char path[32];
	int again;

	if (sfs_locked_before(fd))
		return false;
	sfs_fd_path(path, fd);
	again = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, what);
	if (again >= 0)
		sys_close(again);
	return again >= 0;
}

static void show(int fd, const struct leaving *l)
{
	struct stat st;
	const struct sfs_volume *vol = sys_fstat(fd, &st) == 0 ? sfs_volume_at(st.st_dev, fd) : NULL;

	if (vol)
		sfs_leave(vol, fd, l->what, l->until);
}

/* While it has a lease nobody stages, and an open would end that. */
static bool leave(int fd, void *arg)
{
	const struct leaving *l = arg;
	int flags;

	if (!l->all && ((flags = sys_fcntl(fd, F_GETFD, 0)) < 0 || flags & FD_CLOEXEC))
		return false;
	if (!of_volume(fd))
		return false;
	flags = sys_fcntl(fd, F_GETFL, 0);
	if (flags < 0 || flags & O_PATH || !sfs_may_write(flags) || sfs_has_lease(fd))
		return false;
	if (!announce(fd, l->what))
		show(fd, l);
	return sys_now_ns() >= l->until;
}

static void leave_each(unsigned what, bool all)
{
	struct leaving l = {what, all, 0};

	if (!sfs_active())
		return;
	l.until = sys_now_ns() + PATIENCE_NS;
	sfs_fds_each(leave, &l);
}

void sfs_exec_announce(bool all)
{
	leave_each(SFS_OPEN_LEFT, all);
}

void sfs_spawn_announce(bool all)
{
	leave_each(SFS_OPEN_SPAWNED, all);
}
