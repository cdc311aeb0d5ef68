/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What it costs to make a metadata call durable, by each way there is: docs/data-path.md, "Metadata". Plain kernel calls; medians
 * in microseconds, the ways taken in turn.
 *
 *   metadata DIR [ROUNDS]     DIR: an empty directory on the file system in question (default 300 rounds)
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "timing.h"

enum way { NOTHING, FSYNC_DIR, FSYNC_FILE, SYNCFS, SYNCFS_BUSY, WAYS };
static const char *const ways[WAYS] = {"nothing", "fsync(dir)", "fsync(file)", "syncfs", "syncfs, 16 MiB dirty"};

enum call { CREATE, MKDIR, RENAME, RENAME_ACROSS, CHMOD, CALLS };
static const char *const calls[CALLS] = {"create", "mkdir", "rename", "rename across", "chmod"};

static double *took[CALLS][WAYS];
static int dir, sub, busy;

static void must(int ok, const char *what)
{
	if (!ok)
		fail(what);
}

static double once(enum call call, enum way way, int i)
{
	static char data[16 << 20];
	char name[32];
	double start;
	int file = -1;

	snprintf(name, sizeof(name), "n%d", i);
	if (call != CREATE && call != MKDIR) {
		file = openat(dir, name, O_CREAT | O_WRONLY, 0644);
		must(file >= 0, name);
	}
	if (way == SYNCFS_BUSY) {
		data[i % 4096]++;
		must(pwrite(busy, data, sizeof(data), 0) == sizeof(data), "write");
		must(fdatasync(dir) == 0, "fsync");
	} else {
		must(syncfs(dir) == 0, "syncfs");
	}
	start = now_ns(CLOCK_MONOTONIC);
	switch (call) {
	case CREATE:
		file = openat(dir, name, O_CREAT | O_EXCL | O_WRONLY, 0644);
		must(file >= 0, name);
		break;
	case MKDIR:
		must(mkdirat(dir, name, 0755) == 0, name);
		break;
	case RENAME:
		must(renameat(dir, name, dir, "renamed") == 0, name);
		break;
	case RENAME_ACROSS:
		must(renameat(dir, name, sub, "renamed") == 0, name);
		break;
	default:
		must(fchmod(file, 0600) == 0, name);
	}
	if (way == FSYNC_DIR) {
		must(fsync(dir) == 0, "fsync");
		must(call != RENAME_ACROSS || fsync(sub) == 0, "fsync");
	} else if (way == FSYNC_FILE && file >= 0) {
		must(fsync(file) == 0, "fsync");
	} else if (way == SYNCFS || way == SYNCFS_BUSY) {
		must(syncfs(dir) == 0, "syncfs");
	}
	start = (now_ns(CLOCK_MONOTONIC) - start) / 1e3;
	if (file >= 0)
		close(file);
	if (call == CREATE || call == CHMOD || call == MKDIR)
		must(unlinkat(dir, name, call == MKDIR ? AT_REMOVEDIR : 0) == 0, name);
	return start;
}

int main(int argc, char **argv)
{
	const int rounds = argc > 2 ? atoi(argv[2]) : 300;

	must(argc > 1 && rounds > 0, "metadata DIR [ROUNDS]");
	dir = open(argv[1], O_RDONLY | O_DIRECTORY);
	must(dir >= 0 && (mkdirat(dir, "sub", 0755) == 0 || errno == EEXIST), argv[1]);
	sub = openat(dir, "sub", O_RDONLY | O_DIRECTORY);
	busy = openat(dir, "busy", O_CREAT | O_WRONLY, 0644);
	must(sub >= 0 && busy >= 0, "open");
	for (int c = 0; c < CALLS; c++)
		for (int w = 0; w < WAYS; w++)
			must((took[c][w] = calloc((size_t)rounds, sizeof(double))) != NULL, "memory");
	for (int i = 0; i < rounds; i++)
		for (int c = 0; c < CALLS; c++)
			for (int w = 0; w < WAYS; w++)
				took[c][w][i] = once(c, w, i);
	printf("| microseconds |");
	for (int w = 0; w < WAYS; w++)
		printf(" %s |", ways[w]);
	printf("\n| --- |");
	for (int w = 0; w < WAYS; w++)
		printf(" --- |");
	for (int c = 0; c < CALLS; c++) {
		printf("\n| %s |", calls[c]);
		for (int w = 0; w < WAYS; w++) {
			/* fsync of the directory does nothing for attributes, and there is no file to mkdir. */
			if ((c == CHMOD && w == FSYNC_DIR) || (c == MKDIR && w == FSYNC_FILE))
				printf(" - |");
			else
				printf(" %.0f |", median(took[c][w], (size_t)rounds));
		}
	}
	printf("\n");
	return 0;
}
