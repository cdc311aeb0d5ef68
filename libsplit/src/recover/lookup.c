/* SPDX-License-Identifier: Apache-2.0 */
#include "recover/lookup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "format/identity.h"
#include "format/layout.h"

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif
/* Types of file handles of the kernel's file systems (include/linux/exportfs.h, fs/xfs/xfs_export.h). */
#define HANDLE_INO32_GEN 0x01
#define HANDLE_INO64_GEN 0x81 /* XFS */

#define OPEN_TRIES 8
#define CANT_TELL  INT_MIN /* of this way to a file; no errno value: -EAGAIN is a lease that somebody has on it */

/* Is fd the regular file (ino, gen) of this volume? */
static bool is_it(const struct sfs_root *root, int fd, uint64_t ino, uint32_t gen)
{
	struct stat st;
	uint32_t found;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_dev == root->dev && st.st_ino == ino &&
	       sfs_generation(fd, &found) == 0 && found == gen;
}

static int open_handle(const struct sfs_lookup *l, uint64_t ino, uint32_t gen, int flags)
{
	union {
		struct file_handle h;
		char room[sizeof(struct file_handle) + 16];
	} u = {0};
	const uint32_t ino32 = (uint32_t)ino;
	int fd;

	u.h.handle_type = l->handle_type;
	if (l->handle_type == HANDLE_INO64_GEN) {
		u.h.handle_bytes = 12;
		memcpy(u.h.f_handle, &ino, 8);
		memcpy(u.h.f_handle + 8, &gen, 4);
	} else {
		if (ino > UINT32_MAX)
			return -ENOENT;
		u.h.handle_bytes = 8;
		memcpy(u.h.f_handle, &ino32, 4);
		memcpy(u.h.f_handle + 4, &gen, 4);
	}
	fd = open_by_handle_at(l->root->fd, &u.h, flags | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return errno == ESTALE ? -ENOENT : -errno;
	if (is_it(l->root, fd, ino, gen))
		return fd;
	close(fd);
	return -ENOENT;
}

void sfs_lookup_init(struct sfs_lookup *l, const struct sfs_root *root, const struct sfs_targets *targets)
{
	struct statfs sf;
	struct stat st;
	uint32_t gen;
	int fd;

	*l = (struct sfs_lookup){.root = root, .targets = targets};
	if (fstatfs(root->fd, &sf) < 0)
		return;
	if (sf.f_type == EXT4_SUPER_MAGIC)
		l->handle_type = HANDLE_INO32_GEN;
	else if (sf.f_type == XFS_SUPER_MAGIC)
		l->handle_type = HANDLE_INO64_GEN;
	else
		return;
	/* Believe in handles only when one that we make opens the file that it should: then "no such file" may be believed too. */
	fd = openat(root->ctl, "volume", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && fstat(fd, &st) == 0 && sfs_generation(fd, &gen) == 0) {
		int again = open_handle(l, st.st_ino, gen, O_RDONLY);

		if (again < 0)
			l->handle_type = 0;
		else
			close(again);
	} else {
		l->handle_type = 0;
	}
	if (fd >= 0)
		close(fd);
}

/* ---- the walk ---- */

struct walk {
	const struct sfs_lookup *l;
	struct sfs_wanted **wanted; /* sorted by ino */
	size_t n, left;
	char **dirs; /* still to be read, relative to ROOT */
	size_t ndirs, room;
};

static int by_ino(const void *a, const void *b)
{
	const struct sfs_wanted *x = *(struct sfs_wanted *const *)a, *y = *(struct sfs_wanted *const *)b;

	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static int push(struct walk *w, const char *dir, const char *name)
{
	if (w->ndirs == w->room) {
		const size_t room = w->room ? w->room * 2 : 64;
		char **bigger = reallocarray(w->dirs, room, sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		w->dirs = bigger;
		w->room = room;
	}
	if (asprintf(&w->dirs[w->ndirs], "%s%s%s", dir, *dir ? "/" : "", name) < 0)
		return -ENOMEM;
	w->ndirs++;
	return 0;
}

/*
 * Open a path below ROOT, of any length, one component after the other: the tree belongs to others, who may put a symbolic
 * link into the way at any time.
 */
static int open_below(const struct sfs_root *root, const char *path, int last_flags)
{
	int dir = fcntl(root->fd, F_DUPFD_CLOEXEC, 3);

	while (dir >= 0) {
		const size_t n = strcspn(path, "/");
		const bool last = path[n] == 0;
		char name[NAME_MAX + 1];
		int fd;

		if (n > NAME_MAX) {
			close(dir);
			return -ENAMETOOLONG;
		}
		memcpy(name, path, n);
		name[n] = 0;
		fd = openat(dir, n ? name : ".", (last ? last_flags : O_PATH | O_DIRECTORY) | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			fd = -errno;
		close(dir);
		if (fd < 0 || last)
			return fd;
		dir = fd;
		path += n + 1;
	}
	return -errno;
}

/* Open for writing through an O_PATH descriptor; the owner's own lack of the permission is no obstacle for the owner. */
static int open_for_writing(int path_fd, mode_t mode)
{
	char link[64];
	int fd;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
	fd = open(link, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 && errno == EACCES && chmod(link, (mode & 07777) | S_IWUSR) == 0) {
		fd = open(link, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0) {
			const int err = -errno;

			return chmod(link, mode & 07777) < 0 ? -errno : err;
		}
		if (fchmod(fd, mode & 07777) < 0) {
			const int err = -errno;

			close(fd);
			return err;
		}
	}
	return fd < 0 ? -errno : fd;
}

static int open_found(const struct sfs_lookup *l, const struct sfs_wanted *w, const char *path)
{
	int path_fd = open_below(l->root, path, O_PATH), fd;
	struct stat st;

	if (path_fd < 0)
		return path_fd == -ENOTDIR || path_fd == -ELOOP ? -ENOENT : path_fd;
	if (fstat(path_fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_ino != w->ino || st.st_dev != l->root->dev) {
		close(path_fd);
		return -ENOENT;
	}
	fd = open_for_writing(path_fd, st.st_mode);
	close(path_fd);
	if (fd >= 0 && !is_it(l->root, fd, w->ino, w->gen)) {
		close(fd);
		return -ENOENT;
	}
	return fd;
}

static int candidate(struct walk *w, const char *dir, const char *name, uint64_t ino)
{
	struct sfs_wanted key = {.ino = ino}, *pkey = &key, **at;
	char *path;

	at = bsearch(&pkey, w->wanted, w->n, sizeof(*w->wanted), by_ino);
	if (!at)
		return 0;
	while (at > w->wanted && at[-1]->ino == ino)
		at--;
	if (asprintf(&path, "%s%s%s", dir, *dir ? "/" : "", name) < 0)
		return -ENOMEM;
	for (; at < w->wanted + w->n && (*at)->ino == ino; at++) {
		int fd;

		if ((*at)->found)
			continue;
		fd = open_found(w->l, *at, path);
		if (fd == -ENOENT)
			continue;
		if (fd < 0) {
			free(path);
			return fd;
		}
		close(fd);
		(*at)->path = strdup(path);
		if (!(*at)->path) {
			free(path);
			return -ENOMEM;
		}
		(*at)->found = true;
		w->left--;
	}
	free(path);
	return 0;
}

static int read_dir(struct walk *w, const char *dir, struct sfs_why *why)
{
	const struct sfs_root *root = w->l->root;
	int fd = open_below(root, dir, O_RDONLY | O_DIRECTORY), err = 0;
	struct dirent *e;
	struct stat st;
	DIR *d;

	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
		return 0; /* removed or replaced meanwhile */
	if (fd < 0)
		return sfs_fail(why, fd, "search %s/%s for the files to recover: %s", root->path, dir, strerror(-fd));
	if (fstat(fd, &st) < 0 || st.st_dev != root->dev) {
		close(fd); /* another file system is mounted here */
		return 0;
	}
	d = fdopendir(fd);
	if (!d) {
		err = -errno;
		close(fd);
		return sfs_fail(why, err, "search %s/%s: %s", root->path, dir, strerror(-err));
	}
	while (!err && w->left && (errno = 0, e = readdir(d))) {
		unsigned char type = e->d_type;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    (!*dir && strcmp(e->d_name, SFS_CONTROL_DIR) == 0))
			continue;
		if (type == DT_UNKNOWN) {
			if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
				continue;
			type = S_ISDIR(st.st_mode) ? DT_DIR : S_ISREG(st.st_mode) ? DT_REG : DT_LNK;
		}
		if (type == DT_DIR)
			err = push(w, dir, e->d_name);
		else if (type == DT_REG)
			err = candidate(w, dir, e->d_name, e->d_ino);
	}
	if (!err && errno)
		err = -errno;
	closedir(d);
	return err ? sfs_fail(why, err, "search %s/%s: %s", root->path, dir, strerror(-err)) : 0;
}

static int walk(const struct sfs_lookup *l, struct sfs_wanted **wanted, size_t n, struct sfs_why *why)
{
	struct walk w = {.l = l, .wanted = wanted, .n = n, .left = n};
	int err;

	qsort(wanted, n, sizeof(*wanted), by_ino);
	err = push(&w, "", "");
	while (!err && w.ndirs && w.left) {
		char *dir = w.dirs[--w.ndirs];

		err = read_dir(&w, dir, why);
		free(dir);
	}
	while (w.ndirs)
		free(w.dirs[--w.ndirs]);
	free(w.dirs);
	return err ? sfs_fail(why, err, "search %s for the files to recover: %s", l->root->path, strerror(-err)) : 0;
}

/* Or CANT_TELL. */
static int open_direct(const struct sfs_lookup *l, const struct sfs_wanted *w)
{
	int fd = -ENOENT;

	if (l->targets && l->targets->open) {
		fd = l->targets->open(l->targets->ctx, w->ino, w->gen);
		if (fd >= 0 && !is_it(l->root, fd, w->ino, w->gen)) {
			close(fd);
			fd = -ENOENT;
		}
		if (fd != -ENOENT)
			return fd;
	}
	return l->handle_type ? open_handle(l, w->ino, w->gen, O_WRONLY) : CANT_TELL;
}

int sfs_lookup_find(const struct sfs_lookup *l, struct sfs_wanted *const *wanted, size_t n, struct sfs_why *why)
{
	struct sfs_wanted **left = n ? calloc(n, sizeof(*left)) : NULL;
	size_t nleft = 0;
	int err = 0;

	if (n && !left)
		return sfs_fail(why, -ENOMEM, "not enough memory to find the files to recover");
	for (size_t i = 0; i < n && !err; i++) {
		int fd = open_direct(l, wanted[i]);

		if (fd >= 0) {
			close(fd);
			wanted[i]->found = true;
		} else if (fd == CANT_TELL) {
			left[nleft++] = wanted[i];
		} else if (fd != -ENOENT) {
			err = sfs_fail(why, fd, "open inode %llu of %s: %s", (unsigned long long)wanted[i]->ino, l->root->path,
				       strerror(-fd));
		}
	}
	/* A second walk, because a file that is renamed during the first one may be missed by it. */
	for (int i = 0; i < 2 && nleft && !err; i++) {
		size_t still = 0;

		err = walk(l, left, nleft, why);
		for (size_t k = 0; k < nleft; k++)
			if (!left[k]->found)
				left[still++] = left[k];
		nleft = still;
	}
	free(left);
	return err;
}

int sfs_lookup_open(const struct sfs_lookup *l, struct sfs_wanted *w)
{
	for (int i = 0; w->found && i < OPEN_TRIES; i++) {
		const int fd = w->path ? open_found(l, w, w->path) : open_direct(l, w);
		int err;

		if (fd != -ENOENT || !w->path)
			return fd == CANT_TELL ? -ENOENT : fd;
		/* It may have another name by now. */
		free(w->path);
		w->path = NULL;
		w->found = false;
		err = sfs_lookup_find(l, &w, 1, NULL);
		if (err)
			return err;
	}
	return w->found ? -EAGAIN : -ENOENT;
}
