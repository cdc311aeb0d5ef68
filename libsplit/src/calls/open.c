/* SPDX-License-Identifier: Apache-2.0 */
/* openat(2). */
#include "calls/attach.h"

#include <errno.h>

#include "base/sys.h"
#include "calls/calls.h"
#include "lease/ask.h"
#include "lease/opening.h"

#define SFS_OPEN_ONLY (O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_CLOEXEC) /* F_GETFL does not show them */

/*
 * O_TRUNC on a file of ours that is there already: some process may have staged data of it, so it is opened as it is, taken over,
 * and then truncated.
 */
static bool truncates_ours(int dirfd, const char *path, int flags)
{
	struct stat st;

	return (flags & O_TRUNC) && (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL) && !(flags & O_PATH) &&
	       sys_fstatat(dirfd, path, &st, flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0) == 0 && S_ISREG(st.st_mode) &&
	       sfs_volume_of(st.st_dev);
}

/*
 * Need nothing be known of the file before the descriptor is used? Not so while an agent may be missing, which strict has to say at
 * open, and where the call may have created the file, which sync and strict make durable.
 */
static bool may_wait(int fd, int flags)
{
	if (fd >= sfs_fds_len || sfs.nvolumes == 0)
		return false;
	for (int i = 0; i < sfs.nvolumes; i++) {
		const struct sfs_volume *vol = &sfs.volumes[i];

		if (load_acquire(&vol->agent.state) != VOL_READY || (vol->mode != SFS_POSIX && (flags & O_CREAT)))
			return false;
	}
	return true;
}

/*
 * May it go on so though this process is no client of the agent? A short program that only reads has the table to look at, and needs neither a
 * log nor a service thread. Nobody asks for the table before a file of the volume is opened; with it every file may be one.
 */
static bool only_reads(int fd, int flags)
{
	struct sfs_volume *vol = &sfs.volumes[0];
	struct stat st;

	if (sfs.nvolumes != 1 || fd >= sfs_fds_len || sfs.grant_first || load_acquire(&vol->agent.state) != VOL_UNKNOWN ||
	    (flags & (O_ACCMODE | O_CREAT | O_TRUNC | O_PATH | O_DIRECT)) != O_RDONLY)
		return false;
	return load_acquire(&vol->owners) ||
	       (sys_fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && sfs_volume_of(st.st_dev) == vol && sfs_owners_known(vol));
}

static int open_seen(int dirfd, const char *path, int how, mode_t mode)
{
	const struct sfs_opening announced = sfs_opening();
	const int fd = sys_openat(dirfd, path, how, mode);

	sfs_opened(announced);
	return fd;
}

int sfs_openat(int dirfd, const char *path, int flags, mode_t mode)
{
	const bool truncate = truncates_ours(dirfd, path, flags);
	const int how = (truncate ? flags & ~O_TRUNC : flags) | O_LARGEFILE;
	struct sfs_inode *in;
	struct sfs_ofd *ofd;
	uint64_t signals;
	struct stat st;
	int fd, r;

	sfs_check_fork();
	do
		fd = open_seen(dirfd, path, how, mode);
	while (sfs_numbers_back(fd, !(flags & O_PATH)));
	if (fd < 0)
		return fd;
	sfs_enter(fd, flags & O_PATH ? SFS_FOREIGN : NULL);
	if (flags & O_PATH)
		return fd;
	if (!truncate && (may_wait(fd, flags) || only_reads(fd, flags))) {
		sfs_fds_opened(fd, flags & ~SFS_OPEN_ONLY);
		return fd;
	}
	r = sys_fstat(fd, &st);
	if (r == 0)
		sfs_attach_await(fd, &st);
	signals = sfs_signals_block();
	if (r == 0)
		r = sfs_attach(fd, &st, flags, SFS_OFFSET_NEW, &ofd);
	in = r > 0 ? ofd->inode : NULL;
	if (r >= 0)
		sfs_enter(fd, in ? ofd : SFS_FOREIGN);
	if (r > 0 && !truncate)
		r = sfs_attach_name(in, fd, flags, &st);
	sfs_signals_restore(signals);
	/* It may wait for another process, which a signal ends. */
	if (r >= 0 && truncate)
		r = sfs_truncate_open(fd, flags);
	if (r < 0) {
		if (sfs_close(fd) == SFS_PASS)
			sys_close(fd);
		return r;
	}
	return fd;
}
