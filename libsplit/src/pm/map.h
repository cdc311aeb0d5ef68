/* SPDX-License-Identifier: Apache-2.0 */
/* How the files of a volume are mapped: what is different on persistent memory. */
#ifndef SFS_MAP_H
#define SFS_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/protect.h"
#include "base/sys.h"

/*
 * The log, or the window of a file. On a DAX volume with MAP_SYNC: a page can be stored to only when what the file system has to
 * remember of it (allocation, relink) is in its journal, so flushed stores are durable. Refused with EOPNOTSUPP for a file that is
 * not on persistent memory itself; it must not be stored to as if it were. Returns an address or a negative errno value.
 */
void *sfs_map_file(bool dax, uint64_t len, int prot, int fd);

/*
 * A staging file, whole and for writing. Its blocks were allocated, written and committed before it came into the pool, and a
 * client stores to no hole in it, so there is nothing for MAP_SYNC to wait for; with it the first store after each relink would
 * commit the journal, because the relink has changed the file.
 */
void *sfs_map_staging(bool dax, uint64_t len, int fd);

/*
 * n bytes of it from `off` on, read-only, in the place of what is mapped at `p`. 0, or a negative errno value: that stays.
 */
int sfs_map_staging_again(bool dax, void *p, uint64_t n, int fd, uint64_t off);

/*
 * Zeros, for a large table of which few pages are ever touched: never by huge pages, each of which would be 2 MiB to clear and to keep.
 * Returns an address or a negative errno value.
 */
void *sfs_map_sparse(uint64_t len);

/*
 * Page tables for stores to [p, p + n), page aligned, at once. 0, or a negative errno value: not all are there. A kernel before 5.14 refuses, and faults
 * when it comes to that.
 */
static inline int sfs_map_populate(uint8_t *p, uint64_t n)
{
	const uint32_t rights = sfs_protect_open(); /* the kernel goes by this thread's rights */
	const int r = sys_madvise(p, n, 23 /* MADV_POPULATE_WRITE */);

	sfs_protect_close(rights);
	return r;
}

#endif
