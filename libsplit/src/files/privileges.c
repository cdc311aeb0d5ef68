/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an executable file lets its user do: set-user-ID and set-group-ID bits, and capabilities. The kernel takes them away when somebody
 * else writes to the file. It does not see what we stage or store in place, so it is asked, before the first such write, to do
 * something to the file that it takes for a write. Who may keep the bits is the kernel's to decide.
 */
#include "files/privileges.h"

#include <linux/falloc.h>

#include "base/sys.h"

#define SET_ID	   (S_ISUID | S_ISGID)
#define EXECUTABLE (S_IXUSR | S_IXGRP | S_IXOTH)

static bool has_any(int fd, const struct stat *st)
{
	if (st->st_mode & SET_ID)
		return true;
	return (st->st_mode & EXECUTABLE) && sys_call4(SYS_fgetxattr, fd, (long)"security.capability", 0, 0) > 0;
}

/* inode.lock held exclusively. */
static void mark(struct sfs_inode *in)
{
	sfs_grow_end(in); /* the next append is to look */
	in->privileged = true;
}

void sfs_privileges_look(struct sfs_inode *in, int fd, const struct stat *st, int flags)
{
	if (likely(!(st->st_mode & (SET_ID | EXECUTABLE))) || in->privileged)
		return;
	if (!(st->st_mode & SET_ID) && (flags & O_ACCMODE) == O_RDONLY)
		return;
	if (!has_any(fd, st))
		return;
	sfs_inode_lock(in);
	mark(in);
	sfs_inode_unlock(in);
}

/* Linux drops the bits in fallocate(2) since 6.1; before, they go when the bytes are relinked. */
void sfs_privileges_end(struct sfs_inode *in)
{
	struct stat st;

	if (in->fd < 0 || sys_fstat(in->fd, &st) < 0)
		return;
	if (has_any(in->fd, &st)) {
		sys_fallocate(in->fd, FALLOC_FL_KEEP_SIZE, 0, 1);
		sfs_window_unknown(&in->window);
		if (sys_fstat(in->fd, &st) < 0)
			return;
	}
	in->privileged = has_any(in->fd, &st);
}

void sfs_privileges_given(int dirfd, const char *path, int at_flags)
{
	const bool by_name = path && (*path || !(at_flags & AT_EMPTY_PATH));
	struct sfs_inode *in;
	uint64_t *op, signals;
	struct stat st;

	sfs_check_fork();
	if (sfs.nvolumes == 0)
		return;
	if ((by_name ? sys_fstatat(dirfd, path, &st, at_flags & AT_SYMLINK_NOFOLLOW) : sys_fstat(dirfd, &st)) < 0)
		return;
	signals = sfs_signals_block();
	in = sfs_inode_ref(st.st_dev, st.st_ino);
	if (in) {
		if (sfs_op_begin(in, &op)) {
			sfs_inode_lock(in);
			mark(in);
			sfs_inode_unlock(in);
			sfs_op_end(op);
		}
		sfs_inode_put(in);
	}
	sfs_signals_restore(signals);
}
