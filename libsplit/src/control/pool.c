/* SPDX-License-Identifier: Apache-2.0 */
/* Staging files. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/fsprobe.h"
#include "control/store.h"

struct sfs_pool_plan sfs_pool_plan(uint64_t pool_bytes, uint64_t chunk_bytes)
{
	struct sfs_pool_plan plan = {.full = (uint32_t)(pool_bytes / chunk_bytes)};

	if (plan.full >= 4 && chunk_bytes >= 4 * SFS_SMALL_CHUNK) {
		plan.full--;
		plan.small = (uint32_t)(chunk_bytes / SFS_SMALL_CHUNK);
	}
	return plan;
}

int sfs_chunk_create(const struct sfs_root *r, uint32_t id, uint64_t bytes, struct sfs_why *why)
{
	char tmp[32], name[32];
	int fd, err;

	sfs_number_name(tmp, id, ".tmp");
	sfs_number_name(name, id, "");
	fd = openat(r->pool, tmp, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return sfs_fail(why, -errno, "create a staging file in %s: %s", r->path, strerror(errno));
	err = r->dax && bytes % SFS_CHUNK_ALIGN == 0 ? sfs_allocate_huge(fd, bytes) : 0;
	if (!err)
		err = r->dax && bytes % SFS_CHUNK_ALIGN == 0 && sfs_write_huge(fd, bytes) ? 0 : sfs_fill_zero(fd, bytes);
	/* The volume maps persistent memory, but does this file? Attributes of directories can make the difference (dax=inode). */
	if (!err && r->dax && sfs_probe_dax_file(fd) != SFS_DAX_SYNC)
		err = -EMEDIUMTYPE;
	if (!err)
		err = sfs_root_own(r, fd);
	if (!err && r->dax && fsync(fd) < 0)
		err = -errno;
	close(fd);
	if (!err && renameat(r->pool, tmp, r->pool, name) < 0)
		err = -errno;
	if (!err && r->dax && fsync(r->pool) < 0)
		err = -errno;
	if (err) {
		unlinkat(r->pool, tmp, 0);
		return sfs_fail(why, err, "make a staging file of %llu bytes in %s: %s", (unsigned long long)bytes, r->path,
				strerror(-err));
	}
	return 0;
}

int sfs_chunk_open(const struct sfs_root *r, uint32_t id)
{
	return sfs_number_open(r->pool, id, O_RDWR);
}

int sfs_chunk_remove(const struct sfs_root *r, uint32_t id)
{
	return sfs_number_remove(r->pool, id, "");
}

int sfs_chunk_settle(const struct sfs_root *r)
{
	return r->dax && fsync(r->pool) < 0 ? -errno : 0;
}

int sfs_chunk_hide(const struct sfs_root *r, uint32_t id)
{
	char from[32], to[32];

	sfs_number_name(from, id, "");
	sfs_number_name(to, id, ".tmp");
	/* A name more may need a block of a directory, which a full file system does not have. */
	if (renameat(r->pool, from, r->pool, to) < 0 && errno != ENOENT && (errno != ENOSPC || unlinkat(r->pool, from, 0) < 0))
		return -errno;
	return sfs_chunk_settle(r);
}

int sfs_chunk_list(const struct sfs_root *r, struct sfs_numbers *l, bool clean, struct sfs_why *why)
{
	int err;

	if (clean) {
		struct sfs_numbers left;

		err = sfs_list_dir(r->pool, ".tmp", &left);
		if (err)
			return sfs_fail(why, err, "list the pool of %s: %s", r->path, strerror(-err));
		for (uint32_t i = 0; i < left.n; i++) {
			char tmp[32];

			sfs_number_name(tmp, left.v[i], ".tmp");
			unlinkat(r->pool, tmp, 0);
		}
		sfs_numbers_free(&left);
	}
	err = sfs_list_dir(r->pool, "", l);
	return err ? sfs_fail(why, err, "list the pool of %s: %s", r->path, strerror(-err)) : 0;
}

bool sfs_chunk_whole(const struct sfs_root *r, uint32_t id, uint64_t bytes)
{
	int fd = sfs_chunk_open(r, id);
	struct stat st;
	bool whole;

	if (fd < 0)
		return false;
	whole = fstat(fd, &st) == 0 && (uint64_t)st.st_size == bytes && st.st_nlink == 1 &&
		lseek(fd, 0, SEEK_HOLE) == (off_t)bytes;
	close(fd);
	return whole;
}
