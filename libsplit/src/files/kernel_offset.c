/* SPDX-License-Identifier: Apache-2.0 */
#include "files/kernel_offset.h"

#include "base/sys.h"
#include "files/unheld.h"
#include "lease/ask.h"

#define DRAIN_YIELDS 50
#define DRAIN_TRIES  5000 /* at least a quarter of a second: with fewer cores than threads a call takes its time */

static bool may_be_ours(struct sfs_ofd *ofd)
{
	if (__atomic_load_n(&ofd->uncounted, __ATOMIC_SEQ_CST) == UNCOUNTED_NO || sfs_one_thread())
		return true;
	__atomic_store_n(&ofd->uncounted, UNCOUNTED_KEPT, __ATOMIC_RELAXED);
	return false;
}

/*
 * ofd.lock held, signals blocked. Calls of other threads that use the kernel's offset are counted, and there are none; those that come now wait for
 * the end of SFS_OFF_MOVES. One that is in no count has said so before it looked.
 */
static void take_locked(struct sfs_ofd *ofd, const struct sfs_inode *in, int fd)
{
	uint32_t idle = SFS_OFF_LAZY;
	off_t off = -1;

	if (!sfs_fd_still(fd, ofd, in) || !sfs_inode_served(in) ||
	    !__atomic_compare_exchange_n(&ofd->lazy, &idle, SFS_OFF_LAZY | SFS_OFF_MOVES, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_RELAXED))
		return;
	/* One of the first calls (files/first.c) may be going to move it: of another thread, or the one that a handler has interrupted. */
	if (likely(__atomic_load_n(&sfs_fds_calls[fd], __ATOMIC_SEQ_CST) == 0))
		off = may_be_ours(ofd) ? sys_lseek(fd, 0, SEEK_CUR) : -1;
	if (off >= 0) {
		__atomic_store_n(&ofd->off, off, __ATOMIC_RELAXED);
		__atomic_store_n(&ofd->kernel_off, false, __ATOMIC_SEQ_CST);
	}
	__atomic_and_fetch(&ofd->lazy, off < 0 ? ~SFS_OFF_MOVES : ~(SFS_OFF_LAZY | SFS_OFF_MOVES), __ATOMIC_SEQ_CST);
}

void sfs_offset_take(struct sfs_ofd *ofd, int fd)
{
	struct sfs_inode *in = ofd->inode;
	uint64_t signals, *op;

	if (likely(!(__atomic_load_n(&ofd->lazy, __ATOMIC_RELAXED) & SFS_OFF_LAZY)) || !sfs_inode_served(in) ||
	    __atomic_load_n(&ofd->uncounted, __ATOMIC_RELAXED) == UNCOUNTED_KEPT || !sfs_op_begin(in, &op))
		return;
	signals = sfs_signals_block(); /* a handler would wait for the end of SFS_OFF_MOVES */
	sfs_mutex_take(&ofd->lock);
	take_locked(ofd, in, fd);
	sfs_mutex_drop(&ofd->lock);
	sfs_signals_restore(signals);
	sfs_op_end(op);
}

static int ask(struct sfs_ofd *ofd, int fd)
{
	struct sfs_inode *in = ofd->inode;
	uint64_t *op;
	int r = 0;

	if (!sfs_unheld(in) || !sfs_op_begin(in, &op))
		return 0;
	sfs_inode_lock(in);
	if (sfs_fd_still(fd, ofd, in))
		r = sfs_inode_ready(in, fd, ofd->flags);
	sfs_inode_unlock(in);
	sfs_op_end(op);
	return r == SFS_TURN ? r : 0; /* what else is wrong is found again */
}

int sfs_offset_own(struct sfs_ofd *ofd, int fd)
{
	int r;

	if (likely(!(__atomic_load_n(&ofd->lazy, __ATOMIC_RELAXED) & SFS_OFF_LAZY)))
		return 0;
	do
		r = ask(ofd, fd);
	while (r == SFS_TURN && (r = sfs_turn_wait(ofd->inode)) == 0);
	sfs_offset_take(ofd, fd);
	return r;
}

bool sfs_kernel_offset_is(struct sfs_ofd *ofd)
{
	while (unlikely(__atomic_add_fetch(&ofd->lazy, 1, __ATOMIC_SEQ_CST) & SFS_OFF_MOVES)) {
		sfs_kernel_offset_end(ofd);
		sys_call0(SYS_sched_yield);
	}
	if (likely(__atomic_load_n(&ofd->kernel_off, __ATOMIC_SEQ_CST)))
		return true;
	sfs_kernel_offset_end(ofd);
	return false;
}

bool sfs_kernel_offset_uncounted(struct sfs_ofd *ofd)
{
	if (!__atomic_load_n(&ofd->kernel_off, __ATOMIC_SEQ_CST))
		return false;
	if (__atomic_load_n(&ofd->uncounted, __ATOMIC_RELAXED) == UNCOUNTED_NO)
		__atomic_store_n(&ofd->uncounted, UNCOUNTED_YES, __ATOMIC_SEQ_CST);
	while (unlikely(__atomic_load_n(&ofd->lazy, __ATOMIC_SEQ_CST) & SFS_OFF_MOVES))
		sys_call0(SYS_sched_yield);
	return __atomic_load_n(&ofd->kernel_off, __ATOMIC_SEQ_CST);
}

bool sfs_kernel_offset(struct sfs_ofd *ofd, int fd)
{
	struct sfs_inode *in = ofd->inode;
	uint64_t *op;
	bool is;

	if (likely(sfs_kernel_offset_is(ofd)))
		return true;
	__atomic_add_fetch(&ofd->lazy, 1, __ATOMIC_SEQ_CST);
	if (!sfs_op_begin(in, &op)) {
		sfs_kernel_offset_end(ofd);
		return false;
	}
	/* Whoever has begun with the offset as ours looks again, under this lock, before moving it. */
	sfs_mutex_take(&ofd->lock);
	is = sfs_fd_still(fd, ofd, in);
	if (is && !ofd->kernel_off) {
		sys_lseek(fd, ofd->off, SEEK_SET);
		sfs_offset_lazy(ofd, true);
		__atomic_store_n(&ofd->kernel_off, true, __ATOMIC_SEQ_CST);
	}
	sfs_mutex_drop(&ofd->lock);
	sfs_op_end(op);
	if (!is)
		sfs_kernel_offset_end(ofd);
	return is;
}

void sfs_kernel_offset_end(struct sfs_ofd *ofd)
{
	uint32_t lazy = __atomic_load_n(&ofd->lazy, __ATOMIC_RELAXED);

	/* In the child of a handler's fork the call that it interrupted is in no count. */
	while ((lazy & SFS_OFF_CALLS) &&
	       !__atomic_compare_exchange_n(&ofd->lazy, &lazy, lazy - 1, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
}

/* Is a call that the kernel makes by a descriptor of the file under way? *own: this thread is in the middle of one. */
static bool busy(const struct sfs_ofd *ofd, struct sfs_inode *in, bool *own)
{
	bool some = (__atomic_load_n(&ofd->lazy, __ATOMIC_SEQ_CST) & SFS_OFF_CALLS) ||
		    (load_acquire(&in->vol->claims) && sfs_claim_named(in->vol, in->ino));
	uint64_t *op;

	*own = !sfs_op_begin(in, &op);
	if (*own)
		return some;
	sfs_inode_take(in);
	some = some || in->by_kernel > 0;
	sfs_inode_drop(in);
	sfs_op_end(op);
	return some;
}

void sfs_kernel_offset_drain(struct sfs_ofd *ofd)
{
	struct sfs_inode *in = ofd->inode;
	bool own;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (int n = 0; n < DRAIN_TRIES && unlikely(busy(ofd, in, &own)) && !own; n++)
		sys_back_off(n, DRAIN_YIELDS);
}

void sfs_offset_lazy(struct sfs_ofd *ofd, bool yes)
{
	if (yes)
		__atomic_or_fetch(&ofd->lazy, SFS_OFF_LAZY, __ATOMIC_SEQ_CST);
	else
		__atomic_and_fetch(&ofd->lazy, ~SFS_OFF_LAZY, __ATOMIC_SEQ_CST);
}
