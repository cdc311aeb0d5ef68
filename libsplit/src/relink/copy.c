/* SPDX-License-Identifier: Apache-2.0 */
/* Works on any file system, and moves what is not a whole block on all of them. */
#include <errno.h>
#include <sys/mman.h>

#include "base/sys.h"
#include "relink/provider.h"

#define WINDOW (16ull << 20) /* of the donor mapped at a time, where the caller has no mapping */

static int write_all(int fd, const char *p, uint64_t n, uint64_t off)
{
	ssize_t done;

	while (n) {
		done = sys_pwrite(fd, p, n, (off_t)off);
		if (done == -EINTR)
			continue;
		if (done <= 0)
			return done ? (int)done : -EIO;
		p += done;
		off += (uint64_t)done;
		n -= (uint64_t)done;
	}
	return 0;
}

int relink_copy(const struct relink_range *r, uint64_t at, uint64_t n)
{
	uint64_t page, in_page, part;
	char *map;
	int err = 0;

	if (r->staged)
		return write_all(r->target, (const char *)r->staged + at, n, r->target_off + at);
	for (; n && !err; at += part, n -= part) {
		page = (r->donor_off + at) & ~(uint64_t)(RELINK_BLOCK - 1);
		in_page = r->donor_off + at - page;
		part = n < WINDOW - in_page ? n : WINDOW - in_page;
		map = sys_mmap(NULL, in_page + part, PROT_READ, MAP_SHARED, r->donor, (off_t)page);
		if (sys_is_err(map))
			return (int)(long)map;
		/* A donor that is too short makes this fail with EFAULT; we never touch the mapping ourselves. */
		err = write_all(r->target, map + in_page, part, r->target_off + at);
		sys_munmap(map, in_page + part);
	}
	return err;
}
