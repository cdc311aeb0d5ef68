/* SPDX-License-Identifier: Apache-2.0 */
#include "lease/place.h"

#include <string.h>
#include <sys/stat.h>

#include "base/sys.h"

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x1000U
#endif

#define PATH_SIZE (SFS_PATH_MAX + 256)

struct place {
	char path[PATH_SIZE];
	size_t len; /* 0: it has none that we can see */
	uint64_t mount;
};

void sfs_fd_path(char *buf, int fd)
{
	static const char prefix[] = "/proc/self/fd/";
	char digits[12];
	int i = sizeof(digits) - 1;

	memcpy(buf, prefix, sizeof(prefix) - 1);
	digits[i] = 0;
	do
		digits[--i] = (char)('0' + fd % 10);
	while ((fd /= 10) != 0);
	memcpy(buf + sizeof(prefix) - 1, digits + i, sizeof(digits) - (size_t)i);
}

/* The number of the mount that the file was opened through; 0: the kernel does not say. */
static uint64_t mount_of(int fd)
{
	struct statx stx;

	return sys_call5(SYS_statx, fd, (long)"", AT_EMPTY_PATH, STATX_MNT_ID, (long)&stx) == 0 && (stx.stx_mask & STATX_MNT_ID)
		       ? stx.stx_mnt_id
		       : 0;
}

static void place_of(int fd, struct place *p)
{
	char link[32];
	ssize_t n;

	sfs_fd_path(link, fd);
	n = sys_readlinkat(AT_FDCWD, link, p->path, sizeof(p->path) - 1);
	p->len = n > 0 && p->path[0] == '/' ? (size_t)n : 0;
	p->path[p->len] = 0;
	p->mount = mount_of(fd);
}

/* What the volume's directory is called without symbolic links, and the mount that it is on. */
static const char *place(struct sfs_volume *vol)
{
	struct place p = {.len = 0};
	int fd;

	if (likely(load_acquire(&vol->placed)))
		return vol->place;
	fd = sys_openat(AT_FDCWD, vol->dir, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	if (fd >= 0) {
		place_of(fd, &p);
		sys_close(fd);
	}
	if (p.len == 0 || p.len >= sizeof(vol->place)) {
		p.len = strlen(vol->dir);
		memcpy(p.path, vol->dir, p.len + 1);
	}
	/* Another thread may do the same at the same time. */
	memcpy(vol->place, p.path, p.len + 1);
	vol->mount = p.mount;
	store_release(&vol->placed, true);
	return vol->place;
}

/* One volume has one agent. */
static bool same(const struct sfs_volume *a, const struct sfs_volume *b)
{
	return a->dev == b->dev && memcmp(a->agents, b->agents, strlen(a->agents) + 1) == 0;
}

/* The part of the path behind the directory at path[0, n) is content. */
static bool content(const struct place *p, size_t n)
{
	static const char ctl[] = "/" SFS_CONTROL_DIR "/";

	return p->len - n < sizeof(ctl) - 1 || memcmp(p->path + n, ctl, sizeof(ctl) - 1) != 0;
}

/*
 * How much of the path is the directory of that entry: where the names agree, or, by another mount than the one we know, where a directory
 * above has its number. 0: it is not below.
 */
static size_t above(struct sfs_volume *vol, struct place *p)
{
	const char *dir = place(vol);
	const size_t n = strlen(dir);
	struct stat st;

	if (p->len >= n && memcmp(p->path, dir, n) == 0 && (p->len == n || p->path[n] == '/' || n == 1))
		return n;
	if (p->mount && p->mount == vol->mount)
		return 0;
	for (size_t i = p->len; i > 1; i--) {
		int r;

		if (i != p->len && p->path[i] != '/')
			continue;
		const char kept = p->path[i];

		p->path[i] = 0;
		r = sys_fstatat(AT_FDCWD, p->path, &st, AT_SYMLINK_NOFOLLOW);
		p->path[i] = kept;
		/* The last one may have been removed. */
		if (i != p->len && (r < 0 || st.st_dev != vol->dev))
			return 0;
		if (r == 0 && S_ISDIR(st.st_mode) && st.st_dev == vol->dev && st.st_ino == vol->ino)
			return i;
	}
	return 0;
}

bool sfs_below(const struct sfs_volume *vol, int fd)
{
	struct place p;

	place_of(fd, &p);
	for (int i = 0; i < sfs.nvolumes; i++) {
		struct sfs_volume *v = &sfs.volumes[i];
		size_t n;

		if (!same(v, vol))
			continue;
		n = above(v, &p);
		if (n)
			return content(&p, n);
	}
	return false;
}

bool sfs_volumes_share(dev_t dev)
{
	const struct sfs_volume *first = sfs_volume_of(dev);

	for (const struct sfs_volume *v = first ? first + 1 : NULL; v && v < sfs.volumes + sfs.nvolumes; v++)
		if (v->dev == dev && !same(v, first))
			return true;
	return false;
}

struct sfs_volume *sfs_volume_at(dev_t dev, int fd)
{
	struct sfs_volume *first = sfs_volume_of(dev), *in = NULL;
	size_t most = 0;
	struct place p;

	if (!first || likely(!sfs_volumes_share(dev)))
		return first;
	place_of(fd, &p);
	for (struct sfs_volume *v = first; v < sfs.volumes + sfs.nvolumes; v++) {
		const size_t n = v->dev == dev ? above(v, &p) : 0;

		if (n > most) {
			most = n;
			in = v;
		}
	}
	if (in && !content(&p, most))
		return NULL;
	/* The first entry of the same volume stands for it. */
	for (struct sfs_volume *v = first; in && v < in; v++)
		if (same(v, in))
			in = v;
	return in;
}
