/* SPDX-License-Identifier: Apache-2.0 */
/* Who a process is: a pid alone may have been used again, pid and start time may not (within one boot). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "control/store.h"

static ssize_t slurp(int pid, const char *what, char *buf, size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, what);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, buf, size - 1);
	close(fd);
	buf[n > 0 ? n : 0] = 0;
	return n;
}

/* Field 3 of /proc/PID/stat, the state, in buf; NULL without such a process. */
static char *stat_state(int pid, char *buf, size_t size)
{
	char *p;

	if (pid <= 0 || slurp(pid, "stat", buf, size) <= 0)
		return NULL;
	/* The name, field 2, may hold anything, also parentheses: fields are counted from the last one. */
	p = strrchr(buf, ')');
	return p && p[1] == ' ' ? p + 2 : NULL;
}

char sfs_process_state(int pid)
{
	char buf[1024];
	const char *p = stat_state(pid, buf, sizeof(buf));

	return p && *p ? *p : '?';
}

#define EXITING 0x4u /* PF_EXITING of the kernel's */

uint64_t sfs_process_start_comm(int pid, char comm[16], uint64_t *image)
{
	char buf[1024], *p = stat_state(pid, buf, sizeof(buf)), state;
	const char *name = p ? strchr(buf, '(') : NULL;
	unsigned long flags = 0;
	uint64_t start;
	long threads = 0;

	memset(comm, 0, 16);
	*image = 0;
	if (name)
		snprintf(comm, 16, "%.*s", (int)(p - 2 - (name + 1)), name + 1);

	if (!p)
		return 0;
	state = *p;
	for (int field = 3; field < 22; field++) {
		if (field == 9)
			flags = strtoul(p, NULL, 10);
		if (field == 20)
			threads = strtol(p, NULL, 10);
		p = strchr(p, ' ');
		if (!p)
			return 0;
		p++;
	}
	/* A process whose first thread has ended looks like a zombie, and others may still run. */
	if ((state == 'Z' || state == 'X') && threads < 2)
		return 0;
	start = strtoull(p, NULL, 10);
	/*
	 * Where its code, stack, data and heap are, and its words: without address randomisation one of the same program with
	 * the same words is taken for the one before it, which had the library.
	 */
	for (int field = 22; field <= 51 && p; field++) {
		if (field == 26 || field == 27 || field == 28 || field >= 45)
			*image = *image * 31 + strtoull(p, NULL, 10);
		p = strchr(p, ' ');
		p = p ? p + 1 : NULL;
	}
	/* Between two programs execve has closed what it closes, and these are not known yet. */
	if (*image == 0 && !(flags & EXITING))
		*image = 1;
	return start;
}

uint64_t sfs_process_start(int pid)
{
	uint64_t image;
	char comm[16];

	return sfs_process_start_comm(pid, comm, &image);
}

void sfs_process_cgroups(int pid, char text[SFS_CGROUPS_MAX])
{
	if (pid <= 0 || slurp(pid, "cgroup", text, SFS_CGROUPS_MAX) <= 0)
		text[0] = 0;
}

long sfs_process_number(int pid, const char *field)
{
	char buf[4096];
	const size_t n = strlen(field);

	if (pid <= 0 || slurp(pid, "status", buf, sizeof(buf)) <= 0)
		return 0;
	/* The first line has the name, in which a line break is escaped. */
	for (const char *p = buf; p; p = strchr(p, '\n')) {
		p += *p == '\n';
		if (strncmp(p, field, n) == 0 && p[n] == ':')
			return strtol(p + n + 1, NULL, 10);
	}
	return 0;
}

static bool call_now(int tid, struct sfs_call *call)
{
	unsigned long *const a = call->arg;
	char buf[256] = "";
	const bool told = tid > 0 && slurp(tid, "syscall", buf, sizeof(buf)) > 0;
	int n = 0;

	*call = (struct sfs_call){.nr = SFS_CALL_NONE};
	if (told)
		n = sscanf(buf, "%ld 0x%lx 0x%lx 0x%lx 0x%lx 0x%*x 0x%*x 0x%*x 0x%lx", &call->nr, &a[0], &a[1], &a[2], &a[3],
			   &call->pc);
	/* "-1 SP PC" of a thread that stands in none. */
	if (n != 6)
		*call = (struct sfs_call){.nr = strncmp(buf, "running", 7) == 0 ? SFS_CALL_RUNNING : SFS_CALL_NONE};
	return told;
}

bool sfs_process_call(int tid, struct sfs_call *call, unsigned wait_ms)
{
	bool told = call_now(tid, call);

	for (unsigned tries = 0; call->nr == SFS_CALL_RUNNING && tries < wait_ms * 4; tries++) {
		usleep(250);
		told = call_now(tid, call);
	}
	return told;
}

uint32_t sfs_thread_children(int pid, int tid, int *children, uint32_t max)
{
	char path[64];
	uint32_t n = 0;
	int child;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, tid);
	f = fopen(path, "re");
	while (f && max > 0 && fscanf(f, "%d", &child) == 1) {
		if (n == max)
			memmove(children, children + 1, (--n) * sizeof(*children));
		children[n++] = child;
	}
	if (f)
		fclose(f);
	return n;
}

uint32_t sfs_process_children(int pid, int *children, uint32_t max, uint32_t *looks)
{
	char path[64];
	struct dirent *e;
	uint32_t n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && n < max && (e = readdir(dir)) != NULL) {
		if (e->d_name[0] == '.')
			continue;
		if (*looks == 0)
			break;
		--*looks;
		n += sfs_thread_children(pid, atoi(e->d_name), children + n, max - n);
	}
	if (dir)
		closedir(dir);
	return n;
}

uint64_t sfs_thread_ran(int pid, int tid)
{
	char what[64], buf[1024];
	unsigned long long ran = 0;
	const char *p;

	snprintf(what, sizeof(what), "task/%d/stat", tid);
	if (slurp(pid, what, buf, sizeof(buf)) <= 0 || !(p = strrchr(buf, ')')))
		return 0;
	return sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu", &ran) == 1 ? ran : 0;
}

void sfs_printable(char *to, size_t size, const char *from)
{
	size_t n = 0;

	for (; n + 1 < size && from[n]; n++)
		to[n] = from[n] >= 0x20 && from[n] < 0x7f ? from[n] : '?';
	to[n] = 0;
}

void sfs_process_program(int pid, char *name, size_t size)
{
	uint64_t image;
	char path[64], target[4096], comm[16];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	n = readlink(path, target, sizeof(target) - 1);
	sfs_process_start_comm(pid, comm, &image);
	target[n > 0 ? n : 0] = 0;
	/* The end of a long path says more than its beginning. */
	if (n > 0)
		sfs_printable(name, size, (size_t)n < size ? target : target + n - (size - 1));
	else
		sfs_printable(name, size, comm[0] ? comm : "?");
}

/* id parent major:minor root mountpoint options ...; blanks in names are escaped. */
static bool mounts_writable(const char *line, dev_t dev)
{
	unsigned major, minor;
	char options[3];

	return sscanf(line, "%*s %*s %u:%u %*s %*s %2s", &major, &minor, options) == 3 && makedev(major, minor) == dev &&
	       strcmp(options, "rw") == 0;
}

bool sfs_process_mounts_writable(int pid, dev_t dev)
{
	char path[64], *line = NULL;
	bool found = false;
	size_t size = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/mountinfo", pid);
	f = pid > 0 ? fopen(path, "re") : NULL;
	if (!f)
		return false;
	while (!found && getline(&line, &size, f) > 0)
		found = mounts_writable(line, dev);
	free(line);
	fclose(f);
	return found;
}
