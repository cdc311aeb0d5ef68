/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes: the configuration. */
#include "lease/volume.h"

#include <string.h>

#include "base/sys.h"

static bool take(char *dst, size_t size, const char *from, const char *to)
{
	size_t n = (size_t)(to - from);

	if (n == 0 || n >= size)
		return false;
	memcpy(dst, from, n);
	dst[n] = 0;
	return true;
}

static bool word(const char *from, const char *to, const char *w)
{
	return strlen(w) == (size_t)(to - from) && memcmp(from, w, strlen(w)) == 0;
}

static const char *find(const char *s, char c)
{
	while (*s && *s != c && *s != ';')
		s++;
	return s;
}

void sfs_volumes_parse(const char *config)
{
	const char *s = config;

	while (*s && sfs.nvolumes < SFS_VOLUMES_MAX) {
		struct sfs_volume *vol = &sfs.volumes[sfs.nvolumes];
		const char *a = find(s, ':'), *b = *a == ':' ? find(a + 1, ':') : a, *end = find(s, ';');
		bool ok = *a == ':' && *b == ':' && take(vol->dir, sizeof(vol->dir), a + 1, b) &&
			  take(vol->agents, sizeof(vol->agents), b + 1, end);

		if (ok && word(s, a, "posix"))
			vol->mode = SFS_POSIX;
		else if (ok && word(s, a, "sync"))
			vol->mode = SFS_SYNC;
		else if (ok && word(s, a, "strict"))
			vol->mode = SFS_STRICT;
		else
			ok = false;
		if (ok) {
			vol->agent.request_fd = vol->agent.event_fd = vol->agent.hello_fd = vol->pool.copies_fd = -1;
			sfs_log_none(&vol->log);
			sfs.nvolumes++;
			sfs.unmet = true;
		}
		s = *end ? end + 1 : end;
	}
}

struct sfs_volume *sfs_volume_of(dev_t dev)
{
	struct sfs_volume *found = NULL;

	for (int i = 0; i < sfs.nvolumes; i++) {
		struct sfs_volume *vol = &sfs.volumes[i];

		struct stat st;

		/* A mount path that can't be looked at yet is looked at again next time. */
		if (unlikely(load_acquire(&vol->dev) == 0) && sys_fstatat(AT_FDCWD, vol->dir, &st, 0) == 0) {
			vol->ino = st.st_ino;
			store_release(&vol->dev, st.st_dev);
		}
		if (!found && vol->dev != 0 && vol->dev == dev)
			found = vol;
	}
	return found;
}
