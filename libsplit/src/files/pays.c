/* SPDX-License-Identifier: Apache-2.0 */
#include "files/pays.h"

#include <string.h>

#include "base/sys.h"
#include "files/forces.h"
#include "files/leased.h"
#include "lease/ask.h"
#include "lease/pays_rule.h"

#define REFUSED_MAX 10u /* what was refused, or had to be given back, is asked for again after twice as many calls */

static struct sfs_pays volume(const struct sfs_inode *in)
{
	return (struct sfs_pays){
		.dax = in->vol->dax, .copies = in->vol->provider == RELINK_COPY, .forces = sfs_forces_expected(in->vol)};
}

int sfs_inode_try(struct sfs_inode *in)
{
	int r = SFS_BUSY;

	sfs_asking_begin(in);
	if (!in->vol->claims || !sfs_claimed_here(in->vol, in->ino))
		r = sfs_agent_try(in->vol, &in->grant, in->ino, in->gen, in->fd);
	if (r == 1) {
		sfs_inode_reload(in);
		if (in->life != LIFE_READY)
			sfs_life_set(&in->life, LIFE_READY);
		in->kdirty = true; /* what this process and others have done meanwhile */
	}
	sfs_asking_end(in);
	return r;
}

/* inode.lock held exclusively, signals blocked. */
static bool try_locked(struct sfs_inode *in, int fd, int flags)
{
	sfs_lease_look(in, fd);
	if (sfs_grant_deleg(&in->grant) != SFS_DELEG_NONE || sfs_by_kernel(in) || in->life == LIFE_LOST || in->locked ||
	    sfs.no_staging)
		return false;
	if (sfs_inode_own(in, fd, flags) < 0 || in->fd < 0 || sfs_by_kernel(in))
		return false;
	return sfs_inode_try(in) == 1;
}

/* Signals are blocked while the agent answers, which it does at once. */
static bool try(struct sfs_ofd *ofd, struct sfs_inode *in, int fd)
{
	const uint64_t signals = sfs_signals_block();
	bool granted = false;
	uint64_t *op;
	int64_t now;

	if (in->vol->claims && load_acquire(&in->vol->agent.state) == VOL_READY && sfs_op_begin(in, &op)) {
		sfs_inode_lock(in);
		if (sfs_fd_still(fd, ofd, in))
			granted = try_locked(in, fd, ofd->flags);
		sfs_inode_unlock(in);
		sfs_op_end(op);
	}
	now = sys_now_s();
	if (now > in->unheld.tried + 1)
		in->unheld.refused = 0;
	else if (in->unheld.refused < REFUSED_MAX)
		in->unheld.refused++;
	in->unheld.tried = now;
	in->unheld.waits = SFS_WRITES_MIN << in->unheld.refused;
	in->unheld.writes = in->unheld.reads = in->unheld.forced = 0;
	in->unheld.written = in->unheld.read = 0;
	sfs_signals_restore(signals);
	return granted;
}

/* One more call that a grant may save. */
static bool waits(struct sfs_inode *in)
{
	if (in->unheld.waits == 0)
		return false;
	in->unheld.waits--;
	return true;
}

bool sfs_grant_pays(struct sfs_ofd *ofd, int fd, bool writes)
{
	struct sfs_inode *in = ofd->inode;
	const struct sfs_pays vol = volume(in);
	const bool early = writes && vol.forces && in->unheld.forced < SFS_FORCED_MIN;

	if (likely(!(writes ? sfs_writes_pay(&in->unheld, vol) : sfs_reads_pay(&in->unheld, vol))) || waits(in) ||
	    !try(ofd, in, fd))
		return false;
	if (early) {
		sfs_forces_note(in->vol, 1, 0);
		in->unheld.expected = 1;
	}
	return true;
}
