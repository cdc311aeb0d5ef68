/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of byte ranges: those of a file that newer records have decided already. Ranges that touch become one. A treap, so that
 * a log full of scattered writes costs n log n.
 */
#ifndef SFS_COVER_H
#define SFS_COVER_H

#include <stdint.h>

struct sfs_cover_node;

struct sfs_cover {
	struct sfs_cover_node *root;
	uint64_t random;
};

/* Call gap(ctx, from, to) for each part of [from, to) that is not in the set, ascending; a non-zero answer ends it and is returned. */
int sfs_cover_gaps(const struct sfs_cover *c, uint64_t from, uint64_t to, int (*gap)(void *ctx, uint64_t from, uint64_t to),
		   void *ctx);
/* Add [from, to). 0 or -ENOMEM. */
int sfs_cover_add(struct sfs_cover *c, uint64_t from, uint64_t to);
void sfs_cover_free(struct sfs_cover *c);

#endif
