/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, creating and checking the control directory of a volume. */
#include "control/root.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "format/layout.h"
#include "control/fsprobe.h"

#define HEADER	   "volume"
#define HEADER_TMP "volume.tmp"

static uint32_t header_crc(const struct sfs_volume_header *h)
{
	struct sfs_volume_header copy = *h;

	copy.crc = 0;
	return crc32c(0, &copy, sizeof(copy));
}

void sfs_uuid_text(const uint8_t uuid[16], char text[37])
{
	char *p = text;

	for (int i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*p++ = '-';
		p += sprintf(p, "%02x", uuid[i]);
	}
}

static int read_boot_id(uint8_t id[16])
{
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	int digits = 0, c;

	if (!f)
		return -errno;
	memset(id, 0, 16);
	while (digits < 32 && (c = fgetc(f)) != EOF && c != '\n') {
		int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;

		if (v < 0)
			continue;
		id[digits / 2] = (uint8_t)(id[digits / 2] << 4 | v);
		digits++;
	}
	fclose(f);
	return digits == 32 ? 0 : -EINVAL;
}

static struct {
	pthread_once_t once;
	int err;
	uint8_t id[16];
} boot = {.once = PTHREAD_ONCE_INIT};

static void look_at_boot(void)
{
	boot.err = read_boot_id(boot.id);
}

int sfs_boot_id(uint8_t id[16])
{
	pthread_once(&boot.once, look_at_boot);
	memcpy(id, boot.id, sizeof(boot.id));
	return boot.err;
}

int sfs_root_own(const struct sfs_root *r, int fd)
{
	if (geteuid() != 0 || (r->owner == 0 && r->group == 0))
		return 0;
	return fchown(fd, r->owner, r->group) < 0 ? -errno : 0;
}

int sfs_root_note(const struct sfs_root *r, const char *name, const char *text)
{
	const size_t n = strlen(text);
	char tmp[NAME_MAX];
	int fd, err;

	snprintf(tmp, sizeof(tmp), "%s.tmp", name);
	fd = openat(r->ctl, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	err = sfs_root_own(r, fd);
	if (!err && write(fd, text, n) != (ssize_t)n)
		err = errno ? -errno : -ENOSPC;
	close(fd);
	if (!err && renameat(r->ctl, tmp, r->ctl, name) < 0)
		err = -errno;
	if (err)
		unlinkat(r->ctl, tmp, 0);
	return err;
}

/* A control directory without its header is a creation that was cut short when it holds nothing but what creation makes. */
static int only_ours(int ctl)
{
	static const char *const names[] = {".", "..", "log", "pool", "lock", HEADER_TMP};
	int fd = openat(ctl, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), ours = 1;
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *e;

	if (!d) {
		int err = -errno;

		if (fd >= 0)
			close(fd);
		return err;
	}
	while (ours && (e = readdir(d))) {
		ours = 0;
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
			ours |= strcmp(e->d_name, names[i]) == 0;
	}
	closedir(d);
	return ours;
}

static int subdir(struct sfs_root *r, const char *name, bool create, int *fd, struct sfs_why *why)
{
	if (create && mkdirat(r->ctl, name, 0700) < 0 && errno != EEXIST)
		return sfs_fail(why, -errno, "create %s/" SFS_CONTROL_DIR "/%s: %s", r->path, name, strerror(errno));
	*fd = openat(r->ctl, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (*fd < 0)
		return sfs_fail(why, -errno, "open %s/" SFS_CONTROL_DIR "/%s: %s; run 'splitfs prepare %s'", r->path, name,
				strerror(errno), r->path);
	return create ? sfs_root_own(r, *fd) : 0;
}

/* The header comes last and by rename: a control directory that has one is complete. */
static int write_header(struct sfs_root *r, struct sfs_why *why)
{
	struct sfs_volume_header h = {.magic = SFS_VOLUME_MAGIC, .format = SFS_FORMAT, .created = (uint64_t)time(NULL)};
	int fd, err = 0;

	if (getrandom(h.uuid, sizeof(h.uuid), 0) != sizeof(h.uuid))
		return sfs_fail(why, -EIO, "no random numbers for the volume's UUID");
	h.uuid[6] = (uint8_t)(0x40 | (h.uuid[6] & 0x0f));
	h.uuid[8] = (uint8_t)(0x80 | (h.uuid[8] & 0x3f));
	h.crc = header_crc(&h);
	fd = openat(r->ctl, HEADER_TMP, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return sfs_fail(why, -errno, "create %s/" SFS_CONTROL_DIR "/" HEADER_TMP ": %s", r->path, strerror(errno));
	if (write(fd, &h, sizeof(h)) != sizeof(h))
		err = errno ? -errno : -ENOSPC;
	if (!err)
		err = sfs_root_own(r, fd);
	if (!err && fsync(fd) < 0)
		err = -errno;
	close(fd);
	if (!err && (renameat(r->ctl, HEADER_TMP, r->ctl, HEADER) < 0 || fsync(r->ctl) < 0))
		err = -errno;
	if (err)
		return sfs_fail(why, err, "write %s/" SFS_CONTROL_DIR "/" HEADER ": %s", r->path, strerror(-err));
	return 0;
}

/* 0 and the UUID, -ENOENT when there is no header, another error with a sentence. */
static int read_header(struct sfs_root *r, struct sfs_why *why)
{
	struct sfs_volume_header h;
	int fd = openat(r->ctl, HEADER, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n;

	if (fd < 0 && errno == ENOENT)
		return -ENOENT;
	if (fd < 0)
		return sfs_fail(why, -errno, "open %s/" SFS_CONTROL_DIR "/" HEADER ": %s", r->path, strerror(errno));
	n = read(fd, &h, sizeof(h));
	close(fd);
	if (n != sizeof(h) || h.magic != SFS_VOLUME_MAGIC)
		return sfs_fail(why, -EINVAL,
				"%s/" SFS_CONTROL_DIR
				" does not belong to SplitFS (no volume header); nothing was changed. Move it "
				"away if this directory is to become a volume",
				r->path);
	if (h.format != SFS_FORMAT)
		return sfs_fail(why, -EINVAL,
				"%s is a volume of format %u and this program knows format %u; nothing was changed. Use the "
				"version of splitfs that wrote it",
				r->path, h.format, SFS_FORMAT);
	if (h.crc != header_crc(&h))
		return sfs_fail(why, -EINVAL,
				"the volume header %s/" SFS_CONTROL_DIR "/" HEADER
				" is damaged (checksum); nothing was changed. Restore the file from a backup",
				r->path);
	memcpy(r->uuid, h.uuid, sizeof(r->uuid));
	return 0;
}

static int open_control(struct sfs_root *r, bool create, struct sfs_why *why)
{
	struct stat st;

	r->ctl = openat(r->fd, SFS_CONTROL_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (r->ctl < 0 && errno == ENOENT && create) {
		if (mkdirat(r->fd, SFS_CONTROL_DIR, 0700) < 0 && errno != EEXIST)
			return sfs_fail(why, -errno, "create %s/" SFS_CONTROL_DIR ": %s", r->path, strerror(errno));
		r->ctl = openat(r->fd, SFS_CONTROL_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	}
	if (r->ctl < 0 && errno == ENOENT)
		return sfs_fail(why, -ENOENT, "%s is no volume of SplitFS; run 'splitfs prepare %s' first", r->path, r->path);
	if (r->ctl < 0)
		return sfs_fail(why, -errno, "open %s/" SFS_CONTROL_DIR ": %s", r->path, strerror(errno));
	if (fstat(r->ctl, &st) < 0)
		return sfs_fail(why, -errno, "stat %s/" SFS_CONTROL_DIR ": %s", r->path, strerror(errno));
	if (st.st_dev != r->dev)
		return sfs_fail(why, -EXDEV, "%s/" SFS_CONTROL_DIR " is a mount of its own; unmount it", r->path);
	r->owner = st.st_uid;
	r->group = st.st_gid;
	return 0;
}

/* One file would be in two volumes, which have two agents. What is staged in such a volume can be recovered, and no more. */
static int refuse_inside(const struct sfs_root *r, struct sfs_why *why)
{
	char *volume;

	if (!sfs_probe_inside(r->path, &volume))
		return 0;
	sfs_fail(why, -EINVAL,
		 "%s is inside the volume %s, and a part of a volume can't be a volume of its own; use that volume, or a "
		 "directory "
		 "outside it",
		 r->path, volume[0] ? volume : "/");
	free(volume);
	return -EINVAL;
}

int sfs_root_open(struct sfs_root *r, const char *path, bool create, struct sfs_why *why)
{
	enum sfs_dax dax;
	struct stat st;
	int err;

	memset(r, 0, sizeof(*r));
	r->fd = r->ctl = r->log = r->pool = r->lock = -1;
	if (!realpath(path, r->path))
		return sfs_fail(why, -errno, "%s: %s", path, strerror(errno));
	r->fd = open(r->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r->fd < 0 || fstat(r->fd, &st) < 0) {
		err = sfs_fail(why, -errno, "%s: %s", r->path, strerror(errno));
		goto fail;
	}
	r->dev = st.st_dev;
	err = create ? refuse_inside(r, why) : 0;
	if (!err)
		err = open_control(r, create, why);
	if (err)
		goto fail;
	err = read_header(r, why);
	if (err == -ENOENT) {
		int ours = only_ours(r->ctl);

		if (ours <= 0) {
			err = sfs_fail(why, -EINVAL,
				       "%s/" SFS_CONTROL_DIR
				       " does not belong to SplitFS (no volume header); nothing was changed. "
				       "Move it away if this directory is to become a volume",
				       r->path);
			goto fail;
		}
		if (!create) {
			err = sfs_fail(why, -ENOENT, "%s is not prepared; run 'splitfs prepare %s' first", r->path, r->path);
			goto fail;
		}
		err = subdir(r, "log", true, &r->log, why);
		if (!err)
			err = subdir(r, "pool", true, &r->pool, why);
		if (!err)
			err = write_header(r, why);
		if (!err)
			err = read_header(r, why);
	} else if (!err) {
		err = subdir(r, "log", false, &r->log, why);
		if (!err)
			err = subdir(r, "pool", false, &r->pool, why);
	}
	if (err)
		goto fail;
	dax = sfs_probe_dax(r->pool);
	r->dax = dax == SFS_DAX_SYNC;
	r->dax_unsynced = dax == SFS_DAX_UNSYNCED;
	r->dedicated = sfs_probe_dedicated(r->path);
	return 0;
fail:
	sfs_root_close(r);
	return err;
}

void sfs_root_close(struct sfs_root *r)
{
	int *const fds[] = {&r->lock, &r->pool, &r->log, &r->ctl, &r->fd};

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}
