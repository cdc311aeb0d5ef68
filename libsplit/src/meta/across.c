/* SPDX-License-Identifier: Apache-2.0 */
#include "meta/across.h"

#include <limits.h>
#include <sys/stat.h>

#include "base/sys.h"
#include "lease/place.h"
#include "meta/durable.h"

/* The volume that the file or directory is in; NULL: none, or it is not there. */
static const struct sfs_volume *volume_of_path(int dirfd, const char *path, int flags)
{
	const struct sfs_volume *vol;
	struct stat st;
	int fd = flags & AT_EMPTY_PATH && *path == 0 ? dirfd
						     : sys_openat(dirfd, path, O_PATH | O_CLOEXEC | (flags & O_NOFOLLOW), 0);

	if (fd < 0 || sys_fstat(fd, &st) < 0)
		vol = NULL;
	else
		vol = sfs_volumes_share(st.st_dev) ? sfs_volume_at(st.st_dev, fd) : NULL;
	if (fd >= 0 && fd != dirfd)
		sys_close(fd);
	return vol;
}

/* Is there a device with several volumes? */
static bool any_shares(void)
{
	for (int i = 0; i + 1 < sfs.nvolumes; i++)
		if (sfs.volumes[i].dev && sfs_volumes_share(sfs.volumes[i].dev))
			return true;
	return false;
}

bool sfs_across(int fromfd, const char *from, int at_flags, int tofd, const char *to)
{
	const int flags = (at_flags & AT_EMPTY_PATH) | (at_flags & AT_SYMLINK_FOLLOW ? 0 : O_NOFOLLOW);
	const struct sfs_volume *a, *b;
	char parent[PATH_MAX + 2];

	/* A path that can't be read is the kernel's to refuse. */
	if (likely(sfs.nvolumes < 2) || !any_shares() || !sys_readable(from) || !sys_readable(to))
		return false;
	a = volume_of_path(fromfd, from, flags);
	if (!a)
		return false;
	sfs_parent_of(parent, to);
	b = volume_of_path(tofd, parent, 0);
	return b && a != b;
}
