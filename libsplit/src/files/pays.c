/* SPDX-License-Identifier: Apache-2.0 */
#include "files/pays.h"

#include <string.h>
#include <time.h>

#include "base/sys.h"
#include "lease/ask.h"

/*
 * When does a grant pay? It costs a message, a descriptor, a mapping and for the first file of a process a staging file, together about
 * as much as this many calls of the kernel. What was refused, or had to be given back, is asked for again after twice as many.
 */
#define WRITES_MIN   8u
#define WRITTEN_MIN  (64u << 10)
#define WRITES_MANY  64u
#define READS_MIN    16u
#define READ_MIN     (256u << 10)
#define READS_MANY   128u
#define FORCED_MIN   3u	   /* on persistent memory, where our fsync is cheaper than the kernel's */
#define FORCED_PART  16u   /* elsewhere: with an fsync after fewer writes than that the file stays the kernel's */
#define LARGE_MOVED  4096u /* bytes of the average write */
#define LARGE_COPIED 32768u
#define REFUSED_MAX  10u

/* Where our fsync is the kernel's with a relink before it. */
static bool forced_often(const struct sfs_inode *in)
{
	return !in->vol->dax && (uint64_t)in->unheld.forced * FORCED_PART > in->unheld.writes;
}

/*
 * Without DAX the kernel's copy into its page cache is as fast as ours to a staging file; and blocks that were moved by reflink are not in the
 * cache, so that whoever reads them waits for the device.
 */
static bool large_writes(const struct sfs_inode *in)
{
	const uint64_t large = in->vol->provider == RELINK_COPY ? LARGE_COPIED : LARGE_MOVED;

	return !in->vol->dax && in->unheld.written >= in->unheld.writes * large;
}

static bool writes_pay(const struct sfs_inode *in)
{
	const struct sfs_unheld *u = &in->unheld;

	if (in->vol->dax && u->forced >= FORCED_MIN)
		return true;
	if (forced_often(in) || large_writes(in))
		return false;
	return u->writes >= WRITES_MANY || (u->writes >= WRITES_MIN && u->written >= WRITTEN_MIN);
}

static bool reads_pay(const struct sfs_inode *in)
{
	const struct sfs_unheld *u = &in->unheld;

	/* A checkpoint of a database reads its whole log at once, and goes on writing and forcing it. */
	return !forced_often(in) && (u->reads >= READS_MANY || (u->reads >= READS_MIN && u->read >= READ_MIN));
}

/* inode.lock held exclusively, signals blocked. */
static bool try_locked(struct sfs_inode *in, int fd, int flags)
{
	bool granted = false;

	if (sfs_grant_deleg(&in->grant) != SFS_DELEG_NONE || in->kernel_only || in->lost || in->locked || sfs.no_staging)
		return false;
	if (sfs_inode_own(in, fd, flags) < 0 || in->fd < 0 || in->kernel_only)
		return false;
	sfs_asking_begin(in);
	if (!sfs_claimed_here(in->vol, in->ino))
		granted = sfs_agent_try(in->vol, &in->grant, in->ino, in->gen, in->fd);
	if (granted) {
		sfs_inode_reload(in);
		in->ready = true;
		in->kdirty = true; /* what it has done meanwhile */
	}
	sfs_asking_end(in);
	return granted;
}

static int64_t seconds(void)
{
	struct timespec t = {0, 0};

	sys_call2(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&t);
	return t.tv_sec;
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
		if (load_acquire(&sfs_fds[fd]) == ofd && ofd->inode == in)
			granted = try_locked(in, fd, ofd->flags);
		sfs_inode_unlock(in);
		sfs_op_end(op);
	}
	now = seconds();
	if (now > in->unheld.tried + 1)
		in->unheld.refused = 0;
	else if (in->unheld.refused < REFUSED_MAX)
		in->unheld.refused++;
	in->unheld.tried = now;
	in->unheld.waits = WRITES_MIN << in->unheld.refused;
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

	return unlikely(writes ? writes_pay(in) : reads_pay(in)) && !waits(in) && try(ofd, in, fd);
}
