/* SPDX-License-Identifier: Apache-2.0 */
#include "fds/each.h"

#include <fcntl.h>

#include "base/sys.h"

/* As getdents64(2) gives them. */
struct entry {
	uint64_t ino;
	int64_t next;
	uint16_t len;
	uint8_t type;
	char name[];
};

/* n bytes of entries of /proc/self/fd. */
static bool any(const char *entries, long n, bool (*stop)(int fd, void *arg), void *arg)
{
	for (long at = 0; at < n; at += ((const struct entry *)(entries + at))->len) {
		const char *name = ((const struct entry *)(entries + at))->name;
		int fd = 0;

		if (*name < '0' || *name > '9')
			continue;
		for (; *name; name++)
			fd = fd * 10 + (*name - '0');
		if (stop(fd, arg))
			return true;
	}
	return false;
}

int sfs_fds_each(bool (*stop)(int fd, void *arg), void *arg)
{
	_Alignas(struct entry) char entries[2048];
	const int dir = sys_openat(AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	bool stopped = false;
	long n = 0;

	if (dir < 0)
		return dir;
	while (!stopped && (n = sys_call3(SYS_getdents64, dir, (long)entries, sizeof(entries))) > 0)
		stopped = any(entries, n, stop, arg);
	sys_close(dir);
	return stopped ? 1 : (int)n;
}
