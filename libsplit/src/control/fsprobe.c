/* SPDX-License-Identifier: Apache-2.0 */
#include "control/fsprobe.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
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

/* One line of mountinfo: what of which device is mounted where. */
struct mounted {
	char *line;
	size_t size;
	unsigned major, minor;
	char *root, *point;
};

static bool next_mount(FILE *f, struct mounted *m)
{
	while (getline(&m->line, &m->size, f) > 0) {
		char *save = NULL, *field = strtok_r(m->line, " ", &save);

		m->root = m->point = NULL;
		m->major = m->minor = 0;
		for (int i = 1; field && i <= 5; i++, field = strtok_r(NULL, " ", &save)) {
			if (i == 3 && sscanf(field, "%u:%u", &m->major, &m->minor) != 2)
				break;
			if (i == 4)
				m->root = field;
			if (i == 5)
				m->point = field;
		}
		if (!m->root || !m->point)
			continue;
		unescape(m->root);
		unescape(m->point);
		return true;
	}
	return false;
}

bool sfs_probe_dedicated(const char *path)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	struct mounted m = {0};
	bool dedicated = false;

	if (!f)
		return false;
	/* Later lines are mounted over earlier ones. */
	while (next_mount(f, &m))
		if (strcmp(m.point, path) == 0)
			dedicated = strcmp(m.root, "/") == 0;
	free(m.line);
	fclose(f);
	return dedicated;
}

/* A directory, to which names are added that begin with a slash. */
static const char *unslashed(const char *directory)
{
	return strcmp(directory, "/") == 0 ? "" : directory;
}

/* What of path is behind the directory `of`, with its slash or empty; NULL: it is not below. */
static const char *behind(const char *path, const char *of)
{
	const size_t n = strlen(unslashed(of));

	path = unslashed(path);
	return strncmp(path, of, n) == 0 && (path[n] == '/' || path[n] == 0) ? path + n : NULL;
}

/* The name of an absolute path in its file system: below the root of the mount that it is on. */
static char *name_in_fs(const char *path)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	struct mounted m = {0};
	size_t longest = 0;
	char *name = NULL;

	while (f && next_mount(f, &m)) {
		const char *rest = behind(path, m.point);

		if (!rest || strlen(m.point) < longest)
			continue;
		longest = strlen(m.point);
		free(name);
		if (asprintf(&name, "%s%s", unslashed(m.root), rest) < 0)
			name = NULL;
	}
	free(m.line);
	if (f)
		fclose(f);
	return name;
}

/* Is a directory above `name`, as that mount shows it, a volume of this device? */
static char *volume_above(const struct mounted *m, const char *name, dev_t dev)
{
	const char *rest = behind(name, m->root);
	char *above = NULL, *end;
	struct stat st;

	if (!rest || asprintf(&above, "%s%s", unslashed(m->point), rest) < 0)
		return NULL;
	while ((end = strrchr(above, '/')) && (size_t)(end - above) >= strlen(unslashed(m->point))) {
		char header[PATH_MAX];

		*end = 0;
		snprintf(header, sizeof(header), "%s/" SFS_CONTROL_DIR "/volume", above);
		if (lstat(header, &st) == 0 && S_ISREG(st.st_mode) && st.st_dev == dev)
			return above;
	}
	free(above);
	return NULL;
}

bool sfs_probe_inside(const char *path, char **volume)
{
	char *name = name_in_fs(path);
	FILE *f = name ? fopen("/proc/self/mountinfo", "re") : NULL;
	struct mounted m = {0};
	struct stat st;

	*volume = NULL;
	while (f && stat(path, &st) == 0 && !*volume && next_mount(f, &m))
		if (makedev(m.major, m.minor) == st.st_dev)
			*volume = volume_above(&m, name, st.st_dev);
	free(m.line);
	free(name);
	if (f)
		fclose(f);
	return *volume;
}
