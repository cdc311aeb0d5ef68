/* SPDX-License-Identifier: Apache-2.0 */
/* What this process holds of a volume, for its agent. */
#include "io/io.h"

/* Has the agent a hold of ours that another process must not overlook? That of a mapped file stays when it is given up. */
static bool held(const struct sfs_inode *in)
{
	return (in->life == LIFE_READY && sfs_grant_deleg(&in->grant) != SFS_DELEG_NONE) ||
	       (in->grant.state == GRANT_KEPT && sfs_server_is_kernel(&in->server));
}

int sfs_held_reclaim(struct sfs_volume *vol)
{
	int r = 0;

	sfs_mutex_lock(&sfs_files.lock); /* nobody waits for a request with it */
	for (int i = 0; r == 0 && i < SFS_HASH; i++)
		for (struct sfs_inode *in = sfs_files.hash[i]; in && r == 0; in = in->next)
			if (in->vol == vol && held(in)) {
				/* An agent of an older release can't: the service thread saves what is looked at. */
				if (in->grant.state == GRANT_WATCHED && !vol->watches)
					sfs_grant_set(&in->grant, GRANT_EXCLUSIVE);
				/* A mapped file may have no descriptor of ours: any of the program's proves it. */
				r = sfs_agent_reclaim(vol, in->ino, in->gen, sfs_inode_fd(in),
						      in->grant.state == GRANT_WATCHED);
			}
	sfs_mutex_unlock(&sfs_files.lock);
	return r;
}

void sfs_held_turns_end(struct sfs_volume *vol)
{
	sfs_mutex_lock(&sfs_files.lock);
	for (int i = 0; i < SFS_HASH; i++)
		for (struct sfs_inode *in = sfs_files.hash[i]; in; in = in->next)
			if (in->vol == vol)
				sfs_turn_come(in);
	sfs_mutex_unlock(&sfs_files.lock);
}

/* What of an inode was staged is the agent's affair now: see sfs_volume_lost(). *arg counts those that had something. */
static int lose_one(struct sfs_inode *in, void *arg)
{
	sfs_inode_lock(in);
	sfs_pins_save_all(&in->pins); /* without memory they show what the file becomes */
	if (sfs_inode_pending(in)) {
		sfs_life_set(&in->life, LIFE_LOST);
		++*(unsigned *)arg;
	}
	sfs_staging_clear(&in->staging);
	sfs_log_drop_slots(in);
	sfs_stage_retired(in);
	sfs_grant_set(&in->grant, GRANT_NONE);
	sfs_life_again(&in->life);
	sfs_inode_unlock(in);
	return 0;
}

unsigned sfs_held_lost(struct sfs_volume *vol)
{
	unsigned files = 0;

	sfs_inodes_each(vol, lose_one, &files);
	sfs_buffers_lost(&vol->pool);
	return files;
}
