/* SPDX-License-Identifier: Apache-2.0 */
/* A mapped file is the kernel's for good: the program's loads and stores do not pass by us. */
#include "preload.h"

#include <sys/mman.h>

WRAPPER void *w_mmap(void *addr, size_t n, int prot, int flags, int fd, off_t off)
{
	int err;

	if (likely(flags & MAP_ANONYMOUS || !sfs_ours(fd)))
		return REAL(mmap)(addr, n, prot, flags, fd, off);
	err = sfs_make_true(fd, true);
	if (err >= 0)
		err = sfs_mapped(fd);
	if (err < 0) {
		pl_ret(err);
		return MAP_FAILED;
	}
	return REAL(mmap)(addr, n, prot, flags, fd, off);
}
EXPORT(mmap, w_mmap);
EXPORT(mmap64, w_mmap);
