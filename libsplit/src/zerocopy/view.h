/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A view: a file mapped read-only from its beginning, for snapshots of it (pins.h) to be parts of. The pages of a
 * snapshot are the file's until somebody is about to change them; then they are saved: copied to private memory,
 * which takes their place at the same addresses in one step.
 *
 *   state     what is true                                            goes on as
 *   CURRENT   no page is saved: further snapshots may be parts of it  STALE when a page is saved
 *   STALE     some pages show what the file was                       gone with its last snapshot
 *
 * The lock of the file it belongs to is held for everything here.
 */
#ifndef SFS_VIEW_H
#define SFS_VIEW_H

#include <stdbool.h>
#include <stdint.h>

enum sfs_view_state { SFS_VIEW_CURRENT, SFS_VIEW_STALE };

struct sfs_pin;
struct sfs_view {
	struct sfs_view *next; /* of the file, or of the free ones */
	struct sfs_pin *pins;  /* the snapshots that are parts of it */
	uint8_t *base;
	uint64_t len;	 /* bytes, whole pages; the file may be longer or shorter */
	uint64_t *saved; /* a bit for each page; NULL: none is saved */
	enum sfs_view_state state;
	bool inherited; /* this is the child of a fork: only the saved pages are mapped here */
};

/* Map the file, and room for it to grow, `need` bytes at least. 0, or a negative errno value. */
int sfs_view_map(struct sfs_view *v, int fd, uint64_t need);
void sfs_view_unmap(struct sfs_view *v);
/*
 * Save the pages that bytes [from, to) are in, but for those that are saved already. 0, or a negative errno value:
 * some may not be saved. What can't be read, as poisoned memory or what somebody unseen has cut off, stays as it is.
 * What has been saved is added to *bytes.
 */
int sfs_view_save(struct sfs_view *v, uint64_t from, uint64_t to, uint64_t *bytes);
/* The same of whole pages that are no part of a view. */
int sfs_pages_save(uint8_t *p, uint64_t n);

#endif
