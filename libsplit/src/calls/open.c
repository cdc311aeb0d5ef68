/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors: which of the process's descriptors are open files of our volumes, and their open file descriptions. */
#include "calls/calls.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/sys.h"
#include "files/leased.h"
#include "files/privileges.h"
#include "files/reopen.h"
#include "files/unheld.h"
#include "io/io.h"

#define SLAB_BYTES    (64ul << 10)
#define LINGER_MAX    128u
#define SFS_OPEN_ONLY (O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_CLOEXEC) /* F_GETFL does not show them */
#define SETFL	      (O_APPEND | O_DIRECT | O_NONBLOCK | O_NOATIME)	  /* what F_SETFL can change */

/* The description behind fd; NULL for everything that is not ours. Notices a fork that nobody announced. */
struct sfs_ofd *sfs_ofd_of(int fd)
{
	struct sfs_ofd *ofd;

	sfs_check_fork();
	ofd = sfs_ours(fd) ? sfs_known(fd) : NULL;
	/* In the child of a fork, before any lock is held. */
	if (unlikely(sfs.unmet) && ofd)
		sfs_volume_await(ofd->inode->vol, fd);
	return ofd;
}

/*
 * A free one, its lock held. A call may still be at work with one that was closed under it, and would leave its offset there: that one is
 * passed over.
 */
static struct sfs_ofd *ofd_free_locked(void)
{
	for (struct sfs_ofd **p = &sfs_files.free_ofds; *p; p = &(*p)->next_free) {
		struct sfs_ofd *ofd = *p;

		if (sfs_mutex_trylock(&ofd->lock)) {
			*p = ofd->next_free;
			return ofd;
		}
	}
	return NULL;
}

static struct sfs_ofd *ofd_new_locked(struct sfs_inode *in, int flags)
{
	struct sfs_ofd *ofd = ofd_free_locked();

	if (!ofd) {
		ofd = sys_mmap(NULL, SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (sys_is_err(ofd))
			return NULL;
		for (size_t i = 0; i < SLAB_BYTES / sizeof(*ofd); i++) {
			/* On the path of every read and write: sfs_op_begin() knows who is inside. */
			ofd[i].lock.brief = true;
			ofd[i].next_free = sfs_files.free_ofds;
			sfs_files.free_ofds = &ofd[i];
		}
		ofd = ofd_free_locked();
	}
	ofd->inode = in;
	ofd->refs = 1;
	ofd->number++;
	ofd->flags = flags;
	ofd->kernel_off = false;
	ofd->lazy = 0;
	ofd->off = 0;
	sfs_mutex_unlock(&ofd->lock);
	return ofd;
}

/* Stores in place have changed the file, and after the last close nobody may come by to say so. */
static void times(struct sfs_inode *in)
{
	sfs_inode_lock(in);
	sfs_inode_times(in);
	sfs_inode_unlock(in);
}

/*
 * Nothing to relink at the last close: it has been done, or nobody without the library looks, and the inode stays for the service thread
 * to do it.
 */
static bool rests(const struct sfs_inode *in)
{
	if (!in->vol->dax)
		return false;
	if (in->staging.count == 0 && !in->touched && !in->kept && (in->vol->mode != SFS_POSIX || in->committed))
		return true;
	return !sfs_outside(in->vol, in->ino) && sfs_inode_parks(in);
}

/* The file stays open here, and the kernel serves it: sfs_files.lock held. With a grant ours is narrowed when that goes. */
static bool narrows(const struct sfs_inode *in, const struct sfs_ofd *ofd)
{
	return (ofd->flags & O_ACCMODE) != O_RDONLY && in->refs - in->walks > 1 && in->fd >= 0 && in->writable &&
	       sfs_grant_deleg(&in->grant) != SFS_DELEG_EXCLUSIVE;
}

static void narrow_own(struct sfs_inode *in)
{
	sfs_inode_lock(in);
	if (sfs_grant_deleg(&in->grant) != SFS_DELEG_EXCLUSIVE && in->staging.count == 0 && !in->live)
		sfs_inode_narrow(in);
	sfs_inode_unlock(in);
}

/*
 * Drop one descriptor's hold on its description; with the last one relink what is staged, so that a closed file is what
 * everybody sees. Returns what close(2) should report.
 */
static int ofd_put_blocked(struct sfs_ofd *ofd)
{
	struct sfs_inode *in = ofd->inode;
	bool last, gone = false, many = false, publish = false, touched = false, narrow = false;
	uint64_t *op;
	int r = 0;

	sfs_mutex_lock(&sfs_files.lock);
	last = --ofd->refs == 0;
	if (last) {
		ofd->next_free = sfs_files.free_ofds;
		sfs_files.free_ofds = ofd;
		/* Records that go on counting keep the inode, and its descriptor: not too many. */
		many = load_acquire(&in->vol->live) > LINGER_MAX;
		publish = (in->live || in->staging.count > 0) && (many || !rests(in));
		touched = in->touched && in->staging.count == 0;
		narrow = narrows(in, ofd);
		if (!publish && !touched && !narrow)
			gone = sfs_inode_put_locked(in);
	}
	sfs_mutex_unlock(&sfs_files.lock);
	if (gone)
		sfs_inode_end(in);
	if (!publish && !touched && !narrow)
		return 0;
	/* In a signal handler in the middle of a call on this file, which has the lock, it is left to the service thread. */
	if (likely(sfs_op_begin(in, &op))) {
		if (publish)
			r = sfs_flush_unlocked(in, many ? SFS_RETIRE : SFS_PUBLISH);
		else
			times(in);
		if (narrow)
			narrow_own(in);
		sfs_op_end(op);
	}
	sfs_inode_put(in);
	return r;
}

static int ofd_put(struct sfs_ofd *ofd)
{
	const uint64_t signals = sfs_signals_block(); /* once for all locks on the way */
	const int r = ofd_put_blocked(ofd);

	sfs_signals_restore(signals);
	return r;
}

/* A descriptor of the application that leads to the inode, or -1. */
static int open_here(const struct sfs_inode *in)
{
	for (int fd = 0; fd <= load_acquire(&sfs_fdt.fd_max); fd++) {
		const struct sfs_ofd *ofd = load_acquire(&sfs_fds[fd]);

		if (ofd > SFS_PRIVATE && ofd->inode == in)
			return fd;
	}
	return -1;
}

int sfs_inode_fd(const struct sfs_inode *in)
{
	const int own = __atomic_load_n(&in->fd, __ATOMIC_RELAXED);

	return own >= 0 ? own : open_here(in);
}

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
	yes = sfs_io_prepared(in) && !in->lost && ((flags & O_ACCMODE) == O_RDONLY || in->writable) && !outdated(in, st) &&
	      !sfs_was_mapped(in);
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
	if (unlikely(in->lost))
		in->lost = open_here(in) >= 0;
	if ((in->grant.state > GRANT_UNTOLD || !in->vol->owners) && sfs_inode_ready(in, fd, flags) == 0 &&
	    unlikely(sfs_was_mapped(in)))
		in->kernel_only = true;
	if (reload || outdated(in, st))
		sfs_inode_reload(in);
	sfs_inode_unlock(in);
}

/* Of a description that is about to become known. */
enum offset {
	OFFSET_NEW,    /* 0, and nobody shares it */
	OFFSET_MOVED,  /* the kernel has it, and nobody shares it */
	OFFSET_SHARED, /* other processes may */
};

/*
 * Make fd ours if it is a regular file of a volume. Returns 1 when it is, 0 when not, or a negative errno value. *file: the inode, which may be
 * another file's when another thread closes fd meanwhile.
 */
static int attach(int fd, const struct stat *st, int flags, enum offset offset, struct sfs_inode **file)
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
	if (vol->provider == RELINK_EXT4)
		sfs_reopen_enable();
	/* A file that is not below is the kernel's, as one without a grant: in posix it is time to look when a grant is asked for. */
	if (!vol->dedicated && !(vol->owners && !sfs.grant_first && vol->mode == SFS_POSIX) && !sfs_below(vol, fd))
		return 0;
	if (r < 0 && vol->mode == SFS_STRICT && (flags & O_ACCMODE) != O_RDONLY)
		return sfs_volume_refuses(vol);
	sfs_mutex_lock(&sfs_files.lock);
	in = sfs_inode_get_locked(vol, st->st_dev, st->st_ino);
	if (in) {
		known = in->ready && in->refs - in->walks == 1;
		/* Who may execute it must not find it open for writing. */
		in->park.keep = !(st->st_mode & 0111);
		ofd = ofd_new_locked(in, flags);
	}
	sfs_mutex_unlock(&sfs_files.lock);
	if (!in)
		return -ENOMEM;
	if (!ofd) {
		sfs_inode_put(in);
		return -ENOMEM;
	}
	*file = in;
	ofd->kernel_off = offset != OFFSET_NEW;
	ofd->lazy = offset == OFFSET_MOVED ? SFS_OFF_LAZY : 0;
	/* A descriptor of ours would break the program's lease. */
	if (offset == OFFSET_SHARED && sfs_has_lease(fd))
		__atomic_store_n(&in->leased, true, __ATOMIC_RELAXED);
	/* Nobody is asked before it pays. */
	if (sfs_unheld(in)) {
		ofd->lazy = offset == OFFSET_SHARED ? 0 : SFS_OFF_LAZY;
		ofd->kernel_off = true;
		sfs_fds_enter(fd, ofd);
		return 1;
	}
	/* In a signal handler in the middle of a call on this file, which has prepared it, the lock is its thread's. */
	if (likely(sfs_op_begin(in, &op))) {
		if (known || !has_all(in, st, flags)) /* known: while it was not open here */
			get_ready(in, fd, st, flags, known);
		sfs_privileges_look(in, fd, st, flags);
		sfs_op_end(op);
	}
	sfs_fds_enter(fd, ofd);
	return 1;
}

/* The file that fd, ours, was opened on: nothing of what is written to it may count before its name does. */
static int name_it(struct sfs_inode *in, int fd, int flags, const struct stat *st)
{
	int r = in->named ? 0 : sfs_open_durable(in->vol, fd, flags, st);

	in->named = in->named || r == 0;
	return r;
}

/* Forget an entry that a descriptor closed behind our back left. */
static void drop(int fd)
{
	struct sfs_ofd *old;

	if ((unsigned)fd >= (unsigned)sfs_fds_len)
		return;
	store_release(&sfs_fds_fresh[fd], 0);
	old = __atomic_exchange_n(&sfs_fds[fd], NULL, __ATOMIC_ACQ_REL);
	if (old > SFS_PRIVATE)
		ofd_put(old);
}

bool sfs_ours_unknown(int fd)
{
	sfs_adopt(fd);
	return (unsigned)fd < (unsigned)sfs_fds_len && load_acquire(&sfs_fds[fd]) > SFS_PRIVATE;
}

/* The file may be a volume's: its agent is waited for before anything is held. */
static void await_agent(int fd, const struct stat *st)
{
	struct sfs_volume *vol = unlikely(sfs.unmet) && S_ISREG(st->st_mode) ? sfs_volume_at(st->st_dev, fd) : NULL;

	/* What else is on the device has not to do with it. */
	if (vol && sfs_volume_connect(vol, fd) == -EAGAIN && sfs_below(vol, fd))
		sfs_volume_await(vol, fd);
}

void sfs_adopt(int fd)
{
	struct sfs_ofd *ofd;
	struct stat st;
	struct sfs_inode *in;
	enum offset offset;
	uint32_t name;
	int flags;

	if ((unsigned)fd >= (unsigned)sfs_fds_len || sys_fstat(fd, &st) < 0)
		return;
	await_agent(fd, &st);
	/* Two threads may use a descriptor for the first time at once. */
	sfs_mutex_lock(&sfs_files.adopt);
	ofd = load_acquire(&sfs_fds[fd]);
	if (ofd != SFS_PRIVATE && !(ofd > SFS_PRIVATE && ofd->inode->dev == st.st_dev && ofd->inode->ino == st.st_ino)) {
		name = sfs_fds_fresh[fd];
		drop(fd);
		flags = name ? sfs_fds_flags[fd] : sys_fcntl(fd, F_GETFL, 0);
		offset = !name ? OFFSET_SHARED : flags >= SFS_FIRST_CALL ? OFFSET_MOVED : OFFSET_NEW;
		if (name)
			flags &= SFS_FIRST_CALL - 1;
		if (flags < 0 || attach(fd, &st, flags, offset, &in) != 1) {
			sfs_fds_know(fd, SFS_FOREIGN);
		} else if (name) {
			sfs_reopen_note(in, name);
			if (name_it(in, fd, flags, &st) < 0)
				in->kernel_only = true; /* whose O_DSYNC writes fail, as the journal has */
		}
	}
	sfs_mutex_unlock(&sfs_files.adopt);
}

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
	if (fd >= sfs_fds_len || (flags & O_PATH) || sfs.nvolumes == 0)
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
 * log nor a service thread.
 */
static bool only_reads(const struct stat *st, int flags)
{
	struct sfs_volume *vol = S_ISREG(st->st_mode) && sfs.nvolumes == 1 ? sfs_volume_of(st->st_dev) : NULL;

	return vol && (flags & (O_ACCMODE | O_CREAT | O_TRUNC | O_PATH | O_DIRECT)) == O_RDONLY && !sfs.grant_first &&
	       load_acquire(&vol->agent.state) == VOL_UNKNOWN && sfs_owners_known(vol);
}

int sfs_openat(int dirfd, const char *path, int flags, mode_t mode)
{
	const bool truncate = truncates_ours(dirfd, path, flags);
	const uint32_t name = sfs_reopen_name(dirfd, path);
	const int how = (truncate ? flags & ~O_TRUNC : flags) | O_LARGEFILE;
	struct sfs_inode *in;
	uint64_t signals;
	struct stat st;
	int fd, r;

	sfs_check_fork();
	fd = sfs_reopen(dirfd, path, flags, name);
	if (fd == SFS_PASS)
		fd = sys_openat(dirfd, path, how, mode);
	while (sfs_numbers_back(fd))
		fd = sys_openat(dirfd, path, how, mode);
	if (fd < 0)
		return fd;
	drop(fd);
	if (!truncate && may_wait(fd, flags)) {
		sfs_fds_opened(fd, name, flags & ~SFS_OPEN_ONLY);
		return fd;
	}
	r = sys_fstat(fd, &st);
	if (r == 0 && fd < sfs_fds_len && only_reads(&st, flags)) {
		sfs_fds_opened(fd, name, flags & ~SFS_OPEN_ONLY);
		return fd;
	}
	if (r == 0 && !(flags & O_PATH))
		await_agent(fd, &st);
	signals = sfs_signals_block();
	if (r == 0)
		r = attach(fd, &st, flags, OFFSET_NEW, &in);
	if (r > 0)
		sfs_reopen_note(in, name);
	if (r == 0 && fd < sfs_fds_len)
		sfs_fds_know(fd, SFS_FOREIGN);
	if (r >= 0 && truncate)
		r = sfs_truncate_open(fd, flags);
	else if (r > 0)
		r = name_it(in, fd, flags, &st);
	sfs_signals_restore(signals);
	if (r < 0) {
		if (sfs_close(fd) == SFS_PASS)
			sys_close(fd);
		return r;
	}
	return fd;
}

int sfs_close(int fd)
{
	struct sfs_ofd *ofd;
	int r = 0, k;

	sfs_check_fork();
	if ((unsigned)fd >= (unsigned)sfs_fds_len)
		return SFS_PASS;
	if (sfs_fd_is_private(fd))
		return -EBADF;
	ofd = __atomic_exchange_n(&sfs_fds[fd], NULL, __ATOMIC_ACQ_REL);
	if (ofd <= SFS_PRIVATE) {
		store_release(&sfs_fds_fresh[fd], 0);
		return SFS_PASS;
	}
	r = ofd_put(ofd);
	k = sys_close(fd);
	return k < 0 ? k : r;
}

void sfs_forget(int fd)
{
	struct sfs_ofd *ofd = sfs_ofd_of(fd);

	if (!ofd)
		return;
	sfs_true_to_look(fd);
	drop(fd);
}

/* The next number, fd or above, of which something may be known; ~0u: there is none. Between the program's and our own is a gap. */
static unsigned next_known(unsigned fd)
{
	const int known = load_acquire(&sfs_fdt.known_max), from = load_acquire(&sfs_fdt.private_min),
		  to = load_acquire(&sfs_fdt.private_max);

	if ((int)fd < 0)
		return ~0u;
	if ((int)fd <= known || ((int)fd >= from && (int)fd <= to))
		return fd;
	return (int)fd < from && from <= to ? (unsigned)from : ~0u;
}

void sfs_replaced(int fd)
{
	drop(fd);
}

int sfs_close_range(unsigned first, unsigned last, unsigned flags)
{
	if (!sfs_fds || first > last || (flags & ~4u) || (flags & 4u)) /* CLOSE_RANGE_CLOEXEC closes nothing now */
		return SFS_PASS;
	for (unsigned fd = next_known(first); fd <= last && fd < (unsigned)sfs_fds_len; fd = next_known(fd + 1)) {
		struct sfs_ofd *ofd = load_acquire(&sfs_fds[fd]);

		if (ofd > SFS_PRIVATE) {
			sfs_close((int)fd);
		} else if (ofd != SFS_PRIVATE) {
			if (sfs_fds_fresh[fd])
				store_release(&sfs_fds_fresh[fd], 0);
			/* It may have become one of ours meanwhile. */
			if (ofd)
				__atomic_compare_exchange_n(&sfs_fds[fd], &ofd, NULL, false, __ATOMIC_ACQ_REL,
							    __ATOMIC_RELAXED);
		}
	}
	return sfs_close_all_but_ours(first, last);
}

/* fd `copy` was just made a duplicate of fd by the kernel. */
static void share(int fd, int copy)
{
	struct sfs_ofd *ofd = (unsigned)fd < (unsigned)sfs_fds_len ? load_acquire(&sfs_fds[fd]) : NULL;

	if (copy >= sfs_fds_len)
		return;
	drop(copy);
	if (ofd > SFS_PRIVATE) {
		sfs_mutex_lock(&sfs_files.lock);
		ofd->refs++;
		sfs_mutex_unlock(&sfs_files.lock);
	}
	sfs_fds_enter(copy, ofd);
}

int sfs_dup(int fd)
{
	int copy;

	sfs_ours(fd);
	do
		copy = (int)sys_call1(SYS_dup, fd);
	while (sfs_numbers_back(copy));
	if (copy >= 0)
		share(fd, copy);
	return copy;
}

int sfs_dup3(int fd, int newfd, int flags)
{
	int r;

	sfs_ours(fd);
	if (sfs_fd_is_private(newfd) && !sfs_number_give_up(newfd))
		return -EBADF;
	r = (int)sys_call3(SYS_dup3, fd, newfd, flags);
	if (r >= 0)
		share(fd, newfd);
	return r;
}

int sfs_fcntl(int fd, int cmd, long arg)
{
	struct sfs_ofd *ofd = sfs_ofd_of(fd);
	struct sfs_locking locking;
	int r;

	if (cmd == F_SETLK || cmd == F_SETLKW || cmd == F_OFD_SETLK || cmd == F_OFD_SETLKW) {
		r = sfs_true_to_lock(fd, &locking); /* a lock is where another process looks */
		if (r == 0) {
			r = sys_fcntl(fd, cmd, arg);
			sfs_lock_over(fd, &locking);
		}
		return r;
	}
	if (cmd == F_SETLEASE)
		return sfs_setlease(fd, (int)arg);
	do
		r = sys_fcntl(fd, cmd, arg);
	while ((cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC) && sfs_numbers_back(r));
	if (r < 0)
		return r;
	switch (cmd) {
	case F_DUPFD:
	case F_DUPFD_CLOEXEC:
		share(fd, r);
		break;
	case F_SETFL:
		if (ofd)
			ofd->flags = (ofd->flags & ~SETFL) | (int)(arg & SETFL);
		break;
	}
	return r;
}
