/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for other processes to give up a file. The agent says when: SFS_MSG_TURN (format/proto.h). */
#include <errno.h>
#include <linux/futex.h>

#include "base/sys.h"
#include "files/inode.h"

void sfs_turn_begin(struct sfs_inode *in)
{
	/* Before the question: the answer that its turn has come may overtake the one that it is to wait. */
	__atomic_store_n(&in->awaited, 1, __ATOMIC_SEQ_CST);
}

int sfs_turn_wait(struct sfs_inode *in)
{
	/* Without a time limit, so that the kernel goes on with the wait after a handler with SA_RESTART. */
	if (load_acquire(&in->awaited) &&
	    sys_call4(SYS_futex, (long)&in->awaited, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 1, 0) == -EINTR)
		return -EINTR;
	sfs_check_fork();
	return 0;
}

void sfs_turn_come(struct sfs_inode *in)
{
	if (__atomic_exchange_n(&in->awaited, 0, __ATOMIC_SEQ_CST))
		sys_call3(SYS_futex, (long)&in->awaited, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT32_MAX);
}

void sfs_turn_told(dev_t dev, ino_t ino)
{
	struct sfs_inode *in = sfs_inode_ref(dev, ino);

	if (!in)
		return;
	sfs_turn_come(in);
	sfs_inode_put(in);
}
