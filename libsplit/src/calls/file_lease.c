/* SPDX-License-Identifier: Apache-2.0 */
/* F_SETLEASE: what is in the way of a lease that need not be goes, and the kernel decides (files/leased.h). */
#include "files/leased.h"

#include <errno.h>

#include "base/sys.h"
#include "calls/calls.h"
#include "io/io.h"
#include "lease/ask.h"

/*
 * The agent has descriptors of a file for an instant: of programs without the library that open or close it, and those
 * that a client which has gone since has sent. Who is refused for good pays for these tries.
 */
#define TRIES  5
#define NAP_NS 500000l /* before the second; before each other one twice as long as before the last */

/* Nothing is staged, no snapshot shows the file's own memory, nothing of ours has it open. Lock held; as sfs_flush(). */
static int give_up(struct sfs_inode *in)
{
	int r = sfs_flush(in, SFS_RETIRE);

	if (r == 0)
		r = sfs_pins_save_all(&in->pins);
	if (r == 0)
		sfs_lease_set(in);
	return r;
}

static int begin(struct sfs_ofd *ofd, int fd)
{
	struct sfs_inode *in = ofd->inode;
	uint64_t *op;
	int r;

	if (!sfs_op_begin(in, &op))
		return -EDEADLK;
	do {
		sfs_inode_lock(in);
		if (load_acquire(&sfs_fds[fd]) == ofd && ofd->inode == in)
			r = give_up(in);
		else
			r = -EBADF; /* closed by another thread meanwhile */
		sfs_inode_unlock(in);
	} while (r == -EAGAIN && (r = sfs_checkpoint(in->vol, true)) == 0);
	sfs_op_end(op);
	return r;
}

/* The lease was refused, or has been given up: is the file ours to serve again? */
static void end(struct sfs_ofd *ofd, int fd)
{
	struct sfs_inode *in = ofd->inode;
	uint64_t *op;

	/* In a handler that has interrupted a call on the file the next call looks. */
	if (!in->leased || !sfs_op_begin(in, &op))
		return;
	sfs_inode_lock(in);
	sfs_lease_look(in, fd);
	sfs_inode_unlock(in);
	sfs_op_end(op);
}

/*
 * Other processes with the library may have a descriptor of their own of a file that their programs have closed. Whoever
 * does not answer may have it open: the kernel knows.
 */
static void ask_others(struct sfs_inode *in, int fd)
{
	struct sfs_volume *vol = in->vol;

	sfs_volume_await(vol, fd);
	sfs_volume_connect(vol, fd);
	if (load_acquire(&vol->owners))
		sfs_ask(vol, &in->grant, in->ino, SFS_LOOK_CHANGE);
}

int sfs_setlease(int fd, int type)
{
	struct sfs_ofd *ofd = sfs_ofd_of(fd);
	int r;

	if (!ofd || (type != F_RDLCK && type != F_WRLCK)) {
		r = sys_fcntl(fd, F_SETLEASE, type);
		if (ofd)
			end(ofd, fd);
		return r;
	}
	r = begin(ofd, fd);
	if (r < 0)
		return r;
	for (int n = 0; n < TRIES; n++) {
		if (n > 0)
			sys_nap(NAP_NS << (n - 1));
		ask_others(ofd->inode, fd);
		r = sys_fcntl(fd, F_SETLEASE, type);
		if (r != -EAGAIN)
			break;
	}
	if (r < 0)
		end(ofd, fd);
	return r;
}
