/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sync and strict: what a metadata call made the kernel change is durable when the call returns; posix: with the next fsync. The
 * file system's journal is forced by fsync of what was changed: a directory for names, the file for its attributes. On ext4 and XFS
 * one transaction holds everything that one call changed, and the journal is committed in order, so that is enough and nobody else's
 * data is written. What can't be opened for fsync (no permission, a symbolic link, a FIFO, a path that is another one by now) costs a
 * syncfs of the volume. docs/data-path.md has the measurements behind this.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/sys.h"
#include "meta/durable.h"
#include "files/inode.h"

#define OPEN_FLAGS    (O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
#define YOUNG_SECONDS 600 /* no journal waits longer before it commits by itself */

/* A volume that must be forced after a change of something with this stat result, if it is inside(); or NULL. */
static struct sfs_volume *forced(const struct stat *st)
{
	for (int i = 0; sfs_volume_of(st->st_dev) && i < sfs.nvolumes; i++)
		if (sfs.volumes[i].dev == st->st_dev && sfs.volumes[i].mode != SFS_POSIX)
			return &sfs.volumes[i];
	return NULL;
}

/*
 * posix: an attribute is durable with the next fsync of the file, which on persistent memory asks the kernel only when there is something
 * of the kernel's to make durable.
 */
static void attr_dirty(const struct stat *st)
{
	struct sfs_inode *in;
	uint64_t *op, signals;

	if (!sfs_volume_of(st->st_dev))
		return;
	signals = sfs_signals_block(); /* a handler that jumps must not take the reference with it */
	in = sfs_inode_ref(st->st_dev, st->st_ino);
	if (in) {
		if (!in->vol->dax || in->vol->mode != SFS_POSIX) {
			/* fsync asks the kernel anyway. */
		} else if (sfs_op_begin(in, &op)) {
			sfs_inode_lock(in);
			in->kdirty = true;
			sfs_inode_unlock(in);
			sfs_op_end(op);
		} else {
			in->kdirty = true; /* a signal handler, and the lock is its thread's */
		}
		sfs_inode_put(in);
	}
	sfs_signals_restore(signals);
}

/* Is the open file or directory in the part of the file system that is the volume? In doubt it is. */
static bool inside(const struct sfs_volume *vol, int fd)
{
	vol = sfs_volume_at(vol->dev, fd);
	if (!vol || vol->mode == SFS_POSIX)
		return false;
	return load_acquire(&vol->agent.state) != VOL_READY || vol->dedicated || sfs_below(vol, fd);
}

/* Everything of the volume, through any descriptor of its file system that syncfs(2) takes. */
static int force_all(struct sfs_volume *vol)
{
	int fd, r;

	if (load_acquire(&vol->agent.state) == VOL_READY && vol->log.fd >= 0)
		return (int)sys_call1(SYS_syncfs, vol->log.fd);
	fd = sys_openat(AT_FDCWD, vol->dir, OPEN_FLAGS | O_DIRECTORY, 0);
	if (fd >= 0) {
		r = (int)sys_call1(SYS_syncfs, fd);
		sys_close(fd);
		return r;
	}
	/* Its user may not read it: a descriptor without any permission is proof enough for the agent, and the log is one with. */
	fd = sys_openat(AT_FDCWD, vol->dir, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	if (fd < 0)
		return -EIO;
	sfs_volume_await(vol, fd);
	r = sfs_volume_connect(vol, fd);
	sys_close(fd);
	return r == 0 ? (int)sys_call1(SYS_syncfs, vol->log.fd) : -EIO;
}

/* Open, fsync, close; by way of the whole volume where that is not possible. */
static int force_path(struct sfs_volume *vol, int dirfd, const char *path, int flags, const struct stat *want)
{
	struct stat st;
	int fd = sys_openat(dirfd, path, OPEN_FLAGS | flags, 0), r;

	if (fd == -EACCES && S_ISREG(want->st_mode))
		fd = sys_openat(dirfd, path, (OPEN_FLAGS & ~O_ACCMODE) | O_WRONLY | flags, 0);
	if (fd < 0)
		return force_all(vol);
	r = sys_fstat(fd, &st);
	if (r < 0 || st.st_dev != want->st_dev || st.st_ino != want->st_ino)
		r = force_all(vol); /* renamed meanwhile */
	else
		r = inside(vol, fd) ? sys_fsync(fd) : 0;
	sys_close(fd);
	return r;
}

void sfs_parent_of(char *parent, const char *path)
{
	size_t n = strlen(path);

	while (n > 0 && path[n - 1] == '/')
		n--;
	while (n > 0 && path[n - 1] != '/')
		n--;
	if (n > PATH_MAX)
		n = PATH_MAX; /* no call takes such a path */
	memcpy(parent, path, n);
	if (n == 0)
		parent[n++] = *path == '/' ? '/' : '.';
	parent[n] = 0;
}

/* Is there a volume whose names and attributes are forced? */
static bool any_forced(void)
{
	for (int i = 0; i < sfs.nvolumes; i++)
		if (sfs.volumes[i].mode != SFS_POSIX)
			return true;
	return false;
}

/* A posix one on persistent memory, whose fsync asks the kernel only where there is something of the kernel's to make durable? */
static bool any_recorded(void)
{
	for (int i = 0; i < sfs.nvolumes; i++)
		if (sfs.volumes[i].mode == SFS_POSIX && sfs.volumes[i].dax)
			return true;
	return false;
}

static bool any_dirty(void)
{
	return any_forced() || any_recorded();
}

/* *st: the directory, for who wants to know whether another name is in the same one. */
static int name_durable(int dirfd, const char *path, struct stat *st, const struct stat *done)
{
	char parent[PATH_MAX + 2];
	struct sfs_volume *vol;

	sfs_parent_of(parent, path);
	if (sys_fstatat(dirfd, parent, st, 0) < 0) {
		/* Gone, or moved, right after the call: which volume it was in can't be told any more. */
		for (int i = 0; i < sfs.nvolumes; i++) {
			const int r = sfs.volumes[i].mode != SFS_POSIX ? force_all(&sfs.volumes[i]) : 0;

			if (r < 0)
				return r;
		}
		return 0;
	}
	vol = forced(st);
	if (!vol || (done && done->st_dev == st->st_dev && done->st_ino == st->st_ino))
		return 0;
	return force_path(vol, dirfd, parent, O_DIRECTORY, st);
}

int sfs_name_durable(int dirfd, const char *path)
{
	struct stat st;

	sfs_check_fork();
	return any_forced() ? name_durable(dirfd, path, &st, NULL) : 0;
}

int sfs_names_durable(int fromfd, const char *from, int tofd, const char *to)
{
	struct stat a = {0}, b;
	int r;

	sfs_check_fork();
	if (!any_forced())
		return 0;
	r = name_durable(fromfd, from, &a, NULL);
	return r < 0 ? r : name_durable(tofd, to, &b, &a);
}

void sfs_name_given(int dirfd, const char *path)
{
	struct stat st;

	if (sfs_any_granted() && any_recorded() && sys_fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && !forced(&st))
		attr_dirty(&st);
}

int sfs_fd_durable(int fd)
{
	struct sfs_volume *vol;
	struct stat st;
	int r;

	sfs_check_fork();
	if (!any_dirty() || sys_fstat(fd, &st) < 0)
		return 0;
	vol = forced(&st);
	if (!vol) {
		attr_dirty(&st);
		return 0;
	}
	if (!inside(vol, fd))
		return 0;
	r = sys_fsync(fd);
	/* A descriptor of O_PATH, or of something that is no file. */
	return r == -EBADF || r == -EINVAL ? force_all(vol) : r;
}

int sfs_attr_durable(int dirfd, const char *path, int at_flags)
{
	const int nofollow = at_flags & AT_SYMLINK_NOFOLLOW;
	struct sfs_volume *vol;
	struct sfs_inode *in;
	struct stat st;
	int r;

	if (!path || (*path == 0 && at_flags & AT_EMPTY_PATH))
		return sfs_fd_durable(dirfd);
	sfs_check_fork();
	if (!any_dirty())
		return 0;
	if (sys_fstatat(dirfd, path, &st, nofollow) < 0)
		return sfs_name_durable(dirfd, path); /* removed since: that is in the journal behind it */
	vol = forced(&st);
	if (!vol) {
		attr_dirty(&st);
		return 0;
	}
	/* Closing a descriptor of a file drops the process's locks on it: one that is open here is never opened anew. */
	in = sfs_inode_ref(st.st_dev, st.st_ino);
	if (in) {
		const int fd = sfs_inode_fd(in);

		if (in->vol->mode == SFS_POSIX) { /* another one of the device is not */
			sfs_inode_put(in);
			attr_dirty(&st);
			return 0;
		}
		r = fd >= 0 ? sys_fsync(fd) : force_all(vol);
		sfs_inode_put(in);
		return r;
	}
	/* Opening a FIFO or a device is noticed at its other end. */
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return force_all(vol);
	return force_path(vol, dirfd, path, nofollow ? O_NOFOLLOW : 0, &st);
}

/* May its creation still be on its way to the journal? */
static bool young(int fd)
{
	struct timespec now;
	struct statx stx;

	if (sys_call5(SYS_statx, fd, (long)"", AT_EMPTY_PATH, STATX_BTIME, (long)&stx) < 0 || !(stx.stx_mask & STATX_BTIME) ||
	    sys_call2(SYS_clock_gettime, CLOCK_REALTIME, (long)&now) < 0)
		return true;
	return stx.stx_btime.tv_sec > now.tv_sec || now.tv_sec - stx.stx_btime.tv_sec < YOUNG_SECONDS;
}

/*
 * fsync of a file that was just created commits its name with it. Whether this open has created the file, only O_EXCL tells; one
 * that another process created a moment ago must be there too before what is written to it counts as durable.
 */
int sfs_open_durable(struct sfs_volume *vol, int fd, int flags, const struct stat *st)
{
	if (vol->mode == SFS_POSIX || (flags & O_TMPFILE) == O_TMPFILE)
		return 0;
	if (flags & O_CREAT ? !(flags & O_EXCL) && st->st_size > 0 && !young(fd)
			    : !vol->dax || (flags & O_ACCMODE) == O_RDONLY || !young(fd))
		return 0;
	return sys_fsync(fd);
}
