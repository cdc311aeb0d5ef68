/* SPDX-License-Identifier: Apache-2.0 */
/* What a process has open, as /proc tells it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "control/store.h"

#define KCMP_FILES 2

static bool is_gone(int err)
{
	return err == ENOENT || err == ESRCH;
}

/* Files that are looked for. */
struct search {
	dev_t dev;
	struct sfs_sought *file;
	uint32_t n;
	bool all;	 /* what can't be looked at has them */
	uint32_t *looks; /* not NULL: so many threads and descriptors are looked at still; then the process has them */
};

static void found(const struct search *s, uint32_t i, enum sfs_opened has)
{
	if (has > s->file[i].has)
		s->file[i].has = has;
}

static void has_all(const struct search *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		found(s, i, SFS_OPENED_UNKNOWN);
}

static void may_have_any(const struct search *s)
{
	if (s->all)
		has_all(s);
}

/* May one thread or descriptor more be looked at? */
static bool look_on(const struct search *s)
{
	if (!s->looks)
		return true;
	if (*s->looks == 0) {
		has_all(s);
		return false;
	}
	--*s->looks;
	return true;
}

/* Nothing more can be found out. */
static bool settled(const struct search *s)
{
	return s->n == 1 && s->file[0].has >= SFS_OPENED_WRITE;
}

/* Of a process, or of one of its threads where that is another one. dev 0: of any file system. */
static bool maps_file(const char *path, dev_t dev, uint64_t ino)
{
	char *line = NULL;
	bool maps = false;
	size_t size = 0;
	FILE *f = fopen(path, "re");

	if (!f)
		return !is_gone(errno);
	/* start-end perms offset device inode path */
	errno = 0;
	while (!maps && getline(&line, &size, f) > 0) {
		unsigned major, minor;
		unsigned long long n;

		maps = sscanf(line, "%*s %*s %*s %x:%x %llu", &major, &minor, &n) == 3 && n == ino &&
		       (dev == 0 || makedev(major, minor) == dev);
	}
	maps = maps || (errno != 0 && !is_gone(errno));
	free(line);
	fclose(f);
	return maps;
}

bool sfs_process_maps(int pid, uint64_t ino)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	return maps_file(path, 0, ino);
}

#define LOOKS_MAX 4096 /* descriptors of a process that are looked at */

/* Is it of the files' file system? Asked only of one with the right number, and no server is asked for it. */
static bool on_device(int pid, int tid, const char *name, dev_t dev)
{
	struct statx st;
	char path[96];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/fd/%.16s", pid, tid, name);
	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_INO, &st) < 0)
		return !is_gone(errno);
	return makedev(st.stx_dev_major, st.stx_dev_minor) == dev;
}

/* What /proc/PID/fdinfo says of one descriptor: asked of no file system, whose server might not answer. */
static void look_at_descriptor(int infos, int pid, int tid, const char *name, const struct search *s)
{
	const int fd = openat(infos, name, O_RDONLY | O_CLOEXEC);
	char buf[512];
	const char *flags, *number;
	uint64_t ino;
	ssize_t n;

	if (fd < 0) {
		if (errno != ENOENT)
			may_have_any(s);
		return;
	}
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (n == 0 || (n < 0 && errno == ENOENT))
		return; /* closed meanwhile */
	buf[n > 0 ? n : 0] = 0;
	flags = strstr(buf, "flags:");
	number = strstr(buf, "\nino:");
	if (!flags || !number) {
		may_have_any(s); /* kernels before 5.14 */
		return;
	}
	ino = strtoull(number + strlen("\nino:"), NULL, 10);
	for (uint32_t i = 0; i < s->n; i++) {
		if (s->file[i].ino != ino || !on_device(pid, tid, name, s->dev))
			continue;
		found(s, i,
		      (strtol(flags + strlen("flags:"), NULL, 8) & O_ACCMODE) == O_RDONLY ? SFS_OPENED_READ : SFS_OPENED_WRITE);
	}
}

static bool is_ring(int pid, int tid, const char *name)
{
	char path[96], to[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/fd/%.16s", pid, tid, name);
	n = readlink(path, to, sizeof(to) - 1);
	to[n > 0 ? n : 0] = 0;
	return strcmp(to, "anon_inode:[io_uring]") == 0;
}

/* By the table of that thread. */
static void look_at_table(int pid, int tid, const struct search *s, bool ring)
{
	char path[64];
	struct dirent *e;
	unsigned looks = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/fdinfo", pid, tid);
	dir = opendir(path);
	if (!dir) {
		if (!is_gone(errno))
			may_have_any(s);
		return;
	}
	while (!settled(s) && (e = readdir(dir)) != NULL) {
		if (e->d_name[0] == '.')
			continue;
		if (!look_on(s))
			break;
		if (++looks > LOOKS_MAX) {
			may_have_any(s);
			break;
		}
		if (ring && is_ring(pid, tid, e->d_name))
			may_have_any(s);
		else
			look_at_descriptor(dirfd(dir), pid, tid, e->d_name, s);
	}
	closedir(dir);
}

/* Have both the same table? No, where the kernel does not say. */
static bool same_table(int tid, int other)
{
	return tid == other || syscall(SYS_kcmp, tid, other, KCMP_FILES, 0, 0) == 0;
}

/* Every thread's. Returns one of them, or 0. */
static int look_at_threads(int pid, const struct search *s, bool ring)
{
	char path[64];
	struct dirent *e;
	int last = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	if (!dir) {
		if (!is_gone(errno))
			may_have_any(s);
		return 0;
	}
	while (!settled(s) && (e = readdir(dir)) != NULL) {
		const int tid = atoi(e->d_name);

		if (tid <= 0)
			continue;
		if (!look_on(s))
			break;
		if (last && same_table(tid, last))
			continue;
		look_at_table(pid, tid, s, ring);
		last = tid;
	}
	closedir(dir);
	return last;
}

enum sfs_opened sfs_process_opened(int pid, dev_t dev, uint64_t ino, const struct sfs_tables *tables)
{
	const char state = sfs_process_state(pid);
	struct sfs_sought file = {ino, SFS_OPENED_NOT};
	const struct search s = {dev, &file, 1, true, NULL};
	int tid = pid;
	char path[96];

	/* One whose first thread has ended is shown as a zombie while others run. */
	if (tables->all || state == 'Z' || state == 'X' || state == '?') {
		tid = look_at_threads(pid, &s, tables->ring);
	} else {
		look_at_table(pid, pid, &s, tables->ring);
		for (uint32_t i = 0; i < tables->n && !settled(&s); i++)
			if (!same_table(tables->tid[i], pid))
				look_at_table(pid, tables->tid[i], &s, tables->ring);
	}
	/* A mapping keeps what it was made from open. All threads have the same ones. */
	snprintf(path, sizeof(path), "/proc/%d/task/%d/maps", pid, tid);
	if (tid && !settled(&s) && maps_file(path, dev, ino))
		file.has = SFS_OPENED_UNKNOWN;
	return file.has;
}

bool sfs_process_opened_any(int pid, dev_t dev, struct sfs_sought *files, uint32_t n, uint32_t *looks)
{
	const struct search s = {dev, files, n, false, looks};
	bool any = false;

	for (uint32_t i = 0; i < n; i++)
		files[i].has = SFS_OPENED_NOT;
	look_at_threads(pid, &s, false);
	for (uint32_t i = 0; i < n; i++)
		any = any || files[i].has != SFS_OPENED_NOT;
	return any;
}
