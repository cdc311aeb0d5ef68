/* SPDX-License-Identifier: Apache-2.0 */
#include "control/fsprobe.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/layout.h"

enum sfs_dax sfs_probe_dax_file(int fd)
{
	struct statx stx;
	void *p;

	/* Both are asked: a file system may know MAP_SYNC and not map this file directly, or the other way round. */
	if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &stx) < 0 || !(stx.stx_attributes & STATX_ATTR_DAX))
		return SFS_DAX_NONE;
	p = mmap(NULL, SFS_BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
	if (p == MAP_FAILED)
		return SFS_DAX_UNSYNCED;
	munmap(p, SFS_BLOCK);
	return SFS_DAX_SYNC;
}

enum sfs_dax sfs_probe_dax(int dirfd)
{
	int fd = openat(dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	enum sfs_dax dax = SFS_DAX_NONE;

	if (fd < 0)
		return SFS_DAX_NONE; /* no file system with DAX lacks O_TMPFILE */
	if (posix_fallocate(fd, 0, SFS_BLOCK) == 0)
		dax = sfs_probe_dax_file(fd);
	close(fd);
	return dax;
}

/* mountinfo writes blanks, tabs, newlines and backslashes as \ooo. */
static void unescape(char *s)
{
	char *to = s;

	while (*s) {
		if (s[0] == '\\' && s[1] && s[2] && s[3]) {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 4;
		} else {
			*to++ = *s++;
		}
	}
	*to = 0;
}

bool sfs_probe_dedicated(const char *path)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	bool dedicated = false;
	char *line = NULL;
	size_t size = 0;

	if (!f)
		return false;
	/* Later lines are mounted over earlier ones. */
	while (getline(&line, &size, f) > 0) {
		char *save = NULL, *field = strtok_r(line, " ", &save), *root = NULL, *point = NULL;

		for (int i = 1; field && i <= 5; i++, field = strtok_r(NULL, " ", &save)) {
			if (i == 4)
				root = field;
			if (i == 5)
				point = field;
		}
		if (!root || !point)
			continue;
		unescape(point);
		if (strcmp(point, path) == 0)
			dedicated = strcmp(root, "/") == 0;
	}
	free(line);
	fclose(f);
	return dedicated;
}
