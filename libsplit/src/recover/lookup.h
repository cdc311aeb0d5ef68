/* SPDX-License-Identifier: Apache-2.0 */
/* Finding files by identity: by handle where that works, else by one walk of the tree. */
#ifndef SFS_LOOKUP_H
#define SFS_LOOKUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "recover/recover.h"

struct sfs_wanted {
	uint64_t ino;
	uint32_t gen;
	bool found;
	char *path; /* below ROOT, when it was found by a walk; the finder's */
};

struct sfs_lookup {
	const struct sfs_root *root;
	const struct sfs_targets *targets;
	int handle_type; /* of handles made from inode number and generation; 0: we can't */
};

void sfs_lookup_init(struct sfs_lookup *l, const struct sfs_root *root, const struct sfs_targets *targets);
/* Set found (and path) for each wanted file that exists. An error is one of reading the tree. */
int sfs_lookup_find(const struct sfs_lookup *l, struct sfs_wanted *const *wanted, size_t n, struct sfs_why *why);
/* Open a found file for writing; one that was found by a walk is searched for again where it has gone. -ENOENT when it exists no more. */
int sfs_lookup_open(const struct sfs_lookup *l, struct sfs_wanted *w);

#endif
