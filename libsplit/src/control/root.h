/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root of a volume and its control directory (layout.h): open, create, check, lock. Hosted code, for the command line and
 * the agent; the preloaded object never touches these files by path.
 *
 * Nothing below the control directory is followed when it is a symbolic link: the directory may belong to a user and the caller
 * be root.
 */
#ifndef SFS_ROOT_H
#define SFS_ROOT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "control/why.h"

struct sfs_root {
	char path[PATH_MAX]; /* absolute, without symbolic links */
	int fd;		     /* ROOT */
	int ctl;	     /* ROOT/.splitfs */
	int log;	     /* ROOT/.splitfs/log */
	int pool;	     /* ROOT/.splitfs/pool */
	int lock;	     /* ROOT/.splitfs/lock, -1 while it is not ours */
	dev_t dev;
	uid_t owner; /* of the control directory: what we make in it belongs to that user */
	gid_t group;
	uint8_t uuid[16];
	bool dax;	   /* maps persistent memory with MAP_SYNC */
	bool dax_unsynced; /* DAX without MAP_SYNC: emulated, and the user should know why */
	bool dedicated;	   /* ROOT is the root of its file system */
};

/*
 * Open the volume at `path`. With `create` a missing control directory is made; without, it is an error that says how to make
 * one. A foreign directory or a format from the future is refused and nothing is changed. Negative errno values on failure.
 */
int sfs_root_open(struct sfs_root *r, const char *path, bool create, struct sfs_why *why);
void sfs_root_close(struct sfs_root *r);

/* Who holds the lock, as it wrote into the file. */
struct sfs_holder {
	char what[16]; /* "agent", "recover" or "prepare" */
	int pid;
	char provider[16];	   /* of an agent */
	char agents_dir[PATH_MAX]; /* of an agent */
};

/*
 * Take the lock for `what`; -EBUSY with a sentence when somebody else has it. A momentary holder is waited for.
 * sfs_root_unlock() also happens when the process ends.
 */
int sfs_root_lock(struct sfs_root *r, const char *what, struct sfs_why *why);
/* Say more about the holder (an agent: its provider and the directory of its socket). */
int sfs_root_lock_note(struct sfs_root *r, const char *what, const char *provider, const char *agents_dir);
void sfs_root_unlock(struct sfs_root *r);
/* 1 and *h when somebody holds the lock, 0 when nobody does. */
int sfs_root_holder(const struct sfs_root *r, struct sfs_holder *h);

/* Make a file of ours belong to the owner of the control directory. */
int sfs_root_own(const struct sfs_root *r, int fd);

/* Put text into a file of the control directory in one step. 0, or a negative errno value. */
int sfs_root_note(const struct sfs_root *r, const char *name, const char *text);

/* The id of this boot. */
int sfs_boot_id(uint8_t id[16]);

/* "01234567-89ab-..." */
void sfs_uuid_text(const uint8_t uuid[16], char text[37]);

#endif
