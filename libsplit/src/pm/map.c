/* SPDX-License-Identifier: Apache-2.0 */
#include "pm/map.h"

#include <errno.h>
#include <sys/mman.h>

#include "format/layout.h"

#ifndef MAP_SYNC
#define MAP_SYNC 0x80000
#endif
#ifndef MAP_SHARED_VALIDATE
#define MAP_SHARED_VALIDATE 0x3
#endif

void *sfs_map_file(bool dax, uint64_t len, int prot, int fd)
{
	return sys_mmap(NULL, len, prot, dax ? MAP_SHARED_VALIDATE | MAP_SYNC : MAP_SHARED, fd, 0);
}

void *sfs_map_sparse(uint64_t len)
{
	void *p = sys_mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (!sys_is_err(p))
		sys_madvise(p, len, MADV_NOHUGEPAGE); /* EINVAL: a kernel that has none */
	return p;
}

/* One fault for each 2 MiB that can be mapped as one; madvise would walk through them page by page. The store changes nothing. */
static void touch(uint8_t *p, uint64_t len)
{
	for (const uint8_t *end = p + len; p < end; p += SFS_CHUNK_ALIGN)
		__atomic_fetch_or(p, 0, __ATOMIC_RELAXED);
}

/*
 * On DAX the page tables are made at once, by 2 MiB where the file is aligned, and after that never by 2 MiB again. For a huge fault
 * the file system allocates from the start of the 2 MiB on; where relink has left a hole there and the bytes behind are stored to,
 * it would fill the hole with zeros. But a hole says "moved already" to recovery (relink.h), which would take the zeros for data.
 */
void *sfs_map_staging(bool dax, uint64_t len, int fd)
{
	void *p = sys_mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	int r = 0;

	if (sys_is_err(p))
		return p;
	if (dax) {
		touch(p, len);
		r = sys_madvise(p, len, MADV_NOHUGEPAGE);
	}
	/* EINVAL: a kernel without huge pages. */
	if (r == 0 || r == -EINVAL)
		r = sfs_protect(p, len, PROT_READ | PROT_WRITE);
	if (r < 0) {
		sys_munmap(p, len);
		return (void *)(long)r;
	}
	return p;
}

int sfs_map_staging_again(bool dax, void *p, uint64_t n, int fd, uint64_t off)
{
	p = sys_mmap(p, n, PROT_READ, MAP_SHARED | MAP_FIXED, fd, (off_t)off);
	if (sys_is_err(p))
		return (int)(long)p;
	sys_madvise(p, n, MADV_DONTFORK);
	if (dax)
		sys_madvise(p, n, MADV_NOHUGEPAGE);
	return 0;
}
