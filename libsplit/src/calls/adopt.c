/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that become ours: when they are opened, when they are used for the first time, or come from elsewhere. */
#include "calls/attach.h"

#include <errno.h>

#include "base/sys.h"
#include "calls/calls.h"
#include "files/kernel_offset.h"
#include "files/leased.h"
#include "files/privileges.h"
#include "files/unheld.h"
#include "io/io.h"

/* With nothing staged the kernel knows the size: is it another one than when we looked last? */
static bool outdated(const struct sfs_inode *in, const struct stat *st)
{
	return in->staging.count == 0 && (uint64_t)st->st_size != in->ksize;
}

/* Is the inode as one more description with these flags needs it? */
static bool has_all(struct sfs_inode *in, const struct stat *st, int flags)
{
	bool yes;

	sfs_inode_lock(in);
	yes = sfs_io_prepared(in) && in->life != LIFE_LOST && ((flags & O_ACCMODE) == O_RDONLY || in->writable) &&
	      !outdated(in, st) && !sfs_was_mapped(in);
	sfs_inode_unlock(in);
	return yes;
}

/*
 * Where there is a table the first call asks, which can wait for others: here locks are held and signals blocked. Without one: ask for the file
 * now, so that whoever has staged data of it relinks, and fstat tells the truth from the start. reload: somebody may have changed it.
 */
static void get_ready(struct sfs_inode *in, int fd, const struct stat *st, int flags, bool reload)
{
	sfs_inode_lock(in);
	if (unlikely(in->life == LIFE_LOST) && sfs_inode_open_at(in, 0) < 0)
		sfs_life_set(&in->life, LIFE_NEW);
	if ((in->grant.state > GRANT_UNTOLD || !in->vol->owners) && sfs_inode_ready(in, fd, flags) == 0 &&
	    unlikely(sfs_was_mapped(in)))
		sfs_server_kernel(&in->server);
	if (reload || outdated(in, st))
		sfs_inode_reload(in);
	sfs_inode_unlock(in);
}

int sfs_attach(int fd, const struct stat *st, int flags, enum sfs_offset offset, struct sfs_ofd **made)
{
	struct sfs_volume *vol = S_ISREG(st->st_mode) ? sfs_volume_at(st->st_dev, fd) : NULL;
	struct sfs_inode *in;
	struct sfs_ofd *ofd = NULL;
	bool known = false;
	uint64_t *op;
	int r;

	if (!vol || (flags & O_PATH) || fd >= sfs_fds_len)
		return 0;
	r = sfs_volume_connect(vol, fd);
	if (r == SFS_NOT_OF_VOLUME)
		return 0;
	/* A file that is not below is the kernel's, as one without a grant: in posix it is time to look when a grant is asked for. */
	if (!vol->dedicated && !(vol->owners && !sfs.grant_first && vol->mode == SFS_POSIX) && !sfs_below(vol, fd))
		return 0;
	if (r < 0 && vol->mode == SFS_STRICT && sfs_may_write(flags))
		return sfs_volume_refuses(vol);
	sfs_mutex_lock(&sfs_files.lock);
	/* Who may execute it must not find it open for writing. */
	in = sfs_inode_get_locked(vol, st->st_dev, st->st_ino, !(st->st_mode & 0111));
	if (in) {
		known = in->life == LIFE_READY && in->opens == 0;
		ofd = sfs_ofd_new_locked(in, flags);
	}
	sfs_mutex_unlock(&sfs_files.lock);
	if (!in)
		return -ENOMEM;
	if (!ofd) {
		sfs_inode_put(in);
		return -ENOMEM;
	}
	*made = ofd;
	if (unlikely(load_acquire(&in->unsure)))
		sfs_inode_renew(in);
	ofd->kernel_off = offset != SFS_OFFSET_NEW;
	sfs_offset_lazy(ofd, offset == SFS_OFFSET_MOVED);
	/* A descriptor of ours would break the program's lease. */
	if (offset == SFS_OFFSET_SHARED && sfs_has_lease(fd))
		sfs_server_lease(&in->server);
	/* Nobody is asked before it pays. */
	if (sfs_unheld(in)) {
		sfs_offset_lazy(ofd, offset != SFS_OFFSET_SHARED);
		ofd->kernel_off = true;
		return 1;
	}
	/* In a signal handler in the middle of a call on this file, which has prepared it, the lock is its thread's. */
	if (likely(sfs_op_begin(in, &op))) {
		if (known || !has_all(in, st, flags)) /* known: while it was not open here */
			get_ready(in, fd, st, flags, known);
		sfs_privileges_look(in, fd, st, flags);
		sfs_op_end(op);
	}
	return 1;
}

int sfs_attach_name(struct sfs_inode *in, int fd, int flags, const struct stat *st)
{
	int r = in->named ? 0 : sfs_open_durable(in->vol, fd, flags, st);

	in->named = in->named || r == 0;
	return r;
}

void sfs_enter(int fd, struct sfs_ofd *what)
{
	struct sfs_ofd *old;
	uint64_t signals;

	if ((unsigned)fd >= (unsigned)sfs_fds_len)
		return;
	store_release(&sfs_fds_fresh[fd], false);
	old = sfs_fds_know(fd, what);
	if (likely(old <= SFS_PRIVATE))
		return;
	signals = sfs_signals_block();
	sfs_ofd_put(old);
	sfs_signals_restore(signals);
}

void sfs_detach(int fd)
{
	sfs_enter(fd, NULL);
}

bool sfs_ours_unknown(int fd)
{
	struct sfs_ofd *ofd;

	do {
		sfs_adopt(fd);
		ofd = load_acquire(&sfs_fds[fd]);
	} while (unlikely(sfs_fds_changing(ofd)));
	return ofd > SFS_PRIVATE;
}

void sfs_attach_await(int fd, const struct stat *st)
{
	struct sfs_volume *vol = unlikely(sfs.unmet) && S_ISREG(st->st_mode) ? sfs_volume_at(st->st_dev, fd) : NULL;

	/* What else is on the device has not to do with it. */
	if (vol && sfs_volume_connect(vol, fd) == -EAGAIN && sfs_below(vol, fd))
		sfs_volume_await(vol, fd);
}

static bool is_of(const struct sfs_ofd *ofd, const struct stat *st)
{
	return ofd > SFS_PRIVATE && ofd->inode->dev == st->st_dev && ofd->inode->ino == st->st_ino;
}

/* The number is this thread's to change. What is known of it now. */
static struct sfs_ofd *look(int fd, struct sfs_ofd *was)
{
	enum sfs_offset offset;
	struct sfs_ofd *ofd;
	struct stat st;
	bool fresh, calls;
	int flags, r;

	/* A number that is closed is no file of ours, and not known to be none. */
	r = sys_fstat(fd, &st);
	if (r == 0 && is_of(was, &st))
		return was;
	fresh = __atomic_exchange_n(&sfs_fds_fresh[fd], false, __ATOMIC_SEQ_CST); /* before the flags are looked at */
	if (was > SFS_PRIVATE)
		sfs_ofd_put(was);
	if (r < 0)
		return NULL;
	flags = fresh ? sfs_fds_flags[fd] : sys_fcntl(fd, F_GETFL, 0);
	/* One of the first calls may be under way: of another thread, or the one that a handler has interrupted. */
	calls = __atomic_load_n(&sfs_fds_calls[fd], __ATOMIC_SEQ_CST) > 0;
	offset = !fresh ? SFS_OFFSET_SHARED : calls || flags >= SFS_FIRST_CALL ? SFS_OFFSET_MOVED : SFS_OFFSET_NEW;
	if (fresh)
		flags &= SFS_FIRST_FLAGS;
	if (flags < 0 || sfs_attach(fd, &st, flags, offset, &ofd) != 1)
		return SFS_FOREIGN;
	if (fresh && unlikely(calls))
		__atomic_store_n(&ofd->uncounted, UNCOUNTED_YES, __ATOMIC_SEQ_CST);
	if (fresh && sfs_attach_name(ofd->inode, fd, flags, &st) < 0)
		sfs_server_kernel(&ofd->inode->server); /* whose O_DSYNC writes fail, as the journal has */
	return ofd;
}

void sfs_adopt(int fd)
{
	struct sfs_ofd *was, *ofd, *change;
	struct stat st;
	uint64_t signals;

	if ((unsigned)fd >= (unsigned)sfs_fds_len)
		return;
	do {
		was = sfs_fds_settled(fd);
		if (was == SFS_PRIVATE)
			return;
		/* Of most nothing is known, and look() asks the kernel once. */
		if (unlikely(was || sfs.unmet)) {
			if (sys_fstat(fd, &st) < 0 || is_of(was, &st))
				return;
			sfs_attach_await(fd, &st);
		}
		signals = sfs_signals_block();
		change = sfs_fds_change_from(fd, was); /* two threads may use a descriptor for the first time at once */
		ofd = change ? look(fd, was) : NULL;
		if (change && !sfs_fds_changed(fd, change, ofd) && ofd > SFS_PRIVATE)
			sfs_ofd_put(ofd);
		sfs_signals_restore(signals);
	} while (!change);
}
