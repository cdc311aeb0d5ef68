/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots of all files, before what may change bytes of any of them. */
#include "calls/calls.h"
#include "io/io.h"
#include "io/peek.h"

static int save_one(struct sfs_inode *in, void *arg)
{
	uint64_t *op;

	(void)arg;
	if (!sfs_op_begin(in, &op))
		return 0;
	sfs_inode_take(in);
	sfs_pins_save_all(&in->pins); /* without memory they show what the file becomes */
	sfs_inode_drop(in);
	sfs_op_end(op);
	return 0;
}

void sfs_snapshots_save(void)
{
	for (int i = 0; i < sfs.nvolumes; i++)
		sfs_inodes_each(&sfs.volumes[i], save_one, NULL);
}

void sfs_snapshots_bar(void)
{
	sfs_peek_bar(true);
	sfs_snapshots_save();
}

void sfs_snapshots_allow(void)
{
	sfs_peek_bar(false);
}
