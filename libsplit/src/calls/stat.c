/* SPDX-License-Identifier: Apache-2.0 */
/* What stat says of a file, while bytes of it are staged here or by others. */
#include <linux/stat.h>
#include <sys/sysmacros.h>

#include "base/sys.h"
#include "files/unheld.h"
#include "io/io.h"
#include "calls/calls.h"

#define LEFT_SHIFT 48 /* far above what the grants of a moment add up to */

/*
 * This process has nothing staged of it. The service thread may have been relinking while the kernel was asked: then the size is neither the
 * old nor the new one. Without a descriptor of ours nothing ever was staged.
 */
static bool clean(const struct sfs_inode *in, uint64_t size)
{
	return in->staging.count == 0 && !in->touched && sfs_grant_deleg(&in->grant) != SFS_DELEG_NONE &&
	       (in->fd < 0 || in->size == size);
}

/* What the kernel said of a file of a volume. */
enum truth {
	TRUE_AS_IT_IS,
	TRUE_NOW,  /* *now is what stat should say */
	ASK_AGAIN, /* bytes of it were staged, by another process or this one, and have been relinked since */
};

/* The kernel has said what it knows, and bytes of the file are staged. */
static void staged_too(struct sfs_inode *in, struct stat *now)
{
	in->told = now->st_mtim;
	if ((uint64_t)now->st_size >= in->size)
		return;
	now->st_size = (off_t)in->size;
	now->st_blocks += (blkcnt_t)(in->staging.count * (SFS_BLOCK / 512));
}

/* The file is open here and this process may have staged bytes of it. */
static enum truth own_truth(struct sfs_inode *in, struct stat *now)
{
	enum truth known = TRUE_AS_IT_IS;
	uint64_t *op;

	if (!sfs_op_begin(in, &op))
		return known;
	sfs_inode_lock(in);
	if (in->fd >= 0) {
		sfs_inode_ready(in, in->fd, O_RDONLY); /* another process may have taken the file over */
		sfs_inode_times(in);
		known = sys_fstat(in->fd, now) == 0 ? TRUE_NOW : TRUE_AS_IT_IS;
		if (known == TRUE_NOW && in->staging.count > 0)
			staged_too(in, now);
	}
	sfs_inode_unlock(in);
	sfs_op_end(op);
	return known;
}

/* Has another process bytes of it staged? In which of the device's volumes it is, a name does not tell. */
static struct sfs_volume *staged_elsewhere(dev_t dev, ino_t ino)
{
	for (int i = 0; i < sfs.nvolumes; i++) {
		struct sfs_volume *vol = &sfs.volumes[i];

		if (vol->dev == dev && sfs_owners_known(vol) && !sfs_owners_clean(vol, NULL, ino))
			return vol;
	}
	return NULL;
}

/*
 * The file may have been somebody's when the kernel was asked, which did not know its size then, and not be any more. This process's: closed by
 * another thread, given up to another process, or without a descriptor of ours (files/scarce.c). Another one's: its grants are counted in the
 * word for all inodes, where one that is given changes the upper half and adds one to the lower, and one that ends takes one off that. So
 * it is the same again only if none has ended.
 */
uint64_t sfs_stat_begin(void)
{
	uint64_t seen = __atomic_load_n(&sfs_files.left, __ATOMIC_ACQUIRE) << LEFT_SHIFT;

	for (int i = 0; i < sfs.nvolumes; i++) {
		const uint64_t *owners = load_acquire(&sfs.volumes[i].owners);
		const uint64_t word = owners ? load_acquire(&owners[SFS_OWNERS_ALL]) : 0;

		seen += (uint64_t)sfs_owners_number(word) << 32 | sfs_owners_stagers(word);
	}
	return seen;
}

/*
 * What this process knows. *alone: no other process has a grant that allows to stage. Signals blocked: a handler that jumps must not take the
 * reference with it.
 */
static enum truth truth_here(struct sfs_volume *vol, dev_t dev, ino_t ino, uint64_t size, struct stat *now, bool *alone)
{
	struct sfs_inode *in = sfs_inode_ref(dev, ino);
	enum truth known = TRUE_AS_IT_IS;
	bool untouched;

	if (!in)
		return known;
	untouched = clean(in, size);
	/* Then the table has no other process's grant that allows to stage: it may have this one's. */
	*alone = untouched && __atomic_load_n(&in->grant.state, __ATOMIC_RELAXED) > GRANT_UNTOLD;
	/* Without a grant the table is looked at: an ACQUIRE would keep others waiting for a turn that nobody comes for. */
	if (!untouched && !(sfs_owners_known(vol) && in->grant.state <= GRANT_UNTOLD && in->life != LIFE_LOST))
		known = own_truth(in, now);
	sfs_inode_put(in);
	return known;
}

static enum truth truth(dev_t dev, ino_t ino, uint64_t size, uint64_t seen, struct stat *now)
{
	struct sfs_volume *vol = sfs.nvolumes ? sfs_volume_of(dev) : NULL;
	enum truth known = TRUE_AS_IT_IS;
	bool alone = false;
	uint64_t signals;

	if (!vol)
		return known;
	if (!sfs_inode_none(dev, ino)) {
		signals = sfs_signals_block();
		known = truth_here(vol, dev, ino, size, now, &alone);
		sfs_signals_restore(signals);
	}
	if (known == TRUE_NOW)
		return known;
	vol = alone ? NULL : staged_elsewhere(dev, ino);
	if (!vol)
		return unlikely(sfs_stat_begin() != seen) ? ASK_AGAIN : known;
	/* Who does not answer in time is not waited for by who only looks. */
	return sfs_ask_first(vol, NULL, ino) == 0 ? ASK_AGAIN : TRUE_AS_IT_IS;
}

bool sfs_fix_stat(struct stat *st, uint64_t seen)
{
	struct stat now;
	const enum truth t =
		S_ISREG(st->st_mode) ? truth(st->st_dev, st->st_ino, (uint64_t)st->st_size, seen, &now) : TRUE_AS_IT_IS;

	if (t == TRUE_NOW)
		*st = now;
	return t == ASK_AGAIN;
}

bool sfs_fix_statx(struct statx *stx, uint64_t seen)
{
	enum truth t = TRUE_AS_IT_IS;
	struct stat now;

	if (S_ISREG(stx->stx_mode))
		t = truth(makedev(stx->stx_dev_major, stx->stx_dev_minor), stx->stx_ino, stx->stx_size, seen, &now);
	if (t != TRUE_NOW)
		return t == ASK_AGAIN;
	stx->stx_mtime.tv_sec = now.st_mtim.tv_sec;
	stx->stx_mtime.tv_nsec = (uint32_t)now.st_mtim.tv_nsec;
	stx->stx_ctime.tv_sec = now.st_ctim.tv_sec;
	stx->stx_ctime.tv_nsec = (uint32_t)now.st_ctim.tv_nsec;
	stx->stx_size = (uint64_t)now.st_size;
	stx->stx_blocks = (uint64_t)now.st_blocks;
	return false;
}
