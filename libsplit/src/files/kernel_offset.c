/* SPDX-License-Identifier: Apache-2.0 */
#include "files/kernel_offset.h"

#include "base/sys.h"
#include "files/unheld.h"

static void take_locked(struct sfs_ofd *ofd, int fd)
{
	uint32_t idle = SFS_OFF_LAZY;
	off_t off;

	/* A call of another thread may be under way that has begun with the offset where it is. */
	if (!sfs_inode_served(ofd->inode) || !sfs_one_thread() ||
	    __atomic_load_n(&sfs_files.first_reads, __ATOMIC_SEQ_CST) > 0 ||
	    !__atomic_compare_exchange_n(&ofd->lazy, &idle, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		return;
	off = sys_lseek(fd, 0, SEEK_CUR);
	if (off < 0)
		return;
	__atomic_store_n(&ofd->off, off, __ATOMIC_RELAXED);
	store_release(&ofd->kernel_off, false);
}

void sfs_offset_take(struct sfs_ofd *ofd, int fd)
{
	uint64_t *op;

	if (likely(!(__atomic_load_n(&ofd->lazy, __ATOMIC_RELAXED) & SFS_OFF_LAZY)) || !sfs_inode_served(ofd->inode) ||
	    !sfs_op_begin(ofd->inode, &op))
		return;
	sfs_mutex_take(&ofd->lock);
	take_locked(ofd, fd);
	sfs_mutex_drop(&ofd->lock);
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
	if (load_acquire(&sfs_fds[fd]) == ofd && ofd->inode == in)
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

bool sfs_kernel_offset(struct sfs_ofd *ofd, int fd)
{
	uint64_t *op;

	__atomic_add_fetch(&ofd->lazy, 1, __ATOMIC_SEQ_CST);
	if (likely(__atomic_load_n(&ofd->kernel_off, __ATOMIC_SEQ_CST)))
		return true;
	if (!sfs_one_thread() || !sfs_op_begin(ofd->inode, &op)) {
		__atomic_sub_fetch(&ofd->lazy, 1, __ATOMIC_SEQ_CST);
		return false;
	}
	sfs_mutex_take(&ofd->lock);
	if (!ofd->kernel_off) {
		sys_lseek(fd, ofd->off, SEEK_SET);
		__atomic_or_fetch(&ofd->lazy, SFS_OFF_LAZY, __ATOMIC_SEQ_CST);
		__atomic_store_n(&ofd->kernel_off, true, __ATOMIC_SEQ_CST);
	}
	sfs_mutex_drop(&ofd->lock);
	sfs_op_end(op);
	return true;
}

void sfs_kernel_offset_end(struct sfs_ofd *ofd)
{
	__atomic_sub_fetch(&ofd->lazy, 1, __ATOMIC_SEQ_CST);
}
