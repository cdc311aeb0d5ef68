/* SPDX-License-Identifier: Apache-2.0 */
/* Where a file lies on its device: only what is aligned there to 2 MiB, as it is in the file, can be mapped by 2 MiB. */
#ifndef SFS_HUGE_H
#define SFS_HUGE_H

#include <stdbool.h>
#include <stdint.h>

struct sfs_layout {
	int err;	 /* a negative errno value: -EOPNOTSUPP where nobody can tell; or 0 */
	uint64_t looked; /* bytes from the beginning that the rest is about */
	uint64_t units;	 /* of 2 MiB that can be mapped by one page each */
	bool unwritten;	 /* some blocks have been allocated and not been written to */
};

/* Of the file's first `bytes`, as far as `calls` questions to the file system tell, each of which is about 64 extents. */
struct sfs_layout sfs_layout_of(int fd, uint64_t bytes, uint32_t calls);

#endif
