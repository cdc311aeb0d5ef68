/* SPDX-License-Identifier: Apache-2.0 */
/* What a process has open, as /proc tells it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "control/store.h"

#define KCMP_FILES 2

static bool is_gone(int err)
{
	return err == ENOENT || err == ESRCH;
}

/* Of a process, or of one of its threads where that is another one. */
static bool maps_file(const char *path, uint64_t ino)
{
	char *line = NULL;
	bool found = false;
	size_t size = 0;
	FILE *f = fopen(path, "re");

	if (!f)
		return !is_gone(errno);
	/* start-end perms offset device inode path */
	errno = 0;
	while (!found && getline(&line, &size, f) > 0) {
		unsigned long long n;

		found = sscanf(line, "%*s %*s %*s %*s %llu", &n) == 1 && n == ino;
	}
	found = found || (errno != 0 && !is_gone(errno));
	free(line);
	fclose(f);
	return found;
}

bool sfs_process_maps(int pid, uint64_t ino)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	return maps_file(path, ino);
}

#define LOOKS_MAX 4096 /* descriptors of a process that are looked at */

/* What /proc/PID/fdinfo says of one descriptor: asked of no file system, whose server might not answer. */
static enum sfs_opened descriptor_has(int infos, const char *name, uint64_t ino)
{
	const int fd = openat(infos, name, O_RDONLY | O_CLOEXEC);
	char buf[512];
	const char *flags, *number;
	ssize_t n;

	if (fd < 0)
		return errno == ENOENT ? SFS_OPENED_NOT : SFS_OPENED_UNKNOWN;
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	buf[n > 0 ? n : 0] = 0;
	flags = strstr(buf, "flags:");
	number = strstr(buf, "\nino:");
	if (n == 0 || (n < 0 && errno == ENOENT))
		return SFS_OPENED_NOT; /* closed meanwhile */
	if (!flags || !number)
		return SFS_OPENED_UNKNOWN; /* kernels before 5.14 */
	if (strtoull(number + strlen("\nino:"), NULL, 10) != ino)
		return SFS_OPENED_NOT;
	return (strtol(flags + strlen("flags:"), NULL, 8) & O_ACCMODE) == O_RDONLY ? SFS_OPENED_READ : SFS_OPENED_WRITE;
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
static enum sfs_opened descriptors_have(int pid, int tid, uint64_t ino, bool ring)
{
	enum sfs_opened most = SFS_OPENED_NOT;
	char path[64];
	struct dirent *e;
	unsigned looks = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/fdinfo", pid, tid);
	dir = opendir(path);
	if (!dir)
		return is_gone(errno) ? SFS_OPENED_NOT : SFS_OPENED_UNKNOWN;
	while (most < SFS_OPENED_WRITE && (e = readdir(dir)) != NULL) {
		enum sfs_opened has;

		if (e->d_name[0] == '.')
			continue;
		has = ring && is_ring(pid, tid, e->d_name) ? SFS_OPENED_UNKNOWN : descriptor_has(dirfd(dir), e->d_name, ino);
		most = has > most ? has : most;
		if (++looks > LOOKS_MAX)
			most = SFS_OPENED_UNKNOWN;
	}
	closedir(dir);
	return most;
}

/* Have both the same table? No, where the kernel does not say. */
static bool same_table(int tid, int other)
{
	return tid == other || syscall(SYS_kcmp, tid, other, KCMP_FILES, 0, 0) == 0;
}

/* Every thread's. A mapping keeps what it was made from open; all threads have the same ones. */
static enum sfs_opened threads_have(int pid, uint64_t ino, bool ring)
{
	enum sfs_opened most = SFS_OPENED_NOT;
	char path[96];
	struct dirent *e;
	int last = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	if (!dir)
		return is_gone(errno) ? SFS_OPENED_NOT : SFS_OPENED_UNKNOWN;
	while (most < SFS_OPENED_WRITE && (e = readdir(dir)) != NULL) {
		const int tid = atoi(e->d_name);
		enum sfs_opened has;

		if (tid <= 0 || (last && same_table(tid, last)))
			continue;
		has = descriptors_have(pid, tid, ino, ring);
		most = has > most ? has : most;
		last = tid;
	}
	closedir(dir);
	snprintf(path, sizeof(path), "/proc/%d/task/%d/maps", pid, last);
	return most < SFS_OPENED_WRITE && last && maps_file(path, ino) ? SFS_OPENED_UNKNOWN : most;
}

enum sfs_opened sfs_process_opened(int pid, uint64_t ino, const struct sfs_tables *tables)
{
	const char state = sfs_process_state(pid);
	enum sfs_opened has;

	/* One whose first thread has ended is shown as a zombie while others run. */
	if (tables->all || state == 'Z' || state == 'X' || state == '?')
		return threads_have(pid, ino, tables->ring);
	has = descriptors_have(pid, pid, ino, tables->ring);
	for (uint32_t i = 0; i < tables->n && has < SFS_OPENED_WRITE; i++) {
		enum sfs_opened by;

		if (same_table(tables->tid[i], pid))
			continue;
		by = descriptors_have(pid, tables->tid[i], ino, tables->ring);
		has = by > has ? by : has;
	}
	/* A mapping keeps what it was made from open. */
	if (has < SFS_OPENED_WRITE && sfs_process_maps(pid, ino))
		has = SFS_OPENED_UNKNOWN;
	return has;
}
