/* SPDX-License-Identifier: Apache-2.0 */
/* Numbered files: named, opened, removed, a directory of them listed, one filled with zeros. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/store.h"

#define FILL (1u << 20)

static int by_number(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

int sfs_numbers_has(const struct sfs_numbers *l, uint32_t number)
{
	return l->n && bsearch(&number, l->v, l->n, sizeof(number), by_number) != NULL;
}

void sfs_number_name(char name[32], uint32_t number, const char *suffix)
{
	snprintf(name, 32, "%06u%s", number, suffix);
}

int sfs_number_open(int dirfd, uint32_t number, int flags)
{
	char name[32];
	struct stat st;
	int fd;

	sfs_number_name(name, number, "");
	fd = openat(dirfd, name, flags | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return -EINVAL;
	}
	return fd;
}

int sfs_number_remove(int dirfd, uint32_t number, const char *suffix)
{
	char name[32];

	sfs_number_name(name, number, suffix);
	return unlinkat(dirfd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

/* NNNNNN followed by exactly `suffix`; at least six digits, no number above 2^32 - 1, never 0. */
static uint32_t number_of(const char *name, const char *suffix)
{
	uint64_t v = 0;
	int digits = 0;

	for (; *name >= '0' && *name <= '9' && digits <= 10; name++, digits++)
		v = v * 10 + (uint64_t)(*name - '0');
	return digits >= 6 && digits <= 10 && v <= UINT32_MAX && strcmp(name, suffix) == 0 ? (uint32_t)v : 0;
}

/* Whatever else somebody has put there under such a name is not ours, and is left alone. */
static bool regular(int dirfd, const struct dirent *e)
{
	struct stat st;

	if (e->d_type != DT_UNKNOWN)
		return e->d_type == DT_REG;
	return fstatat(dirfd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

int sfs_list_dir(int dirfd, const char *suffix, struct sfs_numbers *l)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), err = 0;
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	uint32_t room = 0;
	struct dirent *e;

	l->v = NULL;
	l->n = l->max = 0;
	if (!d) {
		err = -errno;
		if (fd >= 0)
			close(fd);
		return err;
	}
	while ((errno = 0, e = readdir(d))) {
		const uint32_t v = number_of(e->d_name, suffix);

		if (!v)
			continue;
		l->max = v > l->max ? v : l->max;
		if (!regular(fd, e))
			continue;
		if (l->n == room) {
			uint32_t *bigger = reallocarray(l->v, room ? room * 2 : 64, sizeof(*bigger));

			if (!bigger) {
				errno = ENOMEM;
				break;
			}
			l->v = bigger;
			room = room ? room * 2 : 64;
		}
		l->v[l->n++] = v;
	}
	err = -errno;
	closedir(d);
	if (err) {
		sfs_numbers_free(l);
		return err;
	}
	if (l->n)
		qsort(l->v, l->n, sizeof(*l->v), by_number);
	return 0;
}

int sfs_fill_zero(int fd, uint64_t bytes)
{
	static const char zeros[FILL];

	/* Allocated at once, so that the file is contiguous where the file system can; then written, so that it has no holes. */
	if (fallocate(fd, 0, 0, (off_t)bytes) < 0 && errno != EOPNOTSUPP)
		return -errno;
	for (uint64_t at = 0; at < bytes;) {
		const size_t n = bytes - at < FILL ? (size_t)(bytes - at) : FILL;
		const ssize_t w = pwrite(fd, zeros, n, (off_t)at);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return w < 0 ? -errno : -ENOSPC;
		at += (uint64_t)w;
	}
	return 0;
}

void sfs_file_size_lift(void)
{
	struct rlimit rl = {RLIM_INFINITY, RLIM_INFINITY};

	if (setrlimit(RLIMIT_FSIZE, &rl) == 0 || getrlimit(RLIMIT_FSIZE, &rl) < 0)
		return;
	rl.rlim_cur = rl.rlim_max;
	setrlimit(RLIMIT_FSIZE, &rl); /* where that is refused, the lower limit holds */
}
