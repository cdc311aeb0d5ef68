/* SPDX-License-Identifier: Apache-2.0 */
/* F_SETLEASE: what is in the way of a lease that need not be goes, and the kernel decides (files/leased.h). */
#include "files/leased.h"

#include <errno.h>

#include "base/sys.h"
#include "calls/calls.h"
#include "io/call.h"
#include "io/io.h"
#include "lease/ask.h"

/*
 * The agent has descriptors of a file for an instant: of programs without the library that open or close it, and those
 * that a client which has gone since has sent. Who is refused for good pays for these tries.
 */
#define TRIES  7
#define NAP_NS 500000l /* before the second; before each other one twice as long as before the last */

/* Nothing is staged, no snapshot shows the file's own memory, nothing of ours has it open. Lock held; as sfs_flush(). */
static int give_up(struct sfs_inode *in)
{
	int r = sfs_flush(in, SFS_RETIRE);

	if (r == 0)
		r = sfs_pins_save_all(&in->pins);
	if (r == 0)
		sfs_lease_ask(in);
	return r;
}

static int begin(struct sfs_ofd *ofd, struct sfs_inode *in, int fd)
{
	uint64_t *op;
	int r;

	if (!sfs_op_begin(in, &op))
		return -EDEADLK;
	do {
		sfs_inode_lock(in);
		if (sfs_fd_still(fd, ofd, in))
			r = give_up(in);
		else
			r = SFS_GONE;
		sfs_inode_unlock(in);
	} while (r == -EAGAIN && (r = sfs_checkpoint(in->vol, true)) == 0);
	sfs_op_end(op);
	return r;
}

/* The kernel has answered, or the lease has been given up: is the file ours to serve again? */
static void end(struct sfs_inode *in, ino_t ino, int fd, bool asked)
{
	uint64_t *op;

	/* In a handler that has interrupted a call on the file the next call looks. */
	if (!sfs_server_is_leased(&in->server) || !sfs_op_begin(in, &op))
		return;
	sfs_inode_lock(in);
	if (in->ino == ino) {
		if (asked)
			sfs_lease_asked(in);
		sfs_lease_look(in, fd);
	}
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

/* As the kernel says, when all who can have stepped back. */
static int ask(struct sfs_inode *in, int fd, int type)
{
	int r = -EAGAIN;

	for (int n = 0; n < TRIES && r == -EAGAIN; n++) {
		if (n > 0)
			sys_nap(NAP_NS << (n - 1));
		ask_others(in, fd);
		r = sys_fcntl(fd, F_SETLEASE, type);
	}
	return r;
}

static int set(int fd, int type)
{
	struct sfs_ofd *ofd = sfs_ofd_of(fd);
	struct sfs_inode *in = ofd ? ofd->inode : NULL;
	const bool asks = in && (type == F_RDLCK || type == F_WRLCK);
	const ino_t ino = in ? in->ino : 0;
	int r = asks ? begin(ofd, in, fd) : 0;

	if (r < 0)
		return r;
	r = asks ? ask(in, fd, type) : sys_fcntl(fd, F_SETLEASE, type);
	if (in)
		end(in, ino, fd, asks);
	return r;
}

int sfs_setlease(int fd, int type)
{
	int r;

	do
		r = set(fd, type);
	while (sfs_gone(r, fd));
	return r;
}
