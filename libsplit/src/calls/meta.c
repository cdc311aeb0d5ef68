/* SPDX-License-Identifier: Apache-2.0 */
/* Calls about a file's size, offset and durability. */
#include <errno.h>
#include <unistd.h>

#include "base/sys.h"
#include "files/kernel_offset.h"
#include "files/unheld.h"
#include "io/io.h"
#include "calls/calls.h"
#include "io/call.h"

/* Where the end of the file is, moved by off. */
static off_t from_end(struct sfs_ofd *ofd, int fd, off_t off)
{
	struct sfs_inode *in = ofd->inode;
	off_t r;

	if (sfs_by_kernel(in) && in->fd < 0)
		return sys_lseek(fd, off, SEEK_END); /* nothing is staged of it */
	sfs_inode_lock(in);
	r = likely(sfs_fd_still(fd, ofd, in)) ? sfs_inode_ready(in, fd, ofd->flags) : SFS_GONE;
	/* Only now it has turned out that the kernel serves it, and that there is no descriptor of ours to ask. */
	if (r == 0 && sfs_by_kernel(in) && in->fd < 0) {
		r = sys_lseek(fd, off, SEEK_END);
	} else if (r == 0) {
		if (in->staging.count == 0)
			sfs_inode_resize(in);
		r = (off_t)in->size;
		if (off < 0 ? r + off < 0 : off > INT64_MAX - r)
			r = -EINVAL;
		else
			r += off;
	}
	sfs_inode_unlock(in);
	return r;
}

static off_t from_here(const struct sfs_ofd *ofd, off_t off)
{
	/* As the kernel, which has no other error for it. */
	return (off > 0 && ofd->off > INT64_MAX - off) || ofd->off + off < 0 ? -EINVAL : ofd->off + off;
}

static off_t lseek_of(struct sfs_ofd *ofd, int fd, off_t off, int whence)
{
	struct sfs_inode *in = ofd->inode;
	off_t r = 0;

	sfs_offset_take(ofd, fd);
	if (whence == SEEK_END)
		r = from_end(ofd, fd, off);
	else if (whence == SEEK_DATA || whence == SEEK_HOLE)
		r = sfs_flush_unlocked(in, SFS_PUBLISH);
	if (r < 0)
		return r;
	sfs_mutex_take(&ofd->lock);
	if (unlikely(!sfs_fd_still(fd, ofd, in)))
		r = SFS_GONE;
	else if (whence == SEEK_END)
		r = ofd->kernel_off ? sys_lseek(fd, r, SEEK_SET) : r;
	else if (ofd->kernel_off || (whence != SEEK_SET && whence != SEEK_CUR))
		r = sys_lseek(fd, off, whence);
	else if (whence == SEEK_CUR)
		r = from_here(ofd, off);
	else
		r = off < 0 ? -EINVAL : off;
	/* Positions behind the largest file are the kernel's to judge. */
	if (r > (1ll << 43))
		r = sys_lseek(fd, r, SEEK_SET);
	if (r >= 0)
		ofd->off = r;
	sfs_mutex_drop(&ofd->lock);
	return r;
}

static off_t try_lseek(struct sfs_ofd *ofd, int fd, off_t off, int whence)
{
	uint64_t *op;
	off_t r;

	r = sfs_unheld_lseek(ofd, fd, off, whence);
	if (r != SFS_PASS)
		return r;
	do {
		if (!sfs_op_begin(ofd->inode, &op))
			return -EDEADLK;
		r = lseek_of(ofd, fd, off, whence);
		sfs_op_end(op);
	} while (r == SFS_TURN && (r = sfs_turn_wait(ofd->inode)) == 0);
	return r;
}

off_t sfs_lseek(int fd, off_t off, int whence)
{
	struct sfs_ofd *ofd;
	off_t r;

	do {
		ofd = sfs_ofd_of(fd);
		r = ofd ? try_lseek(ofd, fd, off, whence) : SFS_PASS;
	} while (sfs_gone(r, fd));
	return r;
}

static int try_fsync(struct sfs_ofd *ofd, int fd, bool data_only)
{
	struct sfs_inode *in = ofd->inode;
	uint64_t *op;
	int r;

	count(in->vol, fsync_ops, 1);
	r = sfs_unheld_fsync(ofd, fd, data_only);
	if (r != SFS_PASS)
		return r;
	do {
		if (!sfs_op_begin(in, &op))
			return -EDEADLK;
		sfs_inode_lock(in);
		r = unlikely(!sfs_fd_still(fd, ofd, in)) ? SFS_GONE
		    : in->life == LIFE_READY		 ? 0
							 : sfs_inode_ready(in, fd, ofd->flags);
		if (r == 0)
			r = sfs_flush_fsync(ofd, fd, data_only);
		sfs_inode_unlock(in);
		if (r == -EAGAIN)
			r = sfs_checkpoint(in->vol, true);
		sfs_op_end(op);
	} while (r == SFS_TURN && (r = sfs_turn_wait(in)) == 0);
	return r;
}

int sfs_fsync(int fd, bool data_only)
{
	struct sfs_ofd *ofd;
	int r;

	do {
		ofd = sfs_ofd_of(fd);
		r = ofd ? try_fsync(ofd, fd, data_only) : SFS_PASS;
	} while (sfs_gone(r, fd));
	return r;
}

void sfs_sync_all(void)
{
	sfs_check_fork();
	for (int i = 0; i < sfs.nvolumes; i++)
		sfs_flush_all(&sfs.volumes[i], SFS_PUBLISH);
}

#define NO_CUT UINT64_MAX

/*
 * A size in the middle of a block: the file system zeroes the rest of the block in place, on DAX at once, and commits the size
 * later. So that a power loss leaves the old file or the new one, the record comes first, which recovery finishes.
 */
static bool tears(const struct sfs_inode *in, uint64_t cut)
{
	return cut < in->size && cut % SFS_BLOCK && in->vol->dax && in->vol->mode != SFS_POSIX;
}

/* How the kernel changes a file. */
struct by_kernel {
	int (*call)(int fd, const long *arg);
	const long *arg;
	uint64_t cut;		   /* where it cuts the file off, or NO_CUT */
	const struct sfs_ofd *ofd; /* of the program's descriptor; NULL: it is one of ours */
	bool made;
};

/*
 * Relink, let the kernel change the file, look at it again. fd: of the file, opened with `flags`. Lock held. Until it is made nothing has
 * happened; -EAGAIN: a checkpoint is due.
 */
static int change(struct sfs_inode *in, int flags, int fd, struct by_kernel *k)
{
	int r = !k->ofd || sfs_fd_still(fd, k->ofd, in) ? sfs_inode_ready(in, fd, flags) : SFS_GONE, unsynced = 0;
	uint32_t slot = 0;
	bool torn;

	if (r == 0)
		r = sfs_untold_change(in);
	if (r == 0)
		r = sfs_flush(in, SFS_RETIRE);
	if (r == 0)
		r = sfs_pins_save(&in->pins, k->cut == NO_CUT ? 0 : k->cut, UINT64_MAX);
	/* What others have made of the size while the kernel serves the file nobody has told us. */
	if (r == 0 && k->cut != NO_CUT && !sfs_inode_served(in))
		sfs_inode_resize(in);
	torn = r == 0 && tears(in, k->cut);
	if (torn)
		r = sfs_log_reserve(&in->vol->log, 2, false, &slot);
	if (r < 0)
		return r;
	/* A store that is being copied must not land behind the end: in the last page nothing would tell. */
	sfs_flights_void(in);
	k->made = true;
	in->kdirty = true;
	if (torn)
		sfs_log_cut(&in->vol->log, slot, in->ino, in->gen, k->cut);
	r = k->call(fd, k->arg);
	sfs_window_unknown(&in->window);
	if (in->life == LIFE_READY)
		sfs_inode_reload(in);
	/* Not durable where the journal failed: after a power loss recovery is to finish it. */
	if (r == 0 && in->vol->mode != SFS_POSIX)
		r = unsynced = sys_fsync(fd);
	if (torn)
		sfs_log_done(&in->vol->log, slot + 1, in->ino, in->gen, unsynced == 0);
	return r;
}

/* The same without the lock. SFS_TURN: nothing has happened. */
static int try_by_kernel(struct sfs_inode *in, int flags, int fd, struct by_kernel *k)
{
	int r = sfs_unheld_change(in, k->ofd, fd, k->call, k->arg);
	uint64_t *op;

	if (r != SFS_PASS)
		return r;
	if (!sfs_op_begin(in, &op))
		return -EDEADLK;
	do {
		sfs_inode_lock(in);
		r = change(in, flags, fd, k);
		sfs_inode_unlock(in);
		if (r == -EAGAIN && !k->made)
			r = sfs_checkpoint(in->vol, true);
	} while (r == 0 && !k->made);
	sfs_op_end(op);
	return r;
}

static int by_kernel(struct sfs_ofd *ofd, int fd, int (*call)(int fd, const long *arg), const long *arg, uint64_t cut)
{
	struct by_kernel k = {call, arg, cut, ofd, false};
	struct sfs_inode *in = ofd->inode;
	uint32_t forks;
	int r;

	sfs_check_fork();
	forks = sfs.forks;
	/* In the child of a handler's fork the call is the parent's. */
	do
		r = try_by_kernel(in, ofd->flags, fd, &k);
	while (r == SFS_TURN && (r = sfs_turn_wait(in)) == 0 && !sfs_is_child(forks));
	return r;
}

static int call_ftruncate(int fd, const long *arg)
{
	return sys_ftruncate(fd, arg[0]);
}

int sfs_ftruncate(int fd, off_t len)
{
	const long arg[1] = {len};
	struct sfs_ofd *ofd;
	int r;

	do {
		ofd = sfs_ofd_of(fd);
		if (!ofd)
			return SFS_PASS;
		if (!sfs_may_write(ofd->flags) || len < 0)
			return -EINVAL;
		r = by_kernel(ofd, fd, call_ftruncate, arg, (uint64_t)len);
	} while (sfs_gone(r, fd));
	return r;
}

/* By its name in /proc, as the file may be opened for reading only. */
static int call_truncate_name(int fd, const long *arg)
{
	char path[32];

	int r;

	sfs_fd_path(path, fd);
	r = (int)sys_call2(SYS_truncate, (long)path, arg[0]);
	return r == -ENOENT ? sys_ftruncate(fd, arg[0]) : r; /* the program sees no /proc */
}

/* *turn: the inode, where its turn is to be waited for. */
static int truncate_known(dev_t dev, ino_t ino, off_t len, struct sfs_inode **turn)
{
	const uint64_t signals = sfs_signals_block(); /* a handler that jumps must not take the reference with it */
	struct sfs_inode *in = sfs_inode_ref(dev, ino);
	const long arg[1] = {len};
	struct by_kernel k = {call_truncate_name, arg, (uint64_t)len, NULL, false};
	int r = SFS_UNKNOWN;

	*turn = in;
	if (in) {
		const bool leased = sfs_server_is_leased(&in->server);
		const int fd = leased ? -1 : sfs_inode_fd(in);

		/* While it is leased the kernel serves it, and nothing is staged. Without a descriptor it is as if it had never been open here. */
		if (fd >= 0)
			r = try_by_kernel(in, O_RDONLY, fd, &k);
		else if (leased)
			r = SFS_PASS;
		if (r == SFS_GONE)
			r = SFS_UNKNOWN;
		sfs_inode_put(in);
	}
	sfs_signals_restore(signals);
	return r;
}

int sfs_truncate_known(dev_t dev, ino_t ino, off_t len)
{
	struct sfs_inode *in;
	int r;

	sfs_check_fork();
	do
		r = truncate_known(dev, ino, len, &in);
	while (r == SFS_TURN && (r = sfs_turn_wait(in)) == 0);
	return r;
}

/*
 * arg[3]: strict. File systems allocate a long range in several transactions and may raise the size with each; blocks behind the
 * end of the file are nobody's to see, so they come first and the size follows in one step.
 */
static int call_fallocate(int fd, const long *arg)
{
	struct stat st;
	int r;

	if (!arg[3] || arg[0] != 0 || arg[2] <= 0 || arg[1] > INT64_MAX - arg[2] || sys_fstat(fd, &st) < 0 ||
	    arg[1] + arg[2] <= st.st_size)
		return sys_fallocate(fd, (int)arg[0], arg[1], arg[2]);
	r = sys_fallocate(fd, FALLOC_FL_KEEP_SIZE, arg[1], arg[2]);
	if (r == 0)
		r = sys_ftruncate(fd, arg[1] + arg[2]);
	/* An append-only file may grow, and may not be truncated. */
	return r == -EPERM ? sys_fallocate(fd, 0, arg[1], arg[2]) : r;
}

int sfs_fallocate(int fd, int mode, off_t off, off_t len)
{
	long arg[4] = {mode, off, len};
	struct sfs_ofd *ofd;
	int r;

	do {
		ofd = sfs_ofd_of(fd);
		if (!ofd)
			return SFS_PASS;
		arg[3] = ofd->inode->vol->mode == SFS_STRICT;
		r = by_kernel(ofd, fd, call_fallocate, arg, NO_CUT);
	} while (sfs_gone(r, fd));
	return r;
}

/* arg[1]: fd is open for writing. Otherwise its name in /proc is what the kernel lets us truncate by. */
static int call_truncate(int fd, const long *arg)
{
	const struct timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
	char path[32];
	int r;

	sfs_fd_path(path, fd);
	r = arg[1] ? sys_ftruncate(fd, arg[0]) : (int)sys_call2(SYS_truncate, (long)path, arg[0]);
	/* O_TRUNC sets the times also of a file that is empty already; not every file system's truncate does. */
	if (r == 0)
		sys_call4(SYS_utimensat, fd, 0, (long)times, 0);
	return r;
}

int sfs_truncate_open(int fd, int flags)
{
	const long arg[2] = {0, sfs_may_write(flags)};
	struct sfs_ofd *ofd;
	int r;

	do {
		ofd = sfs_ofd_of(fd);
		r = ofd ? by_kernel(ofd, fd, call_truncate, arg, 0) : call_truncate(fd, arg);
	} while (sfs_gone(r, fd));
	return r;
}
