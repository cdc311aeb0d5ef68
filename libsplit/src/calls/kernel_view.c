/* SPDX-License-Identifier: Apache-2.0 */
/* Handing a file to the kernel for a call that we do not serve: its view is made true before, and looked at afterwards. */
#include <errno.h>

#include "base/sys.h"
#include "files/kernel_offset.h"
#include "files/unheld.h"
#include "io/io.h"
#include "calls/calls.h"
#include "io/call.h"

static int publish_marked(struct sfs_inode *in)
{
	uint64_t *op;
	int r;

	/* In a signal handler: the call that it interrupted is not complete, and may never be. */
	if (!(sfs_inode_pending(in) || in->touched) || !sfs_op_begin(in, &op))
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
	if (!sfs_any_granted())
		return;
	for (int i = 0; i < sfs.nvolumes; i++)
		if (sfs.volumes[i].agent.state == VOL_READY)
			sfs_inodes_each(&sfs.volumes[i], all_true_one, NULL);
}

/* The kernel's offset is the file's; forever: and stays so. moves: the call that follows may move it, and is in no count. */
static void push_offset(struct sfs_ofd *ofd, int fd, bool forever, bool moves)
{
	if (moves)
		sfs_kernel_offset_uncounted(ofd);
	sfs_mutex_lock(&ofd->lock);
	if (load_acquire(&sfs_fds[fd]) == ofd && !ofd->kernel_off) {
		sys_lseek(fd, ofd->off, SEEK_SET);
		ofd->pushed = ofd->off;
		ofd->pushes++;
	}
	if (forever) {
		sfs_offset_lazy(ofd, false);
		ofd->kernel_off = true;
	}
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
	if (forever && in->fd < 0 && in->vol->owners)
		sfs_server_kernel(&in->server);
	r = sfs_server_is_kernel(&in->server) ? sfs_inode_generation(in, fd) : 0;
	/* Another process may have it staged: taking part in the delegation makes that one relink. */
	if (r == 0)
		r = sfs_inode_ready(in, fd, flags);
	if (r == 0 && changes)
		r = sfs_untold_change(in);
	if (r == 0)
		r = sfs_flush(in, SFS_RETIRE);
	if ((r == 0 || r == -EAGAIN) && changes) {
		const int saved = sfs_pins_save_all(&in->pins);

		r = saved < 0 ? saved : r;
	}
	in->kdirty = true;
	if (forever && (r == 0 || r == -EAGAIN))
		sfs_server_kernel(&in->server);
	sfs_inode_unlock(in);
	return r == -EAGAIN ? sfs_checkpoint(in->vol, true) : r;
}

/* *turn: the inode, where its turn is to be waited for. */
static int give_up_known(dev_t dev, ino_t ino, struct sfs_inode **turn)
{
	const uint64_t signals = sfs_signals_block(); /* a handler that jumps must not take the reference with it */
	struct sfs_inode *in = sfs_inode_ref(dev, ino);
	int r = SFS_UNKNOWN, fd;
	uint64_t *op;

	fd = in ? sfs_inode_fd(in) : -1;
	/* Without a descriptor it is as if it had never been open here: others may have it staged. */
	if (fd >= 0 && sfs_op_begin(in, &op)) {
		r = make_inode_true(in, fd, O_RDONLY, true, true);
		if (r == SFS_GONE)
			r = SFS_UNKNOWN;
		sfs_op_end(op);
	} else if (fd >= 0) {
		r = -EDEADLK;
	}
	*turn = in;
	if (in)
		sfs_inode_put(in);
	sfs_signals_restore(signals);
	return r;
}

int sfs_give_up_known(dev_t dev, ino_t ino)
{
	struct sfs_inode *in;
	int r;

	sfs_check_fork();
	do
		r = give_up_known(dev, ino, &in);
	while (r == SFS_TURN && (r = sfs_turn_wait(in)) == 0);
	return r;
}

/* What the call that follows does. */
enum then {
	THEN_CHANGES,	   /* it may change bytes of the file */
	THEN_CHANGES_EVER, /* so may others that are not seen, from then on */
	THEN_ASKS,	   /* it changes none, moves no offset, and is worth a grant */
	THEN_LOOKS,	   /* it changes none, and asks for no grant */
	THEN_LOCKS,	   /* the same, and it moves no offset */
};

static int try_to_make_true(struct sfs_ofd *ofd, int fd, enum then then)
{
	const bool forever = then == THEN_CHANGES_EVER, moves = then != THEN_ASKS && then != THEN_LOCKS;
	struct sfs_inode *in = ofd->inode;
	uint64_t *op;
	bool looks;
	int r;

	looks = (then == THEN_LOOKS || then == THEN_LOCKS) && sfs_unheld(in);
	if (looks) {
		r = sfs_unheld_look(in);
		if (r < 0 || (moves ? sfs_kernel_offset_uncounted(ofd) : ofd->kernel_off))
			return r;
	}
	if (!sfs_op_begin(in, &op))
		return -EDEADLK;
	r = looks ? 0 : make_inode_true(in, fd, ofd->flags, forever, then == THEN_CHANGES || forever);
	if (r != SFS_TURN)
		push_offset(ofd, fd, forever, moves);
	sfs_op_end(op);
	return r;
}

static int make_true(int fd, enum then then)
{
	for (;;) {
		struct sfs_ofd *ofd = sfs_ofd_of(fd);
		int r = ofd ? try_to_make_true(ofd, fd, then) : 0;

		if (sfs_gone(r, fd))
			continue;
		if (r != SFS_TURN)
			return r;
		r = sfs_turn_wait(ofd->inode);
		/* mmap and its like know no EINTR: the handler has run, and they go on. */
		if (r < 0 && then != THEN_CHANGES_EVER)
			return r;
	}
}

int sfs_make_true(int fd, bool forever)
{
	return make_true(fd, forever ? THEN_CHANGES_EVER : THEN_CHANGES);
}

/* From here to change_end() no snapshot of the file is taken, and nothing staged; there is none whose bytes are the file's. */
static int change_begin(struct sfs_inode *in, const struct sfs_ofd *ofd, int fd, struct sfs_change *c)
{
	uint64_t *op;
	int r;

	if (!sfs_op_begin(in, &op))
		return -EDEADLK;
	c->in = sfs_inode_ref(in->dev, in->ino);
	sfs_inode_take(in);
	r = c->in == in && sfs_fd_still(fd, ofd, in) ? sfs_pins_save_all(&in->pins) : SFS_GONE;
	/* Whoever stages now would carry bytes that are about to change, and relink them over those. */
	if (r == 0) {
		in->changing++;
		sfs_flights_void(in);
	}
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

static int true_to_change(const struct sfs_ofd *ofd, struct sfs_inode *in, int fd, struct sfs_change *c)
{
	int r = 0;

	if (sfs_unheld(in))
		r = sfs_true_to_look(fd); /* the offset is the kernel's then */
	if (r == 0)
		r = sfs_unheld_claim(in, ofd, fd, &c->claim);
	if (r != SFS_PASS)
		return r;
	/* Nothing is staged from then on, so what is made true stays so. */
	r = change_begin(in, ofd, fd, c);
	if (r < 0)
		return r;
	r = sfs_make_true(fd, false);
	if (r >= 0 && !sfs_fd_still(fd, ofd, in))
		r = SFS_GONE;
	if (r < 0) {
		change_end(in);
		c->in = NULL;
	}
	return r;
}

int sfs_true_to_change(int fd, struct sfs_change *c)
{
	const struct sfs_ofd *ofd;
	int r;

	do {
		*c = (struct sfs_change){0};
		ofd = sfs_ofd_of(fd);
		r = ofd ? true_to_change(ofd, ofd->inode, fd, c) : 0;
	} while (sfs_gone(r, fd));
	return r;
}

/* What the mode promises of a call that has returned. */
static int force(int fd)
{
	const struct sfs_ofd *ofd = sfs_ofd_of(fd);

	return ofd && sfs_volume_durable(ofd->inode->vol) ? sys_fsync(fd) : 0;
}

int sfs_change_over(int fd, struct sfs_change *c, bool made)
{
	const int r = made ? force(fd) : 0;

	sfs_unclaim(&c->claim);
	if (c->in)
		change_end(c->in);
	sfs_changed(fd);
	return r;
}

int sfs_true_to_look(int fd)
{
	return make_true(fd, THEN_LOOKS);
}

/*
 * by: what the calls are more that may take one. No reference is kept: a handler may jump out of F_SETLKW. Then the count is too high until the
 * inode goes, which only means that the file keeps its descriptor.
 */
static void count_locking(const struct sfs_locking *l, int by, bool locked)
{
	struct sfs_inode *in = l->in;
	uint64_t *op;

	if (!in || !sfs_op_begin(in, &op))
		return;
	sfs_inode_take(in);
	if (in->ino == l->ino && (by >= 0 || in->locking > 0)) {
		in->locking += (uint32_t)by;
		in->locked = in->locked || locked;
	}
	sfs_inode_drop(in);
	sfs_op_end(op);
}

int sfs_true_to_lock(int fd, struct sfs_locking *l)
{
	struct sfs_ofd *ofd = sfs_ofd_of(fd);
	int r;

	*l = (struct sfs_locking){0};
	if (!ofd)
		return 0;
	/* A descriptor of ours is not to go before the lock is there, and one that is opened now comes before it: so it is `locked` afterwards. */
	*l = (struct sfs_locking){ofd->inode, ofd->inode->ino};
	count_locking(l, 1, false);
	r = make_true(fd, sfs_kernel_may_write(ofd->inode->vol) ? THEN_LOCKS : THEN_ASKS);
	if (r < 0)
		count_locking(l, -1, false);
	else
		count_locking(l, 0, true);
	return r;
}

void sfs_lock_over(int fd, const struct sfs_locking *l)
{
	count_locking(l, -1, false);
	sfs_changed(fd);
}

/*
 * The kernel's offset is the file's where the call has moved it. Otherwise ours is, which other threads may have moved meanwhile; and of a description that
 * the number leads to only since then the kernel's is nothing.
 */
static void pull_offset(struct sfs_ofd *ofd, int fd)
{
	off_t off;

	if (ofd->pushes == 0)
		return;
	ofd->pushes--;
	off = sys_lseek(fd, 0, SEEK_CUR);
	if (off >= 0 && off != ofd->pushed)
		ofd->off = ofd->pushed = off;
}

void sfs_changed(int fd)
{
	struct sfs_ofd *ofd = sfs_ofd_of(fd);
	struct sfs_inode *in;
	uint64_t *op;

	if (!ofd || (sfs_unheld(ofd->inode) && ofd->kernel_off) || !sfs_op_begin(ofd->inode, &op))
		return;
	in = ofd->inode;
	sfs_inode_lock(in);
	if (in->life == LIFE_READY)
		sfs_inode_reload(in);
	sfs_inode_unlock(in);
	sfs_mutex_lock(&ofd->lock);
	if (load_acquire(&sfs_fds[fd]) == ofd && !ofd->kernel_off)
		pull_offset(ofd, fd);
	sfs_mutex_unlock(&ofd->lock);
	sfs_op_end(op);
}

int sfs_inode_publish_last(struct sfs_inode *in)
{
	/* A later fsync is to commit the name or the attribute. */
	in->kdirty = true;
	in->park.age = SFS_AGE_OLD;
	return publish_marked(in);
}

int sfs_make_path_true(int dirfd, const char *path, int at_flags)
{
	struct stat st;
	struct sfs_inode *in;
	uint64_t signals;
	int r = 0;

	sfs_check_fork();
	if (!sfs_any_granted() || sys_fstatat(dirfd, path, &st, at_flags & (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)) < 0)
		return 0;
	signals = sfs_signals_block();
	in = sfs_inode_ref(st.st_dev, st.st_ino);
	if (in) {
		r = sfs_inode_publish_last(in);
		sfs_inode_put(in);
	}
	sfs_signals_restore(signals);
	return r;
}
