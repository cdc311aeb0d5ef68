/* SPDX-License-Identifier: Apache-2.0 */
/* Calls about a file's size, attributes and durability, and handing a file to the kernel for a call that we do not serve. */
#include <errno.h>
#include <linux/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/sys.h"
#include "files/kernel_offset.h"
#include "files/unheld.h"
#include "format/identity.h"
#include "io/io.h"
#include "io/peek.h"
#include "calls/calls.h"

/* Where the end of the file is, moved by off. */
static off_t from_end(struct sfs_ofd *ofd, int fd, off_t off)
{
	struct sfs_inode *in = ofd->inode;
	off_t r;

	if (in->kernel_only && in->fd < 0)
		return sys_lseek(fd, off, SEEK_END); /* nothing is staged of it */
	sfs_inode_lock(in);
	r = sfs_inode_ready(in, fd, ofd->flags);
	if (r == 0) {
		if (in->staging.count == 0)
			sfs_inode_resize(in);
		r = (off_t)in->size;
		if (off < 0 ? r + off < 0 : off > INT64_MAX - r)
			r = off < 0 ? -EINVAL : -EOVERFLOW;
		else
			r += off;
	}
	sfs_inode_unlock(in);
	return r;
}

static off_t from_here(const struct sfs_ofd *ofd, off_t off)
{
	if (off > 0 && ofd->off > INT64_MAX - off)
		return -EOVERFLOW;
	return ofd->off + off < 0 ? -EINVAL : ofd->off + off;
}

static off_t lseek_of(struct sfs_ofd *ofd, int fd, off_t off, int whence)
{
	off_t r = 0;

	sfs_offset_take(ofd, fd);
	if (whence == SEEK_END)
		r = from_end(ofd, fd, off);
	else if (whence == SEEK_DATA || whence == SEEK_HOLE)
		r = sfs_flush_unlocked(ofd->inode, SFS_PUBLISH);
	if (r < 0)
		return r;
	sfs_mutex_take(&ofd->lock);
	if (whence == SEEK_END)
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

off_t sfs_lseek(int fd, off_t off, int whence)
{
	struct sfs_ofd *ofd = sfs_ofd_of(fd);
	uint64_t *op;
	off_t r;

	if (!ofd)
		return SFS_PASS;
	r = sfs_unheld_lseek(ofd, fd, off, whence);
	if (r != SFS_PASS)
		return r;
	if (!sfs_op_begin(ofd->inode, &op))
		return -EDEADLK;
	r = lseek_of(ofd, fd, off, whence);
	sfs_op_end(op);
	return r;
}

int sfs_fsync(int fd, bool data_only)
{
	struct sfs_ofd *ofd = sfs_ofd_of(fd);
	struct sfs_inode *in;
	uint64_t *op;
	int r;

	if (!ofd)
		return SFS_PASS;
	in = ofd->inode;
	count(in->vol, fsync_ops, 1);
	r = sfs_unheld_fsync(ofd, fd, data_only);
	if (r != SFS_PASS)
		return r;
	if (!sfs_op_begin(in, &op))
		return -EDEADLK;
	sfs_inode_lock(in);
	r = in->ready ? 0 : sfs_inode_ready(in, fd, ofd->flags);
	if (r == 0)
		r = sfs_flush_fsync(ofd, fd, data_only);
	sfs_inode_unlock(in);
	if (r == -EAGAIN)
		r = sfs_checkpoint(in->vol, true);
	sfs_op_end(op);
	return r;
}

void sfs_sync_all(void)
{
	sfs_check_fork();
	for (int i = 0; i < sfs.nvolumes; i++)
		sfs_flush_all(&sfs.volumes[i], SFS_PUBLISH);
}

static int publish_marked(struct sfs_inode *in)
{
	uint64_t *op;
	int r;

	/* In a signal handler: the call that it interrupted is not complete, and may never be. */
	if (!(in->live || in->staging.count > 0 || in->touched) || !sfs_op_begin(in, &op))
		return 0;
	r = sfs_flush_unlocked(in, SFS_PUBLISH);
	sfs_op_end(op);
	return r;
}

static int all_true_one(struct sfs_inode *in, void *arg)
{
	(void)arg;
	publish_marked(in);
	return 0;
}

void sfs_all_true(void)
{
	sfs_check_fork();
	for (int i = 0; i < sfs.nvolumes; i++)
		if (sfs.volumes[i].agent.state == VOL_READY)
			sfs_inodes_each(&sfs.volumes[i], all_true_one, NULL);
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

/*
 * Relink, let the kernel change the file, look at it again. fd: of the file, opened with `flags`. cut: where the call cuts it off, or NO_CUT. Lock not held; the call
 * gets it held exclusively.
 */
static int by_kernel(struct sfs_inode *in, int flags, int fd, int (*call)(int fd, const long *arg), const long *arg,
		     uint64_t cut)
{
	uint32_t slot = 0;
	bool torn = false;
	uint64_t *op;
	int r = sfs_unheld_change(in, fd, call, arg), unsynced = 0;

	if (r != SFS_PASS)
		return r;
	if (!sfs_op_begin(in, &op))
		return -EDEADLK;
	for (;;) {
		sfs_inode_lock(in);
		r = sfs_inode_ready(in, fd, flags);
		if (r == 0)
			r = sfs_flush(in, SFS_RETIRE);
		if (r == 0)
			r = sfs_pins_save(&in->pins, cut == NO_CUT ? 0 : cut, UINT64_MAX);
		torn = r == 0 && tears(in, cut);
		if (torn)
			r = sfs_log_reserve(&in->vol->log, 2, false, &slot);
		if (r == 0) {
			in->kdirty = true;
			if (torn)
				sfs_log_cut(&in->vol->log, slot, in->ino, in->gen, cut);
			r = call(fd, arg);
			in->window.dense_known = false;
			if (in->ready)
				sfs_inode_reload(in);
			/* Not durable where the journal failed: after a power loss recovery is to finish it. */
			if (r == 0 && in->vol->mode != SFS_POSIX)
				r = unsynced = sys_fsync(fd);
			if (torn)
				sfs_log_done(&in->vol->log, slot + 1, in->ino, in->gen, unsynced == 0);
			sfs_inode_unlock(in);
			break;
		}
		sfs_inode_unlock(in);
		if (r == -EAGAIN)
			r = sfs_checkpoint(in->vol, true);
		if (r < 0)
			break;
	}
	sfs_op_end(op);
	return r;
}

static int call_ftruncate(int fd, const long *arg)
{
	return sys_ftruncate(fd, arg[0]);
}

int sfs_ftruncate(int fd, off_t len)
{
	struct sfs_ofd *ofd = sfs_ofd_of(fd);
	const long arg[1] = {len};

	if (!ofd)
		return SFS_PASS;
	if ((ofd->flags & O_ACCMODE) == O_RDONLY || len < 0)
		return -EINVAL;
	return by_kernel(ofd->inode, ofd->flags, fd, call_ftruncate, arg, (uint64_t)len);
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

int sfs_truncate_known(dev_t dev, ino_t ino, off_t len)
{
	const long arg[1] = {len};
	struct sfs_inode *in;
	uint64_t signals;
	int r = SFS_UNKNOWN;

	sfs_check_fork();
	signals = sfs_signals_block(); /* a handler that jumps must not take the reference with it */
	in = sfs_inode_ref(dev, ino);
	if (in) {
		const int fd = sfs_inode_fd(in);

		/* Without a descriptor the kernel serves it, and nothing is staged. */
		r = fd < 0 ? SFS_PASS : by_kernel(in, O_RDONLY, fd, call_truncate_name, arg, (uint64_t)len);
		sfs_inode_put(in);
	}
	sfs_signals_restore(signals);
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
	struct sfs_ofd *ofd = sfs_ofd_of(fd);
	const long arg[4] = {mode, off, len, ofd && ofd->inode->vol->mode == SFS_STRICT};

	return ofd ? by_kernel(ofd->inode, ofd->flags, fd, call_fallocate, arg, NO_CUT) : SFS_PASS;
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
	struct sfs_ofd *ofd = sfs_ofd_of(fd);
	const long arg[2] = {0, (flags & O_ACCMODE) != O_RDONLY};

	return ofd ? by_kernel(ofd->inode, ofd->flags, fd, call_truncate, arg, 0) : call_truncate(fd, arg);
}

static void push_offset(struct sfs_ofd *ofd, int fd)
{
	sfs_mutex_lock(&ofd->lock);
	if (!ofd->kernel_off)
		sys_lseek(fd, ofd->off, SEEK_SET);
	sfs_mutex_unlock(&ofd->lock);
}

/*
 * The file itself, through fd, which was opened with `flags`; between sfs_op_begin() and sfs_op_end(). changes: its bytes may be others after
 * the call that follows.
 */
static int make_inode_true(struct sfs_inode *in, int fd, int flags, bool forever, bool changes)
{
	int r;

	sfs_inode_lock(in);
	/* Mapped: no descriptor of ours is needed, and the process may have a lock on the file. */
	in->kernel_only = in->kernel_only || (forever && in->fd < 0 && in->vol->owners);
	r = in->kernel_only && !in->gen ? sfs_generation(fd, &in->gen) : 0;
	/* Another process may have it staged: taking part in the delegation makes that one relink. */
	if (r == 0)
		r = sfs_inode_ready(in, fd, flags);
	if (r == 0)
		r = sfs_flush(in, SFS_RETIRE);
	if ((r == 0 || r == -EAGAIN) && changes) {
		const int saved = sfs_pins_save_all(&in->pins);

		r = saved < 0 ? saved : r;
	}
	in->kdirty = true;
	if (forever && (r == 0 || r == -EAGAIN))
		in->kernel_only = true;
	sfs_inode_unlock(in);
	return r == -EAGAIN ? sfs_checkpoint(in->vol, true) : r;
}

int sfs_give_up_known(dev_t dev, ino_t ino)
{
	struct sfs_inode *in;
	uint64_t *op, signals;
	int r = SFS_UNKNOWN, fd;

	sfs_check_fork();
	signals = sfs_signals_block(); /* a handler that jumps must not take the reference with it */
	in = sfs_inode_ref(dev, ino);
	fd = in ? sfs_inode_fd(in) : -1;
	if (in && fd < 0)
		r = 0; /* it is not open, and nothing is staged */
	else if (in && sfs_op_begin(in, &op)) {
		r = make_inode_true(in, fd, O_RDONLY, true, true);
		sfs_op_end(op);
	} else if (in) {
		r = -EDEADLK;
	}
	if (in)
		sfs_inode_put(in);
	sfs_signals_restore(signals);
	return r;
}

/* What the call that follows does. */
enum then {
	THEN_CHANGES,	   /* it may change bytes of the file */
	THEN_CHANGES_EVER, /* so may others that are not seen, from then on */
	THEN_ASKS,	   /* it changes none, and is worth a grant */
	THEN_LOOKS,	   /* it changes none, and asks for no grant */
};

static int make_true(int fd, enum then then)
{
	const bool forever = then == THEN_CHANGES_EVER;
	struct sfs_ofd *ofd = sfs_ofd_of(fd);
	struct sfs_inode *in;
	uint64_t *op;
	bool looks;
	int r;

	if (!ofd)
		return 0;
	in = ofd->inode;
	looks = then == THEN_LOOKS && sfs_unheld(in);
	if (looks) {
		r = sfs_unheld_look(in);
		if (r < 0 || ofd->kernel_off)
			return r;
	}
	if (!sfs_op_begin(in, &op))
		return -EDEADLK;
	r = looks ? 0 : make_inode_true(in, fd, ofd->flags, forever, then == THEN_CHANGES || forever);
	push_offset(ofd, fd);
	if (forever) {
		__atomic_and_fetch(&ofd->lazy, ~SFS_OFF_LAZY, __ATOMIC_SEQ_CST);
		ofd->kernel_off = true;
	}
	sfs_op_end(op);
	return r;
}

int sfs_make_true(int fd, bool forever)
{
	return make_true(fd, forever ? THEN_CHANGES_EVER : THEN_CHANGES);
}

/* From here to change_end() no snapshot of the file is taken; there is none whose bytes are the file's. */
static int change_begin(struct sfs_inode *in, struct sfs_change *c)
{
	uint64_t *op;
	int r;

	if (!sfs_op_begin(in, &op))
		return -EDEADLK;
	c->in = sfs_inode_ref(in->dev, in->ino);
	sfs_inode_take(in);
	r = c->in == in ? sfs_pins_save_all(&in->pins) : -EBADF; /* closed by another thread meanwhile */
	in->changing += r == 0;
	sfs_inode_drop(in);
	sfs_op_end(op);
	if (r < 0 && c->in) {
		sfs_inode_put(c->in);
		c->in = NULL;
	}
	return r;
}

static void change_end(struct sfs_inode *in)
{
	uint64_t *op;

	if (sfs_op_begin(in, &op)) {
		sfs_inode_take(in);
		in->changing -= in->changing > 0;
		sfs_inode_drop(in);
		sfs_op_end(op);
	}
	sfs_inode_put(in);
}

int sfs_true_to_change(int fd, struct sfs_change *c)
{
	struct sfs_ofd *ofd = sfs_ofd_of(fd);
	int r = 0;

	*c = (struct sfs_change){0};
	if (!ofd)
		return 0;
	if (sfs_unheld(ofd->inode))
		r = sfs_true_to_look(fd); /* the offset is the kernel's then */
	if (r == 0)
		r = sfs_unheld_claim(ofd->inode, fd, &c->claim);
	if (r != SFS_PASS)
		return r;
	r = sfs_make_true(fd, false);
	return r < 0 ? r : change_begin(ofd->inode, c);
}

void sfs_change_over(int fd, struct sfs_change *c)
{
	struct sfs_ofd *ofd = sfs_ofd_of(fd);

	if (c->claim && ofd)
		sfs_unheld_unclaim(ofd->inode, c->claim);
	if (c->in)
		change_end(c->in);
	sfs_changed(fd);
}

static int save_one(struct sfs_inode *in, void *arg)
{
	uint64_t *op;

	(void)arg;
	if (!sfs_op_begin(in, &op))
		return 0;
	sfs_inode_take(in);
	sfs_pins_save_all(&in->pins); /* without memory they show what the file becomes */
	sfs_inode_drop(in);
	sfs_op_end(op);
	return 0;
}

void sfs_snapshots_save(void)
{
	for (int i = 0; i < sfs.nvolumes; i++)
		sfs_inodes_each(&sfs.volumes[i], save_one, NULL);
}

void sfs_snapshots_bar(void)
{
	sfs_peek_bar(true);
	sfs_snapshots_save();
}

void sfs_snapshots_allow(void)
{
	sfs_peek_bar(false);
}

int sfs_true_to_look(int fd)
{
	return make_true(fd, THEN_LOOKS);
}

int sfs_true_to_lock(int fd)
{
	struct sfs_ofd *ofd = sfs_ofd_of(fd);
	int r;

	/* Where writes ask for a grant they find our descriptor then. */
	r = make_true(fd, ofd && sfs_kernel_may_write(ofd->inode->vol) ? THEN_LOOKS : THEN_ASKS);
	if (ofd)
		ofd->inode->locked = true;
	return r;
}

void sfs_changed(int fd)
{
	struct sfs_ofd *ofd = sfs_ofd_of(fd);
	struct sfs_inode *in;
	uint64_t *op;
	off_t off;

	if (!ofd || (sfs_unheld(ofd->inode) && ofd->kernel_off) || !sfs_op_begin(ofd->inode, &op))
		return;
	in = ofd->inode;
	sfs_inode_lock(in);
	if (in->ready)
		sfs_inode_reload(in);
	sfs_inode_unlock(in);
	sfs_mutex_lock(&ofd->lock);
	off = ofd->kernel_off ? 0 : sys_lseek(fd, 0, SEEK_CUR);
	if (!ofd->kernel_off && off >= 0)
		ofd->off = off;
	sfs_mutex_unlock(&ofd->lock);
	sfs_op_end(op);
}

int sfs_make_path_true(int dirfd, const char *path, int at_flags)
{
	struct stat st;
	struct sfs_inode *in;
	uint64_t signals;
	int r = 0;

	sfs_check_fork();
	if (!sfs_files.granted || sys_fstatat(dirfd, path, &st, at_flags & (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)) < 0)
		return 0;
	signals = sfs_signals_block();
	in = sfs_inode_ref(st.st_dev, st.st_ino);
	if (in) {
		/*
		 * The call that follows changes a name or an attribute, which a later fsync is to commit. It may be the last name:
		 * an inode that is not open does not keep the blocks for long.
		 */
		in->kdirty = true;
		in->park.age = SFS_AGE_OLD;
		r = publish_marked(in);
		sfs_inode_put(in);
	}
	sfs_signals_restore(signals);
	return r;
}

/*
 * The inode that a stat result is about, when what the kernel said of it may be old; with a reference. The service thread may have
 * been relinking while the kernel was asked: then the size is neither the old nor the new one.
 */
static struct sfs_inode *stale(dev_t dev, ino_t ino, uint64_t size)
{
	struct sfs_inode *in = sfs_inode_ref(dev, ino);

	if (in && in->staging.count == 0 && !in->touched && in->grant.deleg != SFS_DELEG_NONE && in->size == size) {
		sfs_inode_put(in);
		return NULL;
	}
	return in;
}

/* What the kernel said of a file of a volume. */
enum truth {
	TRUE_AS_IT_IS,
	TRUE_NOW,  /* *now is what stat should say */
	ASK_AGAIN, /* another process had bytes of it staged, and has relinked them since */
};

/* The file is open here and this process may have staged bytes of it. */
static enum truth own_truth(struct sfs_inode *in, struct stat *now)
{
	enum truth known = TRUE_AS_IT_IS;
	uint64_t *op;

	if (!sfs_op_begin(in, &op))
		return known;
	sfs_inode_lock(in);
	if (in->fd >= 0) {
		sfs_inode_ready(in, in->fd, O_RDONLY); /* another process may have taken the file over */
		sfs_inode_times(in);
		known = sys_fstat(in->fd, now) == 0 ? TRUE_NOW : TRUE_AS_IT_IS;
		if (known == TRUE_NOW && in->staging.count > 0 && (uint64_t)now->st_size < in->size) {
			now->st_size = (off_t)in->size;
			now->st_blocks += (blkcnt_t)(in->staging.count * (SFS_BLOCK / 512));
		}
	}
	sfs_inode_unlock(in);
	sfs_op_end(op);
	return known;
}

static enum truth truth(dev_t dev, ino_t ino, uint64_t size, struct stat *now)
{
	struct sfs_volume *vol = sfs.nvolumes ? sfs_volume_of(dev) : NULL;
	enum truth known = TRUE_AS_IT_IS;
	struct sfs_inode *in;
	uint64_t signals;

	if (!vol)
		return known;
	signals = sfs_signals_block(); /* a handler that jumps must not take the reference with it */
	in = stale(dev, ino, size);
	if (in && !sfs_unheld(in))
		known = own_truth(in, now);
	if (in)
		sfs_inode_put(in);
	sfs_signals_restore(signals);
	if (known == TRUE_NOW || !sfs_owners_known(vol) || sfs_owners_clean(vol, NULL, ino))
		return known;
	/* Who does not answer in time is not waited for by who only looks. */
	return sfs_ask_first(vol, NULL, ino) == 0 ? ASK_AGAIN : TRUE_AS_IT_IS;
}

bool sfs_fix_stat(struct stat *st)
{
	struct stat now;
	const enum truth t = S_ISREG(st->st_mode) ? truth(st->st_dev, st->st_ino, (uint64_t)st->st_size, &now) : TRUE_AS_IT_IS;

	if (t == TRUE_NOW)
		*st = now;
	return t == ASK_AGAIN;
}

bool sfs_fix_statx(struct statx *stx)
{
	enum truth t = TRUE_AS_IT_IS;
	struct stat now;

	if (S_ISREG(stx->stx_mode))
		t = truth(makedev(stx->stx_dev_major, stx->stx_dev_minor), stx->stx_ino, stx->stx_size, &now);
	if (t != TRUE_NOW)
		return t == ASK_AGAIN;
	stx->stx_mtime.tv_sec = now.st_mtim.tv_sec;
	stx->stx_mtime.tv_nsec = (uint32_t)now.st_mtim.tv_nsec;
	stx->stx_ctime.tv_sec = now.st_ctim.tv_sec;
	stx->stx_ctime.tv_nsec = (uint32_t)now.st_ctim.tv_nsec;
	stx->stx_size = (uint64_t)now.st_size;
	stx->stx_blocks = (uint64_t)now.st_blocks;
	return false;
}
